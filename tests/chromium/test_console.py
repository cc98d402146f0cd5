"""Each job of the console is done in a browser, with and without rights, also while a broker is down; nothing runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.topics import NewTopic
from raylog.client.client_config import ClientConfig
from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Producer
from raylog.console.application import ConsoleOptions
from raylog.core.errors import KafkaError
from raylog.core.ids import TopicPartition
from tests.chromium.page import DESKTOP, PHONE, ConsolePage, chromium, screenshots, why_not
from tests.support.console_thread import console_thread
from tests.support.hang import HANG_SECONDS
from tests.support.node_cluster import NodeCluster

pytestmark = [pytest.mark.console, pytest.mark.skipif(bool(why_not()), reason=why_not())]
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{JAAS} user_admin="pw" user_nobody="pw";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "min.insync.replicas": "1",
}
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_jaas_config": f'{JAAS} username="admin" password="pw";',
}
HOSTILE = "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
BREAKOUT = "\"'`--></textarea></title></style><svg onload='window.ran = 3'><a href=\"javascript:window.ran = 4\">x</a>"
PAGES = {
    "overview": "Overview",
    "topics": "Topics",
    "topic?name=orders": "orders",
    "messages?topic=orders": "orders messages",
    "groups": "Groups",
    "group?name=billing": "billing",
    "transactions": "Transactions",
    "acls": "Access control",
    "users": "Users",
    "quotas": "Quotas",
    "reassignments": "Reassignments",
    "log-dirs": "Log directories",
    "mirrors": "Mirrors",
    "spark": "Spark queries",
}


class Site(NamedTuple):
    cluster: NodeCluster
    open_tab: Callable[..., ConsolePage]
    settings: dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("console")
    pictures = screenshots(folder / "screenshots")
    cluster = NodeCluster(folder / "cluster", config=CONFIG)
    try:
        options = ConsoleOptions(
            ClientConfig(cluster.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}),
            title="shop",
        )
        settings = {"bootstrap_servers": cluster.bootstrap_servers, **LOGIN}
        with console_thread(options) as url, chromium() as browser:
            fill(settings)

            def open_tab(viewport: dict[str, int] = DESKTOP, scheme: str = "light") -> ConsolePage:
                context = browser.new_context(viewport=viewport, color_scheme=scheme)
                return ConsolePage(context.new_page(), url, pictures)

            yield Site(cluster, open_tab, settings)
        cluster.stop()
    finally:
        cluster.kill()


def fill(settings: dict[str, Any]) -> None:
    """Real data: topics, records, and a group that lags."""
    with AdminClient(**settings) as admin:
        admin.create_topics([NewTopic("orders", 6, 3), NewTopic("clicks", 3, 3)])
    with Producer(**settings) as producer:
        for number in range(600):
            producer.send("orders", key=f"order-{number}", value=b'{"id": %d, "state": "paid"}' % number)
    for group, offset in (("billing", 20), ("spark-8d1c", 50)):
        with Consumer(**settings, group_id=group) as consumer:
            partitions = [TopicPartition("orders", number) for number in range(6)]
            consumer.assign(partitions)
            consumer.commit(dict.fromkeys(partitions, offset))


def create_all(admin: AdminClient, names: list[str]) -> None:
    """With ten partitions each. On a busy machine the controller may move meanwhile: what is missing is asked again."""
    deadline = time.monotonic() + HANG_SECONDS
    while missing := sorted(set(names) - {each.name for each in admin.list_topics()}):
        assert time.monotonic() < deadline, f"{len(missing)} topics are missing"
        with suppress(KafkaError):
            admin.create_topics([NewTopic(name, 10, 1) for name in missing[:50]])


def has_run(page: ConsolePage) -> Any:
    return page.tab.evaluate("window.ran")


def test_every_job_of_an_administrator(site: Site) -> None:
    page = site.open_tab()
    page.log_in("admin", "pw")
    page.see(".tile:has-text('brokers') strong:text-is('3')")

    page.open("topics", "Topics")
    page.click("Create topic")
    page.fill_dialog("Create", name="invoices", partitions="2", replicas="3", configs="retention.ms=86400000")
    page.see("h1:text-is('invoices')")
    page.see("td:text-is('86400000')")
    page.click("Add partitions")
    page.fill_dialog("Add", partitions="4")
    page.see(".facts:has-text('4 partitions')")
    page.click("change")
    page.fill_dialog("Set", value="3600000")
    page.see("td:text-is('3600000')")

    page.open("messages?topic=invoices", "invoices messages")
    page.see("text=0 shown")
    page.click("Write a message")
    page.fill_dialog("Write", key="k-1", value='{"total": 12.50}', headers="source=page")
    page.see(".records .value:has-text('12.50')")
    page.click("▶ Follow")
    page.see("text=following")
    with Producer(**site.settings) as producer:
        producer.send("invoices", key="k-2", value=b"later").result()
    page.see(".records .value:text-is('later')")

    page.open("messages?topic=orders&from=earliest&key=order-333", "orders messages")
    page.see(".records li:only-child .key:text-is('order-333')")

    page.open("group?name=billing", "billing")
    page.see("tr:has-text('orders') >> nth=5")
    page.click("Reset offsets")
    page.tab.select_option("dialog select[name=to]", "latest")
    page.tab.click("dialog button:text-is('Show what would change')")
    page.see("dialog td:text-is('orders-5')")
    page.fill_dialog("Reset")
    page.see(".facts:has-text('lag 0')")

    page.open("acls", "Access control")
    page.click("Add entry")
    page.fill_dialog("Add", principal="User:carol", operation="READ", resource_type="TOPIC", resource_name="orders")
    page.see("tr:has-text('User:carol')")
    page.open("users", "Users")
    page.click("Add user")
    page.fill_dialog("Set", name="carol", password="secret")
    page.see("tr:has-text('carol')")
    page.open("quotas", "Quotas")
    page.click("Set quotas")
    page.fill_dialog("Set", **{"user": "carol", "quota producer_byte_rate": "1048576"})
    page.see("tr:has-text('1,048,576')")

    page.open("reassignments", "Reassignments")
    page.click("Move partitions")
    page.fill_dialog("Move", topic="invoices", partitions="0", replicas="0,1")
    page.see("text=no partition is being moved")  # at the latest once it has ended
    page.click("Elect preferred leaders")
    page.fill_dialog("Elect", topic="invoices")

    page.open("topic?name=invoices", "invoices")
    page.click("Delete")
    page.fill_dialog("Delete", typed="invoices")
    page.see("h1:text-is('Topics')")
    page.see("tr:has-text('orders')")
    page.see("tr:has-text('invoices')", state="detached")  # another broker may know it a little longer
    assert page.problems == []


def test_every_page_on_a_desktop_and_a_phone(site: Site) -> None:
    for kind, viewport, scheme in (("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")):
        page = site.open_tab(viewport, scheme)
        page.log_in("admin", "pw")
        for address, heading in PAGES.items():
            page.open(address, heading)
            page.see("main:not(:has-text('reading…')):not(:has(.loading))")
            assert page.tab.locator(".banner").is_hidden(), address
            width = page.tab.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], f"{address} scrolls sideways on a {kind}"
            page.photograph(f"{address.partition('?')[0]}-{kind}")
        assert page.problems == []


def test_without_rights_nothing_is_shown_and_nothing_is_done(site: Site) -> None:
    page = site.open_tab()
    page.tab.goto(page._url)
    page.tab.fill("input[name=user]", "nobody")
    page.tab.fill("input[name=password]", "wrong")
    page.tab.select_option("select[name=mechanism]", "PLAIN")
    page.tab.click("button.primary")
    page.see(".failure:not(:empty)")
    page.log_in("nobody", "pw")
    page.open("topics", "Topics")
    page.see("text=no topics yet")
    page.click("Create topic")
    page.submit("Create", name="mine")
    page.see("dialog .failure:has-text('uthoriz')")
    page.tab.click("dialog button:text-is('Cancel')")
    for address in ("messages?topic=orders", "group?name=billing", "acls", "users", "quotas", "log-dirs"):
        page.tab.evaluate("address => { location.hash = address; }", f"#/{address}")
        page.see(".banner:visible:has-text('uthoriz')")
    page.photograph("without-rights")
    page.tab.click("button:text-is('Log out')")
    page.see("input[name=password]")
    assert page.problems == []


def test_a_hostile_record_runs_nothing(site: Site) -> None:
    with AdminClient(**site.settings) as admin:
        admin.create_topics([NewTopic("hostile", 1, 3)])
    with Producer(**site.settings) as producer:
        for text in (HOSTILE, BREAKOUT):
            producer.send("hostile", key=text, value=text.encode(), headers={text[:200]: text.encode()})
            producer.send("hostile", value=b'{"html": "%s"}' % text.replace('"', '\\"').encode())
    with Consumer(**site.settings, group_id=HOSTILE) as consumer:
        consumer.assign([TopicPartition("hostile", 0)])
        consumer.commit({TopicPartition("hostile", 0): 1})
    page = site.open_tab()
    page.log_in("admin", "pw")
    page.open("messages?topic=hostile", "hostile messages")
    page.see(".records li >> nth=3")
    for line in page.tab.locator(".records button.line").all():
        line.click()
    page.see("pre:has-text('window.ran = 1')")
    page.photograph("hostile-records")
    assert page.tab.locator("main img, main script, main svg, main a[href^=javascript]").count() == 0
    page.open("groups", "Groups")
    page.see("tr:has-text('onerror')")
    page.tab.click("tr:has-text('onerror') a")
    page.see("h1:has-text('onerror')")
    page.tab.evaluate("text => { location.hash = '#/topic?name=' + encodeURIComponent(text); }", HOSTILE)
    page.see(".banner:visible")
    assert has_run(page) is None
    assert page.problems == []


def test_the_policy_blocks_inline_scripts_even_if_one_got_into_the_page(site: Site) -> None:
    page = site.open_tab()
    page.log_in("admin", "pw")
    page.tab.evaluate("text => { document.querySelector('main').innerHTML = text; }", HOSTILE)
    page.tab.evaluate(
        "() => { const each = document.createElement('script'); each.textContent = 'window.ran = 5';"
        " document.body.append(each); }"
    )
    page.tab.wait_for_timeout(500)
    assert has_run(page) is None
    assert any("Content Security Policy" in problem for problem in page.problems)


def test_a_broker_dies_while_pages_are_open(site: Site) -> None:
    page, reader = site.open_tab(), site.open_tab()
    for each in (page, reader):
        each.log_in("admin", "pw")
    reader.open("messages?topic=orders", "orders messages")
    reader.click("▶ Follow")
    reader.see("text=following")
    victim = site.cluster.brokers[2]
    victim.kill()
    page.see(".tile.warn:has-text('1 down')")
    page.see(".badge.bad:text-is('down')")
    page.see(".tile.warn:has-text('under-replicated')")
    page.photograph("broker-down")
    page.open("topics", "Topics")
    page.see("tr:has-text('orders') .badge.warn")
    page.open("topic?name=orders", "orders")
    page.see("tr >> nth=6")
    page.open("topics", "Topics")
    page.click("Create topic")
    page.fill_dialog("Create", name="meanwhile", partitions="2", replicas="2", configs="")
    with Producer(**site.settings) as producer:
        producer.send("orders", key="late", value=b"while one is down").result()
    reader.see(".records .value:has-text('while one is down')")
    site.cluster.restart_ended()
    page.open("overview", "Overview")
    page.see(".tile:not(.warn):has-text('brokers') strong:text-is('3')")
    page.see(".tile:not(.warn):has-text('under-replicated') strong:text-is('0')")
    assert page.problems == reader.problems == []


def test_a_thousand_topics(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 partitions. It prints how long the page takes."""
    with AdminClient(**site.settings) as admin:
        create_all(admin, [f"many-{number:04}" for number in range(1_000)])
    page = site.open_tab()
    page.log_in("admin", "pw")
    took: dict[str, float] = {}

    @contextmanager
    def measured(what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took[what] = time.perf_counter() - began

    page.open("groups", "Groups")
    with measured("open the list"):
        page.open("topics", "Topics")
        page.see("text=/of 1,00/")
    with measured("filter"):
        page.tab.fill("input[type=search]", "many-0777")
        page.see("text=/^1.1 of 1$/")
    page.see("tr:has-text('many-0777') td:text-is('0 B')")
    page.tab.fill("input[type=search]", "many")
    page.see("text=/^1.50 of 1,000/")
    with measured("next page"):
        page.click("next →")
        page.see("text=/^51.100 of 1,000/")
    with measured("order"):
        page.click("Partitions")
        page.see("text=/^1.50 of 1,000/")
    with measured("open a topic"):
        page.open("topic?name=many-0500", "many-0500")
        page.see("tr >> nth=10")
    with measured("overview"):
        page.open("overview", "Overview")
        page.see(".tile:has-text('partitions')")
    page.photograph("many-topics")
    with capsys.disabled():
        sys.stdout.write(", ".join(f"{what} {1000 * seconds:.0f} ms" for what, seconds in took.items()) + "\n")
    assert page.problems == []
