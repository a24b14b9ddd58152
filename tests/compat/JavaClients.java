import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache's own producer, consumer and admin client; one JSON object a line says what they saw. */
public class JavaClients {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int LARGE_BYTES = 900_000;
    private static final long TIME_MS = 1_700_000_000_000L;
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(common())) {
            topics(admin);
            for (String codec : CODECS) {
                roundTrip(codec);
            }
            large();
            offsets(admin);
            configs(admin);
            deletions(admin);
            mistakes(admin);
        }
    }

    private static Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", "15000");
        properties.put("default.api.timeout.ms", "20000");
        return properties;
    }

    private static Producer<byte[], byte[]> producer(String codec) {
        Properties properties = common();
        properties.put("compression.type", codec);
        properties.put("delivery.timeout.ms", "20000");
        properties.put("linger.ms", "5");
        return new KafkaProducer<>(
            properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Consumer<byte[], byte[]> consumer() {
        Properties properties = common();
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        properties.put("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void topics(Admin admin) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (String codec : CODECS) {
            wanted.add(new NewTopic("java-" + codec, 3, (short) 1));
        }
        wanted.add(new NewTopic("java-large", 1, (short) 1));
        wanted.add(new NewTopic("java-defaults", java.util.Optional.empty(),
            java.util.Optional.empty()).configs(Map.of("retention.ms", "12345")));
        wanted.add(new NewTopic("java-assigned", Map.of(0, List.of(1), 1, List.of(1))));
        admin.createTopics(wanted).all().get();
        Map<String, TopicDescription> found =
            admin.describeTopics(List.of("java-none", "java-assigned")).allTopicNames().get();
        admin.createPartitions(Map.of("java-assigned", NewPartitions.increaseTo(4))).all().get();
        int grown = admin.describeTopics(List.of("java-assigned")).allTopicNames().get()
            .get("java-assigned").partitions().size();
        say("topics",
            "listed", admin.listTopics().names().get().stream()
                .filter(name -> name.startsWith("java-")).sorted().toList(),
            "partitions", found.get("java-none").partitions().size(),
            "leader", found.get("java-none").partitions().get(0).leader().id(),
            "grown", grown,
            "nodes", admin.describeCluster().nodes().get().size(),
            "log_dirs", admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).size(),
            "features", admin.describeFeatures().featureMetadata().get()
                .finalizedFeatures().containsKey("metadata.version"));
    }

    private static void roundTrip(String codec) throws Exception {
        String topic = "java-" + codec;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = producer(codec)) {
            for (int number = 0; number < 300; number++) {
                byte[] key = number % 3 == 0 ? null : bytes("key-" + number);
                byte[] value = number % 5 == 0 ? null : bytes("value-" + number);
                ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, number % 3, TIME_MS + number, key, value);
                record.headers().add("number", bytes("" + number)).add("null", null);
                sent.add(producer.send(record));
            }
            producer.flush();
        }
        Map<String, Integer> places = new HashMap<>();
        for (int number = 0; number < sent.size(); number++) {
            RecordMetadata metadata = sent.get(number).get();
            places.put(metadata.partition() + "/" + metadata.offset(), number);
        }
        List<ConsumerRecord<byte[], byte[]>> read = readAll(topic, 3);
        int same = 0;
        for (ConsumerRecord<byte[], byte[]> record : read) {
            Integer number = places.get(record.partition() + "/" + record.offset());
            same += number != null && sameAs(record, number) ? 1 : 0;
        }
        say("round trip", "codec", codec, "sent", sent.size(), "places", places.size(),
            "read", read.size(), "same", same);
    }

    private static boolean sameAs(ConsumerRecord<byte[], byte[]> record, int number) {
        byte[] key = number % 3 == 0 ? null : bytes("key-" + number);
        byte[] value = number % 5 == 0 ? null : bytes("value-" + number);
        Header[] headers = record.headers().toArray();
        return Arrays.equals(record.key(), key) && Arrays.equals(record.value(), value)
            && record.timestamp() == TIME_MS + number && headers.length == 2
            && Arrays.equals(headers[0].value(), bytes("" + number)) && headers[1].value() == null;
    }

    private static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions) {
        List<TopicPartition> parts = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            parts.add(new TopicPartition(topic, index));
        }
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (Consumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(parts);
            consumer.seekToBeginning(parts);
            Map<TopicPartition, Long> ends = consumer.endOffsets(parts);
            long deadline = System.currentTimeMillis() + 20_000;
            while (parts.stream().anyMatch(part -> consumer.position(part) < ends.get(part))
                && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(read::add);
            }
        }
        return read;
    }

    private static void large() throws Exception {
        byte[] value = new byte[LARGE_BYTES];
        new java.util.Random(5).nextBytes(value);
        try (Producer<byte[], byte[]> producer = producer("none")) {
            producer.send(new ProducerRecord<>("java-large", value)).get();
        }
        List<ConsumerRecord<byte[], byte[]>> read = readAll("java-large", 1);
        say("large", "read", read.size(), "same", Arrays.equals(read.get(0).value(), value));
    }

    private static void offsets(Admin admin) throws Exception {
        TopicPartition part = new TopicPartition("java-none", 1);
        say("offsets",
            "earliest", offset(admin, part, OffsetSpec.earliest()),
            "latest", offset(admin, part, OffsetSpec.latest()),
            "max", offset(admin, part, OffsetSpec.maxTimestamp()),
            "by_time", offset(admin, part, OffsetSpec.forTimestamp(TIME_MS + 100)),
            "too_late", offset(admin, part, OffsetSpec.forTimestamp(TIME_MS * 2)),
            "producers", admin.describeProducers(List.of(part)).all().get().get(part)
                .activeProducers().size());
    }

    private static long offset(Admin admin, TopicPartition part, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(part, spec)).partitionResult(part).get().offset();
    }

    private static void configs(Admin admin) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-defaults");
        Map<String, String> before = values(admin, topic);
        Collection<AlterConfigOp> operations = List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"),
                AlterConfigOp.OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("max.message.bytes", "5000"),
                AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(topic, operations)).all().get();
        Map<String, String> after = values(admin, topic);
        say("configs", "before", before.get("retention.ms"), "after", after.get("retention.ms"),
            "policy", after.get("cleanup.policy"), "limit", after.get("max.message.bytes"),
            "count", after.size(),
            "broker", values(admin, new ConfigResource(ConfigResource.Type.BROKER, "1"))
                .containsKey("log.retention.ms"));
    }

    private static Map<String, String> values(Admin admin, ConfigResource resource)
        throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        Map<String, String> values = new TreeMap<>();
        config.entries().forEach(entry -> values.put(entry.name(), entry.value()));
        return values;
    }

    private static void deletions(Admin admin) throws Exception {
        TopicPartition part = new TopicPartition("java-gzip", 0);
        long low = admin.deleteRecords(Map.of(part, RecordsToDelete.beforeOffset(40)))
            .lowWatermarks().get(part).get().lowWatermark();
        long first = readAll("java-gzip", 1).get(0).offset();
        admin.deleteTopics(List.of("java-assigned")).all().get();
        say("deletions", "low_watermark", low, "first", first,
            "gone", !admin.listTopics().names().get().contains("java-assigned"));
    }

    private static void mistakes(Admin admin) throws Exception {
        List<String> seen = new ArrayList<>();
        NewTopic taken = new NewTopic("java-none", 1, (short) 1);
        seen.add(failure(admin.createTopics(List.of(taken)).all()));
        NewTopic copies = new NewTopic("java-copies", 1, (short) 3);
        seen.add(failure(admin.createTopics(List.of(copies)).all()));
        NewTopic named = new NewTopic("java/none", 1, (short) 1);
        seen.add(failure(admin.createTopics(List.of(named)).all()));
        seen.add(failure(admin.deleteTopics(List.of("java-never")).all()));
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "java-none");
        AlterConfigOp wrong = new AlterConfigOp(
            new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET);
        seen.add(failure(admin.incrementalAlterConfigs(Map.of(topic, List.of(wrong))).all()));
        try (Producer<byte[], byte[]> producer = producer("none")) {
            seen.add(failure(producer.send(
                new ProducerRecord<>("java-defaults", bytes("k"), new byte[9000]))));
            seen.add(failure(producer.send(
                new ProducerRecord<>("java-defaults", (byte[]) null, bytes("no key")))));
        }
        say("mistakes", "seen", seen);
    }

    private static String failure(Future<?> future) throws InterruptedException {
        try {
            future.get();
            return "none";
        } catch (ExecutionException problem) {
            return problem.getCause().getClass().getSimpleName();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** One line of JSON: what it is about, then names and values in turn. */
    private static void say(String what, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"what\": \"" + what + "\"");
        for (int index = 0; index < pairs.length; index += 2) {
            line.append(", \"").append(pairs[index]).append("\": ").append(json(pairs[index + 1]));
        }
        System.out.println(line.append("}"));
    }

    private static String json(Object value) {
        if (value instanceof List<?> items) {
            List<String> parts = new ArrayList<>();
            items.forEach(item -> parts.add(json(item)));
            return "[" + String.join(", ", parts) + "]";
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }
}
