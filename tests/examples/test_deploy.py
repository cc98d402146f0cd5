"""The files for containers and Kubernetes name what exists: options, paths, ports and the version of Ray."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import version
from pathlib import Path

from raylog.cli.main import make_parser

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
PROJECT = (DEPLOY.parent.parent / "pyproject.toml").read_text()


def test_the_image_starts_a_cluster() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", "")
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    program, *arguments = json.loads(command)
    options = make_parser().parse_args(arguments)
    assert program == "raylog"
    assert options.data_dir == ["/data/raylog"]
    assert "VOLUME /data" in text


def test_pods_of_kuberay_can_be_probed_and_write_to_their_volumes() -> None:
    image, cluster = ((DEPLOY / name).read_text() for name in ("Containerfile", "raycluster.yaml"))
    assert " wget" in image, "KubeRay's probes call it"
    (user,) = re.findall(r"useradd --create-home --uid (\d+) ray", image)
    assert re.findall(r"fsGroup: (\d+)", cluster) == [user] * 2


def test_the_versions_of_ray_are_that_of_the_project() -> None:
    (wanted,) = re.findall(r'"ray(>=[\d.,<>=]+)"', PROJECT)
    assert f"ray[default]{wanted}" in (DEPLOY / "Containerfile").read_text()
    assert f'rayVersion: "{version("ray")}"' in (DEPLOY / "raycluster.yaml").read_text()


def test_the_jobs_of_the_page_are_commands() -> None:
    page = (DEPLOY.parent.parent / "docs" / "deployment.md").read_text().replace("\\\n", "")
    jobs = re.findall(r" -- +raylog (.*)$", page, re.MULTILINE)
    assert len(jobs) == 2
    for job in jobs:
        assert callable(make_parser().parse_args(shlex.split(job)).run)
