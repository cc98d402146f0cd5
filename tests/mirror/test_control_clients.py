"""The control of a flow reads an internal topic from its beginning when it was created again."""

from __future__ import annotations

import pytest

from raylog.client import partition_reader
from raylog.client.admin.admin_client import AdminClient
from raylog.core.errors import KafkaError
from raylog.mirror.control_clients import ControlClients
from raylog.mirror.formats import MirrorRecord
from tests.client.served import Target
from tests.mirror.flows import create, flow_between
from tests.support.hang import wait_until

TOPIC = "mm2-offset-syncs.A.internal"


def records(count: int) -> list[MirrorRecord]:
    return [MirrorRecord(b"key", b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("transport", ["files", "TCP"])
@pytest.mark.parametrize("count", [0, 2, 3, 4], ids=lambda count: f"{count} records")
def test_a_topic_that_is_created_again(
    east: Target, west: Target, monkeypatch: pytest.MonkeyPatch, transport: str, count: int
) -> None:
    """It had 3 records, all of which were read."""
    if transport == "TCP":
        monkeypatch.setattr(partition_reader, "open_local", lambda *_, **__: None)
    with (
        ControlClients(flow_between(east, west, topics="t")) as clients,
        AdminClient(bootstrap_servers=west.plain) as admin,
    ):
        create(west, TOPIC)
        clients.write(TOPIC, records(3), 0)
        tail = clients.open_tail(TOPIC, in_source=False)
        assert tail.read() == records(3)
        assert tail.read() == []
        admin.delete_topics([TOPIC])
        wait_until(lambda: TOPIC not in {each.name for each in admin.list_topics()})
        create(west, TOPIC)
        if count:
            clients.write(TOPIC, records(count), 0)
        if (transport, count) == ("TCP", 3):
            assert tail.read() == []  # the same end: it is noticed at the next record
            clients.write(TOPIC, records(1), 0)
        with pytest.raises(KafkaError, match="cluster B: "):
            tail.read()
        tail.close()
        again = clients.open_tail(TOPIC, in_source=False)
        assert again.read()[:count] == records(count)
        admin.delete_topics([TOPIC])
