import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer and the only member of a group, on one partition: "sent OFFSET VALUE" and
 * "read OFFSET VALUE" on standard output, "done 0 0" when all is sent. A line on standard input
 * ends the producer, the end of it the consumer.
 */
public class GroupClients {
    public static void main(String[] arguments) throws Exception {
        AtomicBoolean reading = new AtomicBoolean(true);
        AtomicBoolean sending = new AtomicBoolean(true);
        Thread producer = new Thread(() -> produce(arguments[0], arguments[1], sending));
        Thread consumer = new Thread(() -> consume(arguments[0], arguments[1], arguments[2], reading));
        producer.start();
        consumer.start();
        if (System.in.read() >= 0) {
            sending.set(false);
            producer.join();
            say("done 0 0");
            while (System.in.read() >= 0) {}
        }
        sending.set(false);
        reading.set(false);
        producer.join();
        consumer.join();
    }

    private static Properties common(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", "3000");
        properties.put("reconnect.backoff.max.ms", "100");
        properties.put("metadata.max.age.ms", "1000");
        return properties;
    }

    private static void produce(String bootstrap, String topic, AtomicBoolean sending) {
        Properties properties = common(bootstrap);
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("delivery.timeout.ms", "120000");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; sending.get(); number++) {
                String value = Integer.toString(number);
                producer.send(
                        new ProducerRecord<>(topic, 0, null, value),
                        (metadata, error) ->
                                say(error == null
                                        ? "sent " + metadata.offset() + " " + value
                                        : "failed 0 " + value + ": " + error));
                Thread.sleep(5);
            }
        } catch (InterruptedException error) {
            say("failed 0 " + error);
        }
    }

    private static void consume(
            String bootstrap, String topic, String protocol, AtomicBoolean reading) {
        Properties properties = common(bootstrap);
        properties.put("group.id", topic);
        properties.put("group.protocol", protocol);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (reading.get()) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    say("read " + each.offset() + " " + each.value());
                }
                try {
                    consumer.commitSync(Duration.ofSeconds(20));
                } catch (RetriableException | CommitFailedException error) {
                    // The next poll joins again; what was not committed is read again.
                }
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}
