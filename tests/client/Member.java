import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a group with Apache's consumer, until a byte comes in; one JSON object a line says
 * which partitions it has and what it read. Arguments: bootstrap, topic, group, assignor's class.
 */
public class Member {
    private static final TreeSet<Integer> have = new TreeSet<>();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[2]);
        properties.put("group.protocol", "classic");
        properties.put("partition.assignment.strategy", arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "30000");
        properties.put("heartbeat.interval.ms", "100");
        properties.put("auto.commit.interval.ms", "100");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]), new Telling());
            while (!ended()) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("{\"partition\": " + each.partition() + ", \"offset\": "
                        + each.offset() + "}");
                }
            }
        }
    }

    private static boolean ended() throws Exception {
        return System.in.available() > 0;
    }

    private static final class Telling implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> have.add(each.partition()));
            tell();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> have.remove(each.partition()));
            tell();
        }

        private void tell() {
            System.out.println("{\"assigned\": ["
                + have.stream().map(String::valueOf).collect(Collectors.joining(", ")) + "]}");
        }
    }
}
