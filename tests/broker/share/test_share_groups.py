"""Share groups over the wire: sessions, acknowledgements, locks, restarts, transactions, and what cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from raylog.core.clock import Now
from raylog.core.config import LONG_MAX
from raylog.core.coordinator_partition import coordinator_partition
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import LeaderEpoch, TopicPartition
from raylog.metadata.features import SHARE_FEATURE
from raylog.metadata.records import LeaderChanged
from raylog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from raylog.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raylog.protocol.messages.delete_groups import DeleteGroupsRequest
from raylog.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from raylog.protocol.messages.find_coordinator import FindCoordinatorRequest
from raylog.protocol.messages.list_groups import ListGroupsRequest
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from raylog.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from raylog.sharecoord.records import SharePartitionKey, StateBatch
from raylog.sharecoord.states import Write
from tests.broker.share.members import ACCEPT, GAP, REJECT, RELEASE, RENEW, Batch, ShareMember, configure, started
from tests.broker.test_fetch import count_reads
from tests.support.direct_broker import DirectBroker
from tests.support.transactional_client import TransactionalClient

HUGE = (1 << 63) - 1


@pytest.fixture
def broker() -> DirectBroker:
    return started()


@pytest.fixture
def member(broker: DirectBroker) -> ShareMember:
    """It has joined, and has a session with partition 0, which is empty."""
    made = ShareMember(broker)
    made.join()
    assert made.acquired(0) == {}
    broker.settle()
    return made


def another(broker: DirectBroker, name: str = "n") -> ShareMember:
    made = ShareMember(broker, name)
    made.join()
    return made


def described(broker: DirectBroker, group: str = "g") -> Any:
    return broker.call(ShareGroupDescribeRequest(group_ids=(group,)), version=1).groups[0]


def state(broker: DirectBroker, number: int = 0) -> tuple[int, list[tuple[int, int, int, int]]]:
    """Start offset and batches as the share coordinator has stored them."""
    key = SharePartitionKey("g", broker.broker.image.topics["t"].topic_id, number)
    shard = broker.broker.share_states.of(key, broker.now())
    snapshot = shard.states.states[key].snapshot
    return snapshot.start_offset, [(*batch,) for batch in snapshot.batches]


def produce(broker: DirectBroker, count: int = 3, **more: Any) -> None:
    broker.produce([b"x"] * count, **more)


def waiting(*, min_bytes: int, max_bytes: int) -> ShareFetchRequest:
    """The second request of the session of `member`, which waits for long."""
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=1,
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        max_records=500,
        batch_size=500,
    )


class TestDelivery:
    def test_records_are_acquired_by_one_member_at_a_time(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker)
        other = another(broker)
        assert other.acquired(0, 1) == {0: [(0, 2, 1)]}
        assert member.acquired() == {}
        produce(broker)
        assert member.acquired() == {0: [(3, 5, 1)]}

    def test_a_fetch_that_waits_reads_only_when_there_may_be_min_bytes(
        self, broker: DirectBroker, member: ShareMember, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = count_reads(monkeypatch)
        sent = broker.send(waiting(min_bytes=20_000, max_bytes=1 << 20), version=2, connection=member.connection)
        appends = 0
        while (answer := broker.answer(sent, connection=member.connection)) is None:
            broker.produce([b"x" * 1000])
            appends += 1
        [partition] = answer.responses[0].partitions
        assert [(one.first_offset, one.last_offset) for one in partition.acquired_records] == [(0, appends - 1)]
        assert [size for size in reads if size > 1000] == [len(partition.records)]

    def test_a_fetch_does_not_wait_for_more_bytes_than_max_bytes_lets_through(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        sent = broker.send(waiting(min_bytes=2500, max_bytes=2500), version=2, connection=member.connection)
        broker.produce([b"x" * 1000])
        broker.produce([b"x" * 1000])
        assert broker.answer(sent, connection=member.connection) is None
        broker.produce([b"x" * 1000])
        answer = broker.answer(sent, connection=member.connection)
        assert answer is not None, "the third batch does not fit"
        [partition] = answer.responses[0].partitions
        assert [(one.first_offset, one.last_offset) for one in partition.acquired_records] == [(0, 1)]

    def test_what_is_acknowledged_is_stored(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 6)
        assert member.acquired() == {0: [(0, 5, 1)]}
        types = [ACCEPT, RELEASE, REJECT, GAP]
        assert member.acknowledge(0, (0, 3, types)) == ErrorCode.NONE
        assert state(broker) == (1, [(1, 1, 0, 1), (2, 3, 4, 1)])
        assert member.acquired() == {0: [(1, 1, 2)]}
        assert (
            member.acquired(
                acks={
                    0: [
                        (4, 5, [ACCEPT]),
                    ]
                }
            )
            == {}
        )
        assert member.acquired(acks={0: [(1, 1, [ACCEPT])]}) == {}
        broker.restart()
        again = another(broker)
        assert again.acquired(0) == {}
        produce(broker, 1)
        assert again.acquired() == {0: [(6, 6, 1)]}

    def test_a_record_is_archived_at_the_delivery_limit(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        for delivery in range(1, 6):
            assert member.acquired() == {0: [(0, 0, delivery)]}
            assert member.acknowledge(0, (0, 0, [RELEASE])) == ErrorCode.NONE
        assert member.acquired() == {}

    def test_a_record_that_breaks_each_member_takes_no_others_with_it(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        produce(broker, 8)
        produce(broker, 1)
        got = []
        for number in range(20):
            one = another(broker, f"n{number}")
            acquired = one.acquired(0).get(0, [])
            got.append(acquired)
            if any(first <= 5 <= last for first, last, _ in acquired):
                one.vanish()
                continue
            for first, last, _ in acquired:
                assert one.acknowledge(0, (first, last, [ACCEPT])) == ErrorCode.NONE
        assert got[:4] == [[(0, 8, 1)], [(0, 8, 2)], [(0, 8, 3)], [(0, 3, 4)]]
        assert got[4:8] == [[(4, 5, 4)], [(4, 4, 5)], [(5, 5, 5)], [(6, 6, 4)]]
        assert state(broker) == (9, [])

    def test_counts_survive_a_restart(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        assert member.acquired() == {0: [(0, 0, 1)]}
        assert member.acknowledge(0, (0, 0, [RELEASE])) == ErrorCode.NONE
        broker.restart(clean=False)
        assert another(broker).acquired(0) == {0: [(0, 0, 2)]}

    def test_a_lock_times_out_unless_it_is_renewed(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 2)
        assert member.acquired() == {0: [(0, 1, 1)]}
        broker.pass_time(20_000)
        assert member.acknowledge(0, (1, 1, [RENEW]), is_renew_ack=True) == ErrorCode.NONE
        broker.pass_time(15_000)
        assert another(broker).acquired(0) == {0: [(0, 0, 2)]}
        assert member.acknowledge(0, (0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        assert member.acknowledge(0, (1, 1, [ACCEPT])) == ErrorCode.NONE
        assert state(broker) == (0, [(0, 0, 0, 1), (1, 1, 2, 1)])

    def test_a_lost_member_and_one_that_leaves(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        assert member.acquired() == {0: [(0, 0, 1)]}
        member.vanish()
        other = another(broker)
        assert other.acquired(0) == {0: [(0, 0, 2)]}, "that delivery may have broken the member"
        assert other.acknowledge(0, epoch=-1) == ErrorCode.NONE
        assert len(broker.broker.share_partitions) == len(broker.broker.share_sessions) == 0
        assert another(broker, "o").acquired(0) == {0: [(0, 0, 2)]}, "an orderly member has not processed it"

    def test_a_member_that_is_lost_while_it_leaves(
        self, broker: DirectBroker, member: ShareMember, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its last fetch waits for the share coordinator when the connection breaks."""
        produce(broker, 4)
        assert member.acquired() == {0: [(0, 3, 1)]}

        def not_available(*_: object) -> None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        accepted = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=(ACCEPT,))
        partition = FetchPartition(partition_index=0, acknowledgement_batches=(accepted,))
        leaves = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=-1,
            topics=(FetchTopic(topic_id=member.topic_id, partitions=(partition,)),),
        )
        with monkeypatch.context() as patch:
            patch.setattr(broker.broker.persister, "_coordinator", not_available)
            sent = broker.send(leaves, version=2, connection=member.connection)
            assert broker.answer(sent, connection=member.connection) is None
            member.vanish()
        broker.pass_time(100)
        assert len(broker.broker.share_partitions) == len(broker.broker.share_sessions) == 0
        assert another(broker).acquired(0) == {0: [(1, 3, 1)]}

    @pytest.mark.parametrize(("start_offset", "again"), [(0, [(0, 1, 1), (5, 9, 1)]), (8, [(5, 9, 1)])])
    def test_what_was_done_with_lost_records_says_nothing_of_those_in_their_place(
        self, broker: DirectBroker, member: ShareMember, start_offset: int, again: list[tuple[int, int, int]]
    ) -> None:
        """After an unclean election the log ends before what is stored."""
        produce(broker, 5)
        assert member.acknowledge(0, epoch=-1) == ErrorCode.NONE
        key = SharePartitionKey("g", member.topic_id, 0)
        shard = broker.broker.share_states.of(key, broker.now())
        done = StateBatch(max(start_offset, 2), 9, 2, 1)
        epochs = shard.states.states[key].snapshot
        write = Write(key, epochs.state_epoch, epochs.leader_epoch, start_offset, 0, (done,))
        shard.append(shard.states.write(write, now_ms=0).records, broker.now())
        other = another(broker)
        assert other.acquired(0) == ({} if start_offset else {0: [(0, 1, 1)]})
        broker.restart(clean=False)
        produce(broker, 5)
        assert another(broker).acquired(0) == {0: again}

    def test_record_limits(self, broker: DirectBroker, member: ShareMember) -> None:
        for _ in range(3):
            produce(broker, 4)
        assert member.acquired(max_records=5, share_acquire_mode=1) == {0: [(0, 4, 1)]}
        assert member.acquired(max_records=1) == {0: [(5, 7, 1)]}
        response = member.fetch(max_records=1, share_acquire_mode=1)
        (data,) = response.responses[0].partitions
        assert [(each.first_offset, each.last_offset) for each in data.acquired_records] == [(8, 8)]
        assert data.records[7] == 8, "the records begin with the batch that was acquired"

    def test_a_member_does_not_read_faster_than_its_quota(self, broker: DirectBroker, member: ShareMember) -> None:
        entity = (EntityData(entity_type="user", entity_name="ANONYMOUS"),)
        quota = RequestEntryData(entity=entity, ops=(OpData(key="consumer_byte_rate", value=100.0),))
        broker.call(AlterClientQuotasRequest(entries=(quota,)))
        began_ms, size_bytes = broker.now().monotonic_ms, 0
        done: dict[int, list[Batch]] = {}
        for _ in range(100):
            produce(broker, 30)
            [data] = member.fetch(acks=done, max_wait_ms=0).responses[0].partitions
            done = {0: [(each.first_offset, each.last_offset, (ACCEPT,)) for each in data.acquired_records]}
            size_bytes += len(data.records)
            broker.pass_time(1)
            while member.connection.throttled:
                broker.pass_time(200)
        passed_ms = broker.now().monotonic_ms - began_ms
        assert 90 < 1000 * size_bytes / passed_ms < 110

    def test_aborted_records_are_not_delivered_to_a_group_that_reads_committed_ones(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        configure(broker, "g", **{"share.isolation.level": "read_committed"})
        client = TransactionalClient(broker.cluster)
        assert client.init() == ErrorCode.NONE
        client.write(TopicPartition("t", 0), b"a", b"b")
        produce(broker, 1)
        assert member.acquired() == {}, "the transaction is open"
        assert client.end(committed=False) == ErrorCode.NONE
        broker.pass_time(200)
        produce(broker, 1)
        assert member.acquired() == {0: [(2, 2, 1), (4, 4, 1)]}
        assert member.acknowledge(0, (2, 4, [ACCEPT, GAP, ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        assert member.acknowledge(0, (2, 2, [ACCEPT]), (4, 4, [ACCEPT])) == ErrorCode.NONE

    def test_a_fetch_waits_for_records_and_for_released_ones(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        other = another(broker)
        assert other.acquired(0) == {0: [(0, 0, 1)]}
        member.session_epoch += 1
        request = ShareFetchRequest(
            group_id="g", member_id="m", share_session_epoch=1, max_wait_ms=5000, min_bytes=1, max_records=9
        )
        sent = broker.send(request, version=2, connection=member.connection)
        broker.settle()
        assert other.acknowledge(0, (0, 0, [RELEASE])) == ErrorCode.NONE
        response = broker.answer(sent, connection=member.connection)
        assert response.responses[0].partitions[0].acquired_records[0].delivery_count == 2

    def test_latest_is_where_the_group_began(self, broker: DirectBroker) -> None:
        configure(broker, "g", **{"share.auto.offset.reset": "latest"})
        produce(broker, 3)
        member = ShareMember(broker)
        member.join()
        assert member.acquired(0) == {}
        produce(broker, 1)
        member.vanish()
        broker.restart()
        assert another(broker).acquired(0) == {0: [(3, 3, 1)]}, "the record came after the group"


class TestSessions:
    def test_epochs(self, broker: DirectBroker, member: ShareMember) -> None:
        member.session_epoch = 5
        assert member.fetch().error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert ShareMember(broker, "other").acknowledge(0, epoch=3) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge(0, epoch=0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        member.session_epoch = -1
        assert member.fetch(acks={0: [(0, 0, [ACCEPT])]}).error_code == ErrorCode.INVALID_REQUEST
        member.session_epoch = -1
        assert member.fetch(0).error_code == ErrorCode.NONE

    def test_there_is_a_limit(self) -> None:
        broker = started(**{"group.share.max.share.sessions": 2})
        members = [ShareMember(broker, name) for name in "abc"]
        codes = [each.fetch().error_code for each in members]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.SHARE_SESSION_LIMIT_REACHED]
        members[0].vanish()
        members[2].session_epoch = -1
        assert members[2].fetch().error_code == ErrorCode.NONE

    def test_a_thousand(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        for number in range(1000):
            ShareMember(broker, f"m{number}").fetch(0)
        assert len(broker.broker.share_sessions) == 1001
        assert len(broker.broker.share_partitions) == 1


class TestHostileAcknowledgements:
    @pytest.mark.parametrize(
        "batches",
        [
            [(0, 1, [])],
            [(0, 1, [ACCEPT] * 3)],
            [(1, 0, [ACCEPT])],
            [(-1, 0, [ACCEPT])],
            [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
            [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(0, 0, [RENEW])],
            [(0, HUGE, [ACCEPT])],
            [(0, HUGE - 1, [REJECT])],
        ],
    )
    def test_they_are_refused(self, broker: DirectBroker, member: ShareMember, batches: Any) -> None:
        produce(broker, 3)
        assert member.acquired() == {0: [(0, 2, 1)]}
        assert member.acknowledge(0, *batches) == ErrorCode.INVALID_REQUEST
        assert member.acknowledge(0, (0, 2, [ACCEPT])) == ErrorCode.NONE

    @pytest.mark.parametrize("offset", [3, 1000, HUGE])
    def test_offsets_that_were_not_acquired(self, broker: DirectBroker, member: ShareMember, offset: int) -> None:
        produce(broker, 3)
        assert member.acquired() == {0: [(0, 2, 1)]}
        assert member.acknowledge(0, (0, 0, [ACCEPT]), (offset, offset, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        assert member.acknowledge(0, (0, 2, [ACCEPT])) == ErrorCode.NONE

    def test_limits_of_a_fetch(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 3)
        for more in ({"max_records": 0}, {"max_records": -1}, {"max_bytes": 0}, {"max_bytes": -5}):
            assert member.acquired(**more) == {}
        assert member.fetch(share_acquire_mode=7).error_code == ErrorCode.INVALID_REQUEST
        member.session_epoch -= 1
        assert member.acquired(max_wait_ms=-1, min_bytes=-1, batch_size=-1) == {0: [(0, 2, 1)]}

    def test_unknown_topics_and_partitions(self, broker: DirectBroker, member: ShareMember) -> None:
        response = member.fetch(-1, 7, (1 << 31) - 1)
        codes = {each.partition_index: each.error_code for each in response.responses[0].partitions}
        assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class TestGroups:
    def test_description_and_lists(self, broker: DirectBroker, member: ShareMember) -> None:
        member.beat()
        shown = described(broker)
        assert (shown.group_state, shown.assignor_name) == ("Stable", "simple")
        (one,) = shown.members
        assert one.assignment.topic_partitions[0].partitions == (0, 1)
        (listed,) = broker.call(ListGroupsRequest(types_filter=("share",)), version=5).groups
        assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "share", "share")
        assert described(broker, "other").error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_group_is_deleted_with_its_state(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 1)
        assert member.acquired() == {0: [(0, 0, 1)]}
        assert member.acknowledge(0, (0, 0, [ACCEPT])) == ErrorCode.NONE
        delete = DeleteGroupsRequest(groups_names=("g", "other"))
        results = broker.call(delete).results
        assert [each.error_code for each in results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        assert member.acknowledge(0, epoch=-1) == ErrorCode.NONE
        member.beat(member_epoch=-1)
        assert broker.call(delete).results[0].error_code == ErrorCode.NONE
        broker.restart()
        assert described(broker).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert another(broker).acquired(0) == {0: [(0, 0, 1)]}, "the new group begins anew"

    @pytest.mark.parametrize("what", ["group", "offsets"])
    def test_a_deletion_that_is_cut_off_leaves_a_group_that_delivers(
        self, broker: DirectBroker, member: ShareMember, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The state is deleted, and the group's log cannot be written just then."""
        produce(broker, 1)
        assert member.acquired() == {0: [(0, 0, 1)]}
        assert member.acknowledge(0, (0, 0, [ACCEPT])) == ErrorCode.NONE
        assert member.acknowledge(0, epoch=-1) == ErrorCode.NONE
        member.beat(member_epoch=-1)
        delete_all = broker.broker.persister.delete_all
        (share,) = [each.share for each in broker.broker.groups._shards.loaded.values() if each.share.groups]

        def deleted_and_then(group: str, partitions: Any, on_results: Any, now: Now) -> None:
            def full_disk(*_: object) -> None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

            def deleted(errors: Any, now: Now) -> None:
                with monkeypatch.context() as patch:
                    patch.setattr(share, "_append", full_disk)
                    on_results(errors, now)

            delete_all(group, partitions, deleted, now)

        monkeypatch.setattr(broker.broker.persister, "delete_all", deleted_and_then)
        if what == "group":
            (result,) = broker.call(DeleteGroupsRequest(groups_names=("g",))).results
            assert result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            topic = DeleteShareGroupOffsetsRequestTopic(topic_name="t")
            response = broker.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=(topic,)))
            assert response.responses[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert another(broker).acquired(0) == {0: [(0, 0, 1)]}, "it begins anew"

    def test_an_answer_for_a_former_shard_does_not_harm_the_log(
        self, broker: DirectBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Partitions were being initialized when this broker was elected once more."""
        held: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                broker.broker.persister, "initialize_all", lambda *_, on_results, **__: held.append(on_results)
            )
            member = ShareMember(broker, group="other")
            member.beat()
        assert len(held) == 1
        topic = broker.broker.image.topics["__consumer_offsets"]
        number = coordinator_partition("other", len(topic.partitions))
        epoch = LeaderEpoch(topic.partitions[number].leader_epoch + 1)
        elected = LeaderChanged(topic.topic_id, number, leader=broker.broker_id, leader_epoch=epoch)
        broker.broker.image.replay(elected)
        broker.broker.table.metadata_changed(elected, broker.now())
        broker.settle()
        held[0]({}, broker.now())
        assert broker.broker.partitions[TopicPartition("__consumer_offsets", number)].log.offline_reason is None
        member.join()

    def test_kinds_of_groups_do_not_mix(self, broker: DirectBroker, member: ShareMember) -> None:
        def consumer(group: str) -> ErrorCode:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="c",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=("t",),
                topic_partitions=(),
            )
            code: ErrorCode = broker.call(request, version=1).error_code
            return code

        assert consumer("g") == ErrorCode.GROUP_ID_NOT_FOUND
        assert consumer("c") == ErrorCode.NONE
        assert ShareMember(broker, "s", group="c").beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_member_without_heartbeats_is_removed(self, broker: DirectBroker, member: ShareMember) -> None:
        broker.pass_time(50_000)
        assert described(broker).group_state == "Empty"
        assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_they_are_refused_below_their_level(self, broker: DirectBroker, member: ShareMember) -> None:
        broker.broker.image.feature_levels[SHARE_FEATURE] = 0
        codes = [member.beat().error_code, member.fetch().error_code, member.acknowledge(0, epoch=-1)]
        assert codes == [ErrorCode.UNSUPPORTED_VERSION] * 3

    def test_the_coordinator_of_a_share_partition(self, broker: DirectBroker, member: ShareMember) -> None:
        good = SharePartitionKey("a:b", UUID(int=5), 3).text
        keys = (good, "g", "g:t:0", "", f"g:{'A' * 22}:-1", f"{good}9999999999999999")
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
        found = broker.call(request, version=6).coordinators
        assert [each.error_code for each in found] == [ErrorCode.NONE] + [ErrorCode.INVALID_REQUEST] * 5

    def test_a_deleted_topic_leaves_no_state(self, broker: DirectBroker, member: ShareMember) -> None:
        key = SharePartitionKey("g", member.topic_id, 0)
        states = broker.broker.share_states.of(key, broker.now()).states
        assert key in states.states
        broker.cluster.delete_topic("t")
        broker.settle()
        assert key not in states.states
        member.beat()
        assert member.assigned == {}


class TestOffsets:
    def describe(self, broker: DirectBroker, *numbers: int, group: str = "g") -> Any:
        topics = (DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=numbers),) if numbers else None
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
        return broker.call(DescribeShareGroupOffsetsRequest(groups=(wanted,)), version=0).groups[0]

    def offsets(self, broker: DirectBroker) -> dict[int, int]:
        return {each.partition_index: each.start_offset for each in self.describe(broker).topics[0].partitions}

    def alter(self, broker: DirectBroker, offset: int, *, number: int = 0, topic: str = "t", group: str = "g") -> Any:
        part = AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        topics = (AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=(part,)),)
        response = broker.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))
        return response.error_code or response.responses[0].partitions[0].error_code

    def delete(self, broker: DirectBroker, topic: str = "t") -> Any:
        topics = (DeleteShareGroupOffsetsRequestTopic(topic_name=topic),)
        response = broker.call(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics))
        return response.error_code or response.responses[0].error_code

    def leave(self, member: ShareMember) -> None:
        assert member.acknowledge(0, epoch=-1) == ErrorCode.NONE
        assert member.beat(member_epoch=-1).error_code == ErrorCode.NONE

    def lags(self, broker: DirectBroker) -> dict[int, int]:
        wanted = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        (group,) = broker.call(DescribeShareGroupOffsetsRequest(groups=(wanted,)), version=1).groups
        return {each.partition_index: each.lag for each in group.topics[0].partitions}

    def test_the_lag_is_what_is_not_done(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 10)
        assert member.acquired() == {0: [(0, 9, 1)]}
        assert member.acknowledge(0, (0, 2, [ACCEPT]), (5, 6, [REJECT]), (8, 9, [RELEASE])) == ErrorCode.NONE
        assert self.offsets(broker)[0] == 3
        assert self.lags(broker) == {0: 5, 1: -1}  # of 7 records from the start offset on, 2 are done
        self.leave(member)
        assert self.alter(broker, 4) == ErrorCode.NONE
        assert self.lags(broker)[0] == 6  # what was done is forgotten
        assert self.alter(broker, 99) == ErrorCode.NONE
        assert self.lags(broker)[0] == 0

    def test_the_lag_of_a_state_that_an_earlier_version_stored_is_encoded(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        """With a start offset that is refused now."""
        produce(broker, 5)
        assert member.acquired() == {0: [(0, 4, 1)]}
        topic_id = broker.broker.image.topics["t"].topic_id
        key = SharePartitionKey("g", topic_id, 0)
        states = broker.broker.share_states.of(key, broker.now()).states
        states.replay(replace(states.states[key].snapshot, start_offset=-(1 << 63)))
        assert self.lags(broker)[0] == LONG_MAX

    def test_they_are_described_altered_and_deleted(self, broker: DirectBroker, member: ShareMember) -> None:
        produce(broker, 5)
        assert self.offsets(broker) == {0: 0, 1: -1}
        assert member.acquired() == {0: [(0, 4, 1)]}
        assert member.acknowledge(0, (0, 4, [ACCEPT])) == ErrorCode.NONE
        assert self.offsets(broker) == {0: 5, 1: -1}
        assert self.alter(broker, 1) == self.delete(broker) == ErrorCode.NON_EMPTY_GROUP
        self.leave(member)
        assert self.alter(broker, 2) == ErrorCode.NONE
        assert self.offsets(broker) == {0: 2, 1: -1}
        other = another(broker)
        assert other.acquired(0) == {0: [(2, 4, 1)]}
        self.leave(other)
        assert self.delete(broker) == ErrorCode.NONE
        assert self.describe(broker).topics == ()
        last = another(broker, "o")
        assert last.acquired(0) == {0: [(0, 4, 1)]}, "it begins anew"
        assert last.acknowledge(0, (0, 4, [ACCEPT])) == ErrorCode.NONE

    def test_a_new_group_begins_at_offsets_that_were_set_before_it_had_members(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        """As kafka-share-groups --reset-offsets and franz-go do."""
        produce(broker, 5)
        assert self.alter(broker, 1, topic="other", group="new") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert described(broker, "new").error_code == ErrorCode.GROUP_ID_NOT_FOUND, "nothing was set"
        assert self.alter(broker, 3, group="new") == ErrorCode.NONE
        assert described(broker, "new").group_state == "Empty"
        broker.restart()
        assert [each.start_offset for each in self.describe(broker, 0, 1, group="new").topics[0].partitions] == [3, -1]
        first = ShareMember(broker, "n", group="new")
        first.join()
        assert first.acquired(0) == {0: [(3, 4, 1)]}

    def test_only_share_groups_have_start_offsets(self, broker: DirectBroker, member: ShareMember) -> None:
        position = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="t", partitions=(position,))
        broker.call(OffsetCommitRequest(group_id="other", topics=(topic,)), version=9)
        assert self.alter(broker, 1, group="other") == ErrorCode.GROUP_ID_NOT_FOUND
        assert self.alter(broker, 1, group="") == ErrorCode.INVALID_GROUP_ID

    def test_a_leader_that_does_not_know_of_the_new_offset_is_fenced(
        self, broker: DirectBroker, member: ShareMember
    ) -> None:
        produce(broker, 5)
        assert member.acquired() == {0: [(0, 4, 1)]}
        assert member.beat(member_epoch=-1).error_code == ErrorCode.NONE
        assert self.alter(broker, 3) == ErrorCode.NONE
        assert member.acknowledge(0, (0, 4, [ACCEPT])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert self.offsets(broker)[0] == 3
        assert another(broker).acquired(0) == {0: [(3, 4, 1)]}

    @pytest.mark.parametrize("offset", [6, 1 << 40, HUGE])
    def test_an_offset_after_the_end(self, broker: DirectBroker, member: ShareMember, offset: int) -> None:
        produce(broker, 5)
        self.leave(member)
        assert self.alter(broker, offset) == ErrorCode.NONE
        other = another(broker)
        assert other.acquired(0) == {}
        produce(broker, 1)
        assert other.acquired() == {0: [(5, 5, 1)]}

    def test_what_cannot_be(self, broker: DirectBroker, member: ShareMember) -> None:
        (unknown,) = self.describe(broker, 0, group="other").topics[0].partitions
        assert (unknown.error_code, unknown.start_offset) == (ErrorCode.NONE, -1)
        shown = {each.partition_index: each.error_code for each in self.describe(broker, 0, 7, -1).topics[0].partitions}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert shown == {0: ErrorCode.NONE, 7: missing, -1: missing}
        self.leave(member)
        assert self.alter(broker, -1) == ErrorCode.INVALID_REQUEST
        assert self.alter(broker, 1, number=9) == self.alter(broker, 1, topic="other") == missing
        assert self.delete(broker, "other") == missing
