import java.io.FileReader;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * One instance of a Kafka Streams application; its only argument is a file of properties. It ends cleanly by SIGTERM.
 *
 * Word count: lines -> words, repartitioned -> store "counted" -> topic "counts": word, count.
 *
 * Join: orders (number: "customer amount") -> repartitioned by customer -> joined with the table of the topic "customers"
 * (customer: region) -> topic "enriched" (number: "customer amount region"), and the sum of each region, in the store
 * "summed" -> topic "sums": region, sum.
 */
public final class StreamsApplication {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        countWords(builder);
        joinOrders(builder);
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static void countWords(StreamsBuilder builder) {
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counted").withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> count.toString())
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
    }

    private static void joinOrders(StreamsBuilder builder) {
        KTable<String, String> customers = builder.table("customers", Consumed.with(Serdes.String(), Serdes.String()),
            Materialized.as("customers-table"));
        KStream<String, String> enriched = builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .map((number, order) -> KeyValue.pair(order.split(" ")[0], number + " " + order), Named.as("by-customer"))
            .repartition(Repartitioned.with(Serdes.String(), Serdes.String()).withName("orders-by-customer"))
            .join(customers, (order, region) -> order + " " + region)
            .selectKey((customer, order) -> order.substring(0, order.indexOf(' ')));
        enriched.to("enriched", Produced.with(Serdes.String(), Serdes.String()));
        enriched.map((number, order) -> KeyValue.pair(order.split(" ")[3], Long.parseLong(order.split(" ")[2])))
            .groupByKey(Grouped.with("amounts", Serdes.String(), Serdes.Long()))
            .reduce(Long::sum, Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("summed")
                .withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(sum -> sum.toString())
            .to("sums", Produced.with(Serdes.String(), Serdes.String()));
    }
}
