import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.Heartbeat;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** What Apache's MirrorMaker clients make of a cluster: its arguments are bootstrap.servers, the source and a group. */
public class RemoteClusters {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0]);
        System.out.println("upstream " + new TreeSet<>(RemoteClusterUtils.upstreamClusters(properties)));
        System.out.println("heartbeats " + new TreeSet<>(RemoteClusterUtils.heartbeatTopics(properties)));
        System.out.println("checkpoints " + new TreeSet<>(RemoteClusterUtils.checkpointTopics(properties)));
        var offsets = new TreeMap<String, Long>();
        RemoteClusterUtils.translateOffsets(properties, arguments[1], arguments[2], Duration.ofSeconds(20))
            .forEach((TopicPartition tp, org.apache.kafka.clients.consumer.OffsetAndMetadata offset) ->
                offsets.put(tp.toString(), offset.offset()));
        System.out.println("offsets " + offsets);
        for (int at = 3; at < arguments.length; at += 3) {
            byte[] key = HexFormat.of().parseHex(arguments[at + 1]);
            byte[] value = HexFormat.of().parseHex(arguments[at + 2]);
            var record = new ConsumerRecord<>("topic", 0, 0L, key, value);
            Object read = arguments[at].equals("Heartbeat")
                ? Heartbeat.deserializeRecord(record) : Checkpoint.deserializeRecord(record);
            System.out.println(read);
        }
    }
}
