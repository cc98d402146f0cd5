import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;

/** Prints the records of tests/groupcoord/test_streams_records.py as Kafka encodes them: a key and a value on a line. */
public class StreamsRecords {
    public static void main(String[] arguments) {
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupMetadataRecord("g", 3, 0, -1, Map.of()));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupMetadataRecord(
            "g", 3, 7, 1, Map.of("num.standby.replicas", "1")));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupMemberRecord("g", member()
            .setRackId("r").setUserEndpoint(new StreamsGroupMemberMetadataValue.Endpoint().setHost("x").setPort(65535))
            .setClientTags(Map.of("zone", "a")).build()));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupMemberRecord("g", member().build()));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTargetAssignmentEpochRecord("g", 4));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTargetAssignmentRecord("g", "m",
            new TasksTuple(Map.of("1", Set.of(2, 0), "0", Set.of(1)), Map.of("1", Set.of(1)), Map.of("0", Set.of(0)))));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupCurrentAssignmentRecord("g", member()
            .setMemberEpoch(5).setPreviousMemberEpoch(4).setState(MemberState.UNREVOKED_TASKS)
            .setAssignedTasks(new TasksTupleWithEpochs(
                Map.of("0", Map.of(0, 3, 1, 5)), Map.of("1", Set.of(1)), Map.of("1", Set.of(3))))
            .setTasksPendingRevocation(new TasksTupleWithEpochs(
                Map.of("1", Map.of(2, 4)), Map.of("1", Set.of(0)), Map.of())).build()));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTopologyRecord("g", topology()));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupEpochTombstoneRecord("g"));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupMemberTombstoneRecord("g", "m"));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTargetAssignmentEpochTombstoneRecord("g"));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTargetAssignmentTombstoneRecord("g", "m"));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupCurrentAssignmentTombstoneRecord("g", "m"));
        print(StreamsCoordinatorRecordHelpers.newStreamsGroupTopologyRecordTombstone("g"));
    }

    private static StreamsGroupMember.Builder member() {
        return StreamsGroupMember.Builder.withDefaults("m").setClientId("c").setClientHost("h")
            .setRebalanceTimeoutMs(9).setTopologyEpoch(1).setProcessId("p");
    }

    private static StreamsGroupHeartbeatRequestData.Topology topology() {
        var changelog = new StreamsGroupHeartbeatRequestData.TopicInfo().setName("log").setReplicationFactor((short) 3)
            .setTopicConfigs(List.of(
                new StreamsGroupHeartbeatRequestData.KeyValue().setKey("cleanup.policy").setValue("compact")));
        var repartition = new StreamsGroupHeartbeatRequestData.TopicInfo().setName("mid").setPartitions(4);
        var first = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0").setSourceTopics(
            List.of("in")).setRepartitionSinkTopics(List.of("mid"));
        var second = new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("1").setSourceTopics(
            List.of("in", "side")).setRepartitionSourceTopics(List.of(repartition)).setStateChangelogTopics(
            List.of(changelog)).setCopartitionGroups(List.of(
                new StreamsGroupHeartbeatRequestData.CopartitionGroup().setSourceTopics(List.of((short) 1))
                    .setRepartitionSourceTopics(List.of((short) 0))));
        return new StreamsGroupHeartbeatRequestData.Topology().setEpoch(1).setSubtopologies(List.of(first, second));
    }

    private static void print(CoordinatorRecord record) {
        var serde = new GroupCoordinatorRecordSerde();
        byte[] value = serde.serializeValue(record);
        System.out.println(hex(serde.serializeKey(record)) + " " + (value == null ? "null" : hex(value)));
    }

    private static String hex(byte[] bytes) {
        var text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
