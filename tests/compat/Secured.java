import java.io.FileInputStream;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache's clients by each file of properties that is named: `good` files write a record and read
 * it again, `bad` ones ask for the cluster. One JSON object a line says what came of it.
 */
public class Secured {
    private static final int TIMEOUT_MS = 30_000;
    private static final int BAD_TIMEOUT_MS = 4_000;

    public static void main(String[] files) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<String>> answers = new ArrayList<>();
        for (String file : files) {
            answers.add(threads.submit(() -> tried(Path.of(file))));
        }
        threads.shutdown();
        for (Future<String> each : answers) {
            System.out.println(each.get());
        }
    }

    private static String tried(Path file) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream input = new FileInputStream(file.toFile())) {
            properties.load(input);
        }
        String url = properties.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (url != null) {
            allow(url);
        }
        String name = file.getFileName().toString().replace(".properties", "");
        boolean good = file.getParent().getFileName().toString().equals("good");
        String said;
        try {
            said = good ? exchanged(properties, "java-" + name) : asked(properties);
        } catch (ExecutionException error) {
            said = error.getCause().toString();
        } catch (Exception error) {
            said = error.toString();
        }
        said = said.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ");
        return "{\"name\": \"" + name + "\", \"said\": \"" + said + "\"}";
    }

    /** Since 4.0 each URL of tokens must be named by a property of the virtual machine. */
    private static synchronized void allow(String url) {
        String option = "org.apache.kafka.sasl.oauthbearer.allowed.urls";
        String allowed = System.getProperty(option);
        System.setProperty(option, allowed == null ? url : allowed + "," + url);
    }

    private static String asked(Properties properties) throws Exception {
        properties.put("request.timeout.ms", String.valueOf(BAD_TIMEOUT_MS));
        properties.put("default.api.timeout.ms", String.valueOf(BAD_TIMEOUT_MS));
        try (Admin admin = Admin.create(properties)) {
            return "reached " + admin.describeCluster().clusterId().get();
        }
    }

    private static String exchanged(Properties properties, String topic) throws Exception {
        properties.put("auto.offset.reset", "earliest");
        StringSerializer writer = new StringSerializer();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, writer, writer)) {
            producer.send(new ProducerRecord<>(topic, 0, "key", "of " + topic))
                .get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        StringDeserializer reader = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, reader, reader)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            long end = System.currentTimeMillis() + TIMEOUT_MS;
            while (System.currentTimeMillis() < end) {
                for (var each : consumer.poll(Duration.ofMillis(500))) {
                    return each.value();
                }
            }
        }
        return "nothing came";
    }
}
