"""All required settings reach Spark, together with those of the caller."""

from __future__ import annotations

from raylog.raydp_bridge.java import JAVA_OPTIONS
from raylog.raydp_bridge.session import spark_configs

THREE_JVMS = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)


def test_packages_are_opened_in_all_three_jvms() -> None:
    configs = spark_configs()
    for key in THREE_JVMS:
        quick = "" if "executor" in key else " -XX:TieredStopAtLevel=1"
        assert configs[key] == f"{JAVA_OPTIONS}{quick}"
    assert "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED" in JAVA_OPTIONS.split()


def test_java_options_of_the_caller_are_appended_and_other_settings_take_precedence() -> None:
    configs = spark_configs({"spark.driver.extraJavaOptions": "-Xss4m", "spark.ui.enabled": "true", "spark.x": "y"})
    assert configs["spark.driver.extraJavaOptions"] == f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -Xss4m"
    assert configs["spark.ui.enabled"] == "true"
    assert configs["spark.x"] == "y"
