"""raylog's producer and a group of its consumers, one of librdkafka's among them, while brokers and members are killed.

Each acknowledged record is in the log once, at its offset and in the order of `send`, and the group reads it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.operators.conftest import Site
from tests.operators.load import PARTITIONS
from tests.support.forms import by_form
from tests.support.group_members import Group, Writer, more, own_member, stock_member, until

pytestmark = pytest.mark.slow

KILLS = by_form(3, long=100)
MEMBERS = 3


def test_nothing_is_lost_while_brokers_and_members_are_killed(site: Site, say: Callable[[str], None]) -> None:
    topic, servers = site.new_topic(), site.cluster.bootstrap_servers
    group, writer = Group(servers, topic), Writer(servers, topic, PARTITIONS)
    for member in (own_member, own_member, stock_member):
        group.join(member)
    for number in range(KILLS):
        until(more(lambda: writer.acknowledged), group, "nothing is acknowledged")
        until(more(lambda: [len(group.read)]), group, "the group reads nothing")
        node = site.cluster.leader(topic, number % PARTITIONS)
        node.kill()
        group.end_one(number % (MEMBERS - 1))
        group.join(own_member)
        until(more(lambda: writer.acknowledged), group, "nothing is acknowledged after a kill")
        site.cluster.restart_ended()
        site.cluster.wait_until_healthy(topic)
    expected = writer.end()
    until(lambda: expected.keys() <= group.read.keys(), group, "the group does not read everything")
    group.end()
    assert not group.failures, group.failures
    assert all(group.read[key] == value for key, value in expected.items())
    assert sorted(group.read.values()) == sorted(value for sent in writer.sent for value, _ in sent)
    say(f"{KILLS} brokers and members killed, {len(group.read)} records")
    site.delete_topic(topic)
