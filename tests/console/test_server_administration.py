"""Groups, transactions, rights, users, quotas and replicas over HTTP, with and without rights."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.consumer.consumer import Consumer
from raylog.client.producer.producer import Producer
from raylog.client.share.share_consumer import ShareConsumer
from raylog.core.ids import TopicPartition
from raylog.mirror.formats import Heartbeat
from raylog.mirror.progress import FlowId, Progress, encode_progress
from raylog.protocol.messages.streams_group_heartbeat import Subtopology, Topology
from tests.console.conftest import Served
from tests.support.console_thread import Browser
from tests.support.streams_group_member import StreamsMember


def iterations(browser: Browser, user: str) -> dict[str, int]:
    """Of each mechanism for which the user has a password."""
    (found,) = browser.get(f"/api/users?filter={user}").json["items"]
    return {each["name"]: each["iterations"] for each in found["mechanisms"]}


@pytest.fixture(scope="module")
def committed(served: Served) -> str:
    """A group that is 7 records behind in one partition."""
    browser = served.browser()
    browser.post("/api/topics", name="lagging", partitions=2)
    with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send("lagging", value=b"x", partition=0)
    with Consumer(bootstrap_servers=served.bootstrap_servers, group_id="billing") as consumer:
        consumer.assign([TopicPartition("lagging", 0)])
        consumer.commit({TopicPartition("lagging", 0): 3})
    with Consumer(bootstrap_servers=served.bootstrap_servers, group_id="spark-1f2e") as consumer:
        consumer.assign([TopicPartition("lagging", 0)])
        consumer.commit({TopicPartition("lagging", 0): 10})
    return "billing"


ENTRY = {
    "principal": "User:carol",
    "operation": "READ",
    "resource_type": "TOPIC",
    "resource_name": "inbox-",
    "pattern_type": "PREFIXED",
    "permission": "ALLOW",
    "host": "*",
}


class TestGroups:
    def test_groups_are_listed_with_their_lag(self, served: Served, committed: str) -> None:
        browser = served.browser()
        plain = browser.get("/api/groups?filter=bill").json["items"]
        assert [(each["name"], each["state"], each["lag"]) for each in plain] == [(committed, "Empty", None)]
        found = browser.get("/api/groups?lags=true").json["items"]
        lags = {each["name"]: (each["lag"], each["topics"]) for each in found}
        assert (lags["billing"], lags["spark-1f2e"]) == ((7, ["lagging"]), (0, ["lagging"]))
        queries = browser.get("/api/groups?spark=true").json["items"]
        assert [each["name"] for each in queries] == ["spark-1f2e"]

    def test_a_group_is_described_and_its_lag_is_measured(self, served: Served, committed: str) -> None:
        browser = served.browser()
        found = browser.get(f"/api/group?name={committed}").json
        assert (found["lag"], found["members"]) == (7, [])
        assert found["partitions"] == [
            {"topic": "lagging", "partition": 0, "committed": 3, "end": 10, "lag": 7, "member": None}
        ]
        assert [each[1] for each in found["points"]] == [7]
        assert browser.get("/api/group?name=none").status == 404

    def test_offsets_are_reset_after_they_were_shown(self, served: Served, committed: str) -> None:
        browser = served.browser()

        def reset(**given: Any) -> Any:
            answer = browser.post("/api/group/offsets", name=committed, **given)
            return (
                {each["partition"]: each["offset"] for each in answer.json} if answer.status == 200 else answer.message
            )

        assert reset(to="shift", at="-2", dry_run=True) == {0: 1}
        assert browser.get(f"/api/group?name={committed}").json["lag"] == 7
        assert reset(to="earliest", topic="lagging") == {0: 0, 1: 0}
        assert browser.get(f"/api/group?name={committed}").json["lag"] == 10
        assert reset(to="offset", at=10**15) == {0: 10, 1: 0}
        assert reset(to="time", at=0) == {0: 0, 1: 0}
        assert reset(to="latest") == {0: 10, 1: 0}
        assert "to='up'" in reset(to="up")
        assert "at: must be given" in reset(to="offset")
        assert "does not exist" in reset(to="latest", topic="none")

    def test_a_group_with_members_keeps_its_offsets(self, served: Served, committed: str) -> None:
        browser = served.browser()
        with Consumer(bootstrap_servers=served.bootstrap_servers, group_id="busy") as consumer:
            consumer.subscribe("lagging")
            while not consumer.assignment():
                consumer.poll(0.1)
            described = browser.get("/api/group?name=busy").json
            assert (described["state"], described["members"][0]["partitions"]) == ("Stable", 2)
            refused = browser.post("/api/group/offsets", name="busy", to="earliest", topic="lagging")
            assert refused.status == 400
            assert browser.delete("/api/group", name="busy").json["error"]["code"] == "NON_EMPTY_GROUP"
        assert browser.delete("/api/group", name="busy").status == 200

    def test_a_share_group_is_shown_with_what_is_not_done_and_begins_elsewhere(self, served: Served) -> None:
        browser = served.browser()
        browser.post("/api/topics", name="shared", partitions=1)
        with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
            for _ in range(5):
                producer.send("shared", value=b"x", partition=0)
        with AdminClient(bootstrap_servers=served.bootstrap_servers) as admin:
            group = ConfigResource(ConfigResourceType.GROUP, "crew")
            admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        with ShareConsumer(bootstrap_servers=served.bootstrap_servers, group_id="crew") as consumer:
            consumer.subscribe(["shared"])
            while not (records := consumer.poll(0.1)):
                pass
            assert len(records) == 5
            [member] = browser.get("/api/group?name=crew").json["members"]
            assert member["partitions"] == 1
        found = browser.get("/api/groups?lags=true&filter=crew").json["items"]
        assert [(each["type"], each["topics"]) for each in found] == [("share", ["shared"])]
        assert browser.post("/api/group/offsets", name="crew", to="offset", at=2).status == 200
        described = browser.get("/api/group?name=crew").json
        assert (described["type"], described["state"], described["lag"]) == ("share", "Empty", 3)
        assert described["partitions"] == [
            {"topic": "shared", "partition": 0, "committed": 2, "end": 5, "lag": 3, "member": None}
        ]
        assert browser.delete("/api/group", name="crew").status == 200

    def test_a_streams_group_is_shown_with_its_tasks(self, served: Served) -> None:
        browser = served.browser()
        browser.post("/api/topics", name="words", partitions=2)
        topology = Topology(subtopologies=(Subtopology(subtopology_id="0", source_topics=("words",)),))
        member = StreamsMember(served.bootstrap_servers, "counters", topology)
        member.settle()
        [listed] = browser.get("/api/groups?filter=counters").json["items"]
        described = browser.get("/api/group?name=counters").json
        assert listed["type"] == described["type"] == "streams"
        assert described["members"][0]["tasks"] == {"active": 2, "standby": 0, "warmup": 0}
        assert [(each["topic"], each["member"]) for each in described["partitions"]] == [("words", "worker")] * 2

    def test_the_lag_of_others_is_not_shown(self, served: Served, committed: str) -> None:
        alice = served.logged_in("alice")
        assert alice.get("/api/groups").json["items"] == []
        for answer in (
            alice.get(f"/api/group?name={committed}"),
            alice.post("/api/group/offsets", name=committed, to="latest"),
            alice.delete("/api/group", name=committed),
        ):
            assert (answer.status, answer.json["error"]["code"]) == (403, "GROUP_AUTHORIZATION_FAILED")


def test_an_open_transaction_is_listed_and_fenced(served: Served) -> None:
    browser = served.browser()
    browser.post("/api/topics", name="ledger")
    with Producer(bootstrap_servers=served.bootstrap_servers, transactional_id="ledger-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("ledger", value=b"x").result()
        (found,) = browser.get("/api/transactions?filter=ledger&state=Ongoing").json["items"]
        assert (found["name"], found["partitions"]) == ("ledger-1", ["ledger-0"])
        assert found["open_ms"] is not None
        assert browser.get("/api/messages?topic=ledger").json["records"] == []
        assert len(browser.get("/api/messages?topic=ledger&isolation=read_uncommitted").json["records"]) == 1
        assert served.logged_in("alice").get("/api/transactions").json["items"] == []
        assert served.logged_in("alice").post("/api/transactions/fence", name="ledger-1").status == 403
        assert browser.post("/api/transactions/fence", name="ledger-1").status == 200
        assert browser.get("/api/transactions?state=Ongoing").json["items"] == []
        producer.close(0)


class TestSecurity:
    def test_entries_are_added_found_and_removed(self, served: Served) -> None:
        browser = served.browser()
        assert browser.post("/api/acls", **ENTRY).status == 200
        assert browser.get("/api/acls?filter=carol+read").json["items"] == [ENTRY]
        assert browser.delete("/api/acls", **ENTRY).json == {"deleted": 1}
        assert browser.get("/api/acls?filter=carol").json["items"] == []
        assert browser.get("/api/acls?filter=alice").json["total"] == 2

    @pytest.mark.parametrize(
        "changed",
        [
            {"operation": "ANY"},
            {"resource_type": "UNKNOWN"},
            {"pattern_type": "MATCH"},
            {"permission": "MAYBE"},
            {"principal": ""},
            {"principal": "carol"},
            {"resource_name": ""},
        ],
    )
    def test_refused_entries(self, served: Served, changed: dict[str, str]) -> None:
        answer = served.browser().post("/api/acls", **{**ENTRY, **changed})
        assert answer.status == 400, answer

    def test_a_password_that_is_not_valid_unicode_is_refused(self, served: Served) -> None:
        half = "\ud800"
        assert served.browser().post("/api/users", name="carol", password=half).status == 400
        assert Browser(served.with_login).log_in("alice", half).status == 400

    def test_users_get_passwords_and_lose_them(self, served: Served) -> None:
        browser = served.browser()
        assert browser.post("/api/users", name="dora", password="pw").status == 200
        assert iterations(browser, "dora") == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        assert browser.post("/api/users", name="dora", password="").status == 400
        assert browser.post("/api/users", name="dora", password="pw", iterations=1).status == 400
        assert browser.delete("/api/users", name="dora").status == 200
        assert browser.get("/api/users?filter=dora").json["items"] == []
        assert browser.delete("/api/users", name="dora").status == 404

    def test_a_new_password_replaces_that_of_every_mechanism_that_the_user_has(self, served: Served) -> None:
        browser = served.browser()
        for name, mechanism, count, expected in (
            ("erna", "SCRAM-SHA-512", 5000, {"SCRAM-SHA-512": 5000}),
            ("erna", "", 6000, {"SCRAM-SHA-512": 6000}),
            ("emil", "", 5000, {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}),
            ("emil", "", 6000, {"SCRAM-SHA-256": 6000, "SCRAM-SHA-512": 6000}),
            ("emil", "SCRAM-SHA-256", 7000, {"SCRAM-SHA-256": 7000, "SCRAM-SHA-512": 6000}),
        ):
            given = {"name": name, "password": "pw", "mechanism": mechanism, "iterations": count}
            assert browser.post("/api/users", **given).status == 200
            assert iterations(browser, name) == expected
        assert browser.post("/api/users", name="emil", password="pw", mechanism="PLAIN").status == 400

    def test_quotas_are_set_and_removed(self, served: Served) -> None:
        browser = served.browser()
        given = {"user": "<default>", "client_id": "app"}
        values = {"producer_byte_rate": "1048576", "request_percentage": "12.5"}
        assert browser.post("/api/quotas", **given, values=values).status == 200
        (found,) = browser.get("/api/quotas").json["items"]
        assert found["entity"] == {"client-id": "app", "user": "<default>"}
        assert found["values"] == {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
        for refused in (
            {**given, "values": {"producer_byte_rate": "fast"}},
            {**given, "values": {"producer_byte_rate": "inf"}},
            {**given, "values": {"no_such_quota": "1"}},
            {**given, "values": {}},
            {"values": values},
        ):
            assert browser.post("/api/quotas", **refused).status == 400
        assert browser.post("/api/quotas", **given, values=dict.fromkeys(values)).status == 200
        assert browser.get("/api/quotas").json["items"] == []

    @pytest.mark.parametrize("path", ["/api/acls", "/api/users", "/api/quotas", "/api/reassignments", "/api/log-dirs"])
    def test_others_see_none_of_it(self, served: Served, path: str) -> None:
        answer = served.logged_in("alice").get(path)
        assert (answer.status, answer.json["error"]["code"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")


class TestPlacement:
    def test_log_directories_and_their_replicas(self, served: Served, committed: str) -> None:
        browser = served.browser()
        (found,) = browser.get("/api/log-dirs").json
        assert found["broker"] == 0
        assert found["size_bytes"] > 0
        page = browser.get(f"/api/log-dirs/replicas?broker=0&path={found['path']}&filter=lagging").json
        assert [each["name"] for each in page["items"]] == ["lagging-0", "lagging-1"]
        assert page["items"][0]["size_bytes"] > page["items"][1]["size_bytes"] == 0
        assert browser.get("/api/log-dirs/replicas?broker=0&path=/none").status == 400
        moved = browser.post("/api/log-dirs/moves", topic="lagging", partition=0, broker=0, path="/none")
        assert moved.json["error"]["code"] == "LOG_DIR_NOT_FOUND"

    def test_reassignments_and_elections(self, served: Served, committed: str) -> None:
        browser = served.browser()
        assert browser.get("/api/reassignments").json["items"] == []
        given = {"topic": "lagging", "partitions": "0,1"}
        assert browser.post("/api/reassignments", **given, replicas="0").status == 200
        unknown = browser.post("/api/reassignments", **given, replicas="0,7")
        assert unknown.json["error"]["code"] == "INVALID_REPLICA_ASSIGNMENT"
        for refused in ({**given, "replicas": ""}, {**given, "replicas": "a"}, {"topic": "lagging", "replicas": "0"}):
            assert browser.post("/api/reassignments", **refused).status == 400
        cancelled = browser.post("/api/reassignments", **given, cancel=True)
        assert cancelled.json["error"]["code"] == "NO_REASSIGNMENT_IN_PROGRESS"
        assert browser.post("/api/elections", topic="lagging").json == {"elected": 0, "refused": {}}
        assert browser.post("/api/elections", topic="none").status == 404


def test_flows_of_mirrors_are_shown(served: Served) -> None:
    browser = served.browser()
    assert browser.get("/api/mirrors").json == []
    flow = FlowId("east", "here")
    browser.post("/api/topics", name=flow.progress_topic, partitions=4, configs={"cleanup.policy": "compact"})
    browser.post("/api/topics", name="heartbeats", configs={"cleanup.policy": "compact"})
    beat = Heartbeat("east", "here", 1).encode()
    with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
        for offset in (5, 120):
            key, value = encode_progress(flow, TopicPartition("orders", 3), Progress(offset))
            producer.send(flow.progress_topic, key=key, value=value, partition=2)
        producer.send("heartbeats", key=beat.key, value=beat.value)
    (found,) = browser.get("/api/mirrors").json
    assert (found["source"], found["targets"], found["by_raylog"]) == ("east", ["here"], True)
    assert [(each["topic"], each["partition"], each["copied"]) for each in found["partitions"]] == [("orders", 3, 120)]
    assert served.logged_in("alice").get("/api/mirrors").json == []
