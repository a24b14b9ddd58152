import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache's share consumer and admin client; one JSON object a line says what they saw. */
public class Shares {
    private static final long WAIT_MS = 60_000; // on a busy machine too
    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Properties common = new Properties();
        common.put("bootstrap.servers", bootstrap);
        try (Admin made = Admin.create(common)) {
            admin = made;
            implicit();
            explicit();
            attempts();
            expiry();
            renewal();
            exact();
            sharing();
            committed();
            offsets();
        }
    }

    /** All that is polled is accepted with the next poll. */
    private static void implicit() throws Exception {
        prepare("implicit", 2, 20);
        List<String> values = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit", "implicit")) {
            until(() -> {
                consumer.poll(Duration.ofMillis(100)).forEach(each -> values.add(each.value()));
                return values.size() >= 20;
            });
            consumer.commitSync();
        }
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit", "implicit")) {
            consumer.poll(Duration.ofMillis(1000)).forEach(each -> values.add(each.value()));
        }
        say("implicit", "count", values.size(), "different", new TreeSet<>(values).size());
    }

    /** Accepted and rejected records are gone, released ones come again. */
    private static void explicit() throws Exception {
        prepare("explicit", 1, 9);
        List<String> seen = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer =
                consumer("explicit", "explicit", "share.acknowledgement.mode", "explicit")) {
            List<ConsumerRecord<String, String>> first = poll(consumer, 9);
            for (ConsumerRecord<String, String> each : first) {
                AcknowledgeType[] types = {
                    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT};
                consumer.acknowledge(each, types[(int) (each.offset() % 3)]);
            }
            consumer.commitSync();
            for (ConsumerRecord<String, String> each : poll(consumer, 3)) {
                seen.add(each.offset() + "/" + each.deliveryCount().get());
                consumer.acknowledge(each);
            }
            consumer.commitSync();
        }
        say("explicit", "again", seen.toString());
    }

    /** How many are delivered together, and how often: until the last attempt, which is alone. */
    private static void attempts() throws Exception {
        prepare("attempts", 1, 8);
        List<String> polls = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer =
                consumer("attempts", "attempts", "share.acknowledgement.mode", "explicit")) {
            int[] accepted = {0};
            until(() -> {
                List<String> poll = new ArrayList<>();
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                    poll.add(each.offset() + "/" + each.deliveryCount().get());
                    consumer.acknowledge(each, AcknowledgeType.RELEASE);
                    accepted[0] += each.deliveryCount().get() == 5 ? 1 : 0;
                }
                consumer.commitSync();
                if (!poll.isEmpty()) {
                    polls.add(String.join(" ", poll));
                }
                return accepted[0] == 8;
            });
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                polls.add("more " + each.offset());
            }
        }
        say("attempts", "polls", String.join(", ", polls));
    }

    /** A member that says nothing loses its records when their time is up. */
    private static void expiry() throws Exception {
        prepare("expiry", 1, 3);
        config("expiry", "share.record.lock.duration.ms", "1000");
        List<String> seen = new ArrayList<>();
        try (KafkaShareConsumer<String, String> slow =
                        consumer("expiry", "expiry", "share.acknowledgement.mode", "explicit");
                KafkaShareConsumer<String, String> other = consumer("expiry", "expiry")) {
            poll(slow, 3);
            poll(other, 3).forEach(each ->
                    seen.add(each.offset() + "/" + each.deliveryCount().get()));
            other.commitSync();
        }
        say("expiry", "seen", seen.toString());
    }

    /** A member that renews keeps its records. */
    private static void renewal() throws Exception {
        prepare("renewal", 1, 1);
        config("renewal", "share.record.lock.duration.ms", "1000");
        int others = 0;
        String last;
        try (KafkaShareConsumer<String, String> slow =
                        consumer("renewal", "renewal", "share.acknowledgement.mode", "explicit");
                KafkaShareConsumer<String, String> other = consumer("renewal", "renewal")) {
            ConsumerRecord<String, String> held = poll(slow, 1).get(0);
            other.poll(Duration.ofMillis(100));
            for (int round = 0; round < 6; round++) {
                slow.acknowledge(held, AcknowledgeType.RENEW);
                slow.commitSync();
                others += other.poll(Duration.ofMillis(300)).count();
                slow.poll(Duration.ofMillis(50));
            }
            slow.acknowledge(held, AcknowledgeType.ACCEPT);
            last = slow.commitSync().values().stream().findFirst().flatMap(x -> x)
                    .map(each -> each.getClass().getSimpleName()).orElse("none");
        }
        say("renewal", "others", others, "last", last);
    }

    /** In the mode record_limit a poll is no larger than asked for. */
    private static void exact() throws Exception {
        prepare("exact", 1, 10);
        List<Integer> sizes = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer("exact", "exact",
                "share.acquire.mode", "record_limit", "max.poll.records", "4")) {
            int[] total = {0};
            until(() -> {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0) {
                    sizes.add(count);
                }
                total[0] += count;
                return total[0] == 10;
            });
        }
        say("exact", "sizes", sizes.toString());
    }

    /** Two members of one partition: together they see every record once. */
    private static void sharing() throws Exception {
        prepare("sharing", 1, 0);
        List<String> values = new ArrayList<>();
        try (KafkaShareConsumer<String, String> one =
                        consumer("sharing", "sharing",
                                "share.acquire.mode", "record_limit", "max.poll.records", "1");
                KafkaShareConsumer<String, String> two =
                        consumer("sharing", "sharing",
                                "share.acquire.mode", "record_limit", "max.poll.records", "1")) {
            until(() -> {
                one.poll(Duration.ofMillis(50));
                two.poll(Duration.ofMillis(50));
                return members("sharing") == 2;
            });
            produce("sharing", 30);
            int[] counts = {0, 0};
            until(() -> {
                counts[0] += add(one, values);
                counts[1] += add(two, values);
                return values.size() >= 30;
            });
            say("sharing", "different", new TreeSet<>(values).size(), "total", values.size(),
                    "both", counts[0] > 0 && counts[1] > 0);
        }
    }

    /** A group with read_committed gets no record of a transaction that was aborted. */
    private static void committed() throws Exception {
        prepare("committed", 1, 0);
        config("committed", "share.isolation.level", "read_committed");
        Properties more = producerConfig();
        more.put("transactional.id", "shares");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(more)) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("committed", 0, null, "v" + number)).get();
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        List<String> values = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer("committed", "committed")) {
            until(() -> {
                add(consumer, values);
                return values.size() >= 3;
            });
            add(consumer, values);
        }
        say("committed", "values", values.toString());
    }

    /** Groups are listed, described, moved and deleted. */
    private static void offsets() throws Exception {
        TopicPartition partition = new TopicPartition("implicit", 0);
        ShareGroupDescription group = admin.describeShareGroups(List.of("implicit"))
                .describedGroups().get("implicit").get();
        say("described", "state", group.groupState().toString(), "members", group.members().size());
        long lag = offsets("implicit").values().stream()
                .mapToLong(each -> each.lag().orElse(-1L)).sum();
        say("before", "lag", lag);
        admin.alterShareGroupOffsets("implicit", Map.of(partition, 3L)).all().get();
        until(() -> offsets("implicit").get(partition).startOffset() == 3L);
        List<String> values = new ArrayList<>();
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit", "implicit")) {
            until(() -> {
                add(consumer, values);
                return values.size() >= 7;
            });
        }
        say("moved", "count", values.size());
        String error = "none";
        admin.deleteShareGroupOffsets("implicit", Set.of("implicit")).all().get();
        say("forgotten", "partitions", offsets("implicit").size());
        admin.deleteShareGroups(List.of("implicit")).all().get();
        try {
            admin.describeShareGroups(List.of("implicit")).describedGroups().get("implicit").get();
        } catch (java.util.concurrent.ExecutionException problem) {
            error = problem.getCause().getClass().getSimpleName();
        }
        say("deleted", "error", error);
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsets(String group) {
        try {
            return admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static int members(String group) {
        try {
            return admin.describeShareGroups(List.of(group)).describedGroups().get(group).get()
                    .members().size();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static int add(KafkaShareConsumer<String, String> consumer, List<String> values) {
        int count = 0;
        for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
            values.add(each.value());
            count++;
        }
        return count;
    }

    /** Polls until so many records have come. */
    private static List<ConsumerRecord<String, String>> poll(
            KafkaShareConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        until(() -> {
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
            return found.size() >= count;
        });
        return found;
    }

    private static void prepare(String name, int partitions, int records) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        config(name, "share.auto.offset.reset", "earliest");
        produce(name, records);
    }

    private static void config(String group, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp change = new AlterConfigOp(
                new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    /** One batch for each partition, so that what is delivered together does not depend on time. */
    private static void produce(String topic, int records) throws Exception {
        int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                .partitions().size();
        Properties config = producerConfig();
        config.put("linger.ms", "10000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, null, "v" + number));
            }
            producer.flush();
        }
    }

    private static Properties producerConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        return config;
    }

    private static KafkaShareConsumer<String, String> consumer(
            String group, String topic, String... more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        for (int index = 0; index < more.length; index += 2) {
            config.put(more[index], more[index + 1]);
        }
        KafkaShareConsumer<String, String> made = new KafkaShareConsumer<>(config);
        made.subscribe(Collections.singleton(topic));
        return made;
    }

    private static void until(BooleanSupplier check) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!check.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not within a minute");
            }
        }
    }

    private static void say(String what, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"what\": \"" + what + "\"");
        for (int index = 0; index < pairs.length; index += 2) {
            Object value = pairs[index + 1];
            boolean bare = value instanceof Number || value instanceof Boolean;
            line.append(", \"").append(pairs[index]).append("\": ")
                    .append(bare ? value.toString() : "\"" + value + "\"");
        }
        System.out.println(line.append("}"));
    }
}
