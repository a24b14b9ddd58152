import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

/** Apache's consumer with group.protocol=consumer, alone and among classic ones, and the tools. */
public class NewGroups {
    private static final int PARTITIONS = 6;
    private static final long WAIT_MS = 60_000; // on a busy machine too
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("exit " + code + " " + message);
        });
        try (Admin admin = Admin.create(common())) {
            make(admin, "fits-a", 2);
            Reader byPattern = new Reader("pattern", "consumer");
            byPattern.consumer.subscribe(new SubscriptionPattern("fits-.*"), byPattern);
            spin(List.of(byPattern), () -> byPattern.consumer.assignment().size() == 2);
            make(admin, "fits-b", 2);
            sharing(admin, "uniform");
            sharing(admin, "range");
            staticRestart(admin);
            commits(admin);
            migration(admin);
            tools(admin, arguments[1]);
            // The broker looks at the topics again after ten seconds at the earliest.
            spin(List.of(byPattern), () -> byPattern.consumer.assignment().size() == 4);
            say("pattern", "text", run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
                new String[] {"--bootstrap-server", bootstrap}, "--describe", "--group", "pattern",
                "--members"));
            byPattern.close();
        }
    }

    /** A consumer that counts what was given to it and taken from it. */
    private static final class Reader implements AutoCloseable, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();
        final Set<TopicPartition> taken = new HashSet<>();
        final String protocol;
        int lost;
        boolean commits;

        Reader(String group, String protocol, Object... options) {
            this.protocol = protocol;
            Properties properties = common();
            properties.put("group.id", group);
            properties.put("group.protocol", protocol);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("metadata.max.age.ms", "300");
            if (protocol.equals("classic")) {
                properties.put("session.timeout.ms", "6000");
                properties.put("heartbeat.interval.ms", "200");
                properties.put("partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            }
            for (int i = 0; i < options.length; i += 2) {
                properties.put(options[i], options[i + 1]);
            }
            consumer = new KafkaConsumer<>(
                properties, new StringDeserializer(), new StringDeserializer());
        }

        Reader subscribe(String topic) {
            consumer.subscribe(List.of(topic), this);
            return this;
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                values.add(record.value());
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (commits) {
                consumer.commitSync();
            }
            taken.addAll(partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost += partitions.size();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private static void spin(List<Reader> readers, BooleanSupplier until) {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!until.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                List<Object> shown = new ArrayList<>();
                readers.forEach(each -> shown.add(each.consumer.assignment()));
                throw new IllegalStateException("this takes too long: " + shown);
            }
            readers.forEach(Reader::poll);
        }
    }

    private static boolean shared(List<Reader> readers, int count) {
        Set<TopicPartition> all = new HashSet<>();
        int sum = 0;
        for (Reader reader : readers) {
            Set<TopicPartition> own = reader.consumer.assignment();
            if (own.isEmpty()) {
                return false;
            }
            all.addAll(own);
            sum += own.size();
        }
        return all.size() == count && sum == count;
    }

    private static void sharing(Admin admin, String assignor) throws Exception {
        String topic = "shared-" + assignor;
        String group = "group-" + assignor;
        make(admin, topic, PARTITIONS);
        String option = "group.remote.assignor";
        Reader first = new Reader(group, "consumer", option, assignor).subscribe(topic);
        spin(List.of(first), () -> shared(List.of(first), PARTITIONS));
        Reader second = new Reader(group, "consumer", option, assignor).subscribe(topic);
        List<Reader> readers = new ArrayList<>(List.of(first, second));
        spin(readers, () -> shared(readers, PARTITIONS));
        boolean onlyWhatWentOver = first.taken.equals(second.consumer.assignment());
        produce(topic, 60);
        spin(readers, () -> first.values.size() + second.values.size() == 60);
        ConsumerGroupDescription seen = describe(admin, group);
        int half = second.consumer.assignment().size();
        second.close();
        readers.remove(second);
        spin(readers, () -> shared(readers, PARTITIONS));
        first.close();
        say("sharing " + assignor, "half", half, "members", seen.members().size(),
            "only", onlyWhatWentOver, "assignor", seen.partitionAssignor(),
            "state", seen.groupState().toString(), "type", seen.type().toString(),
            "epochs", seen.groupEpoch().get() >= seen.targetAssignmentEpoch().get(),
            "left", describe(admin, group).groupState());
    }

    private static void staticRestart(Admin admin) throws Exception {
        make(admin, "static", PARTITIONS);
        Reader first = new Reader("static", "consumer", "group.instance.id", "first");
        Reader second = new Reader("static", "consumer", "group.instance.id", "second");
        first.subscribe("static");
        second.subscribe("static");
        spin(List.of(first, second), () -> shared(List.of(first, second), PARTITIONS));
        Set<TopicPartition> before = new HashSet<>(second.consumer.assignment());
        first.taken.clear();
        second.close();
        Reader back = new Reader("static", "consumer", "group.instance.id", "second");
        back.subscribe("static");
        spin(List.of(first, back), () -> shared(List.of(first, back), PARTITIONS));
        boolean same = before.equals(back.consumer.assignment());
        say("static", "same", same, "taken", first.taken.size());
        first.close();
        back.close();
    }

    private static void commits(Admin admin) throws Exception {
        make(admin, "committed", 1);
        produce("committed", 20);
        TopicPartition place = new TopicPartition("committed", 0);
        Reader reader = new Reader("committed", "consumer").subscribe("committed");
        spin(List.of(reader), () -> reader.values.size() == 20);
        reader.consumer.commitSync(Map.of(place, new OffsetAndMetadata(5, "a note")));
        OffsetAndMetadata sync = reader.consumer.committed(Set.of(place)).get(place);
        reader.close();
        Reader next = new Reader("committed", "consumer").subscribe("committed");
        spin(List.of(next), () -> next.values.size() == 15);
        next.close();
        say("commits", "sync", sync.offset(), "note", sync.metadata(), "next", next.values.get(0));
    }

    /** A group goes over to the new protocol member by member, and back, and reads everything. */
    private static void migration(Admin admin) throws Exception {
        make(admin, "moving", PARTITIONS);
        List<Reader> all = new ArrayList<>();
        List<Reader> readers = new ArrayList<>();
        List<Object> states = new ArrayList<>();
        int sent = 0;
        for (String step : List.of("+classic", "+classic", "+consumer", "-classic", "+consumer",
                "-classic", "+classic", "-consumer", "+classic", "-consumer")) {
            String protocol = step.substring(1);
            if (step.startsWith("+")) {
                Reader reader = new Reader("moving", protocol);
                // On a busy machine a rebalance may come between a poll and the commit after it.
                reader.commits = true;
                all.add(reader.subscribe("moving"));
                readers.add(reader);
            } else {
                Reader reader = readers.stream()
                    .filter(each -> each.protocol.equals(protocol)).findFirst().get();
                reader.consumer.commitSync();
                reader.close();
                readers.remove(reader);
            }
            spin(readers, () -> shared(readers, PARTITIONS));
            produce("moving", 30);
            sent += 30;
            int expected = sent;
            spin(readers, () -> distinct(all) >= expected);
            readers.forEach(each -> each.consumer.commitSync());
            ConsumerGroupDescription seen = describe(admin, "moving");
            int upgraded = 0;
            for (MemberDescription member : seen.members()) {
                upgraded += member.upgraded().orElse(false) ? 1 : 0;
            }
            states.add(step + " " + seen.type() + " " + seen.members().size() + " " + upgraded);
        }
        int count = all.stream().mapToInt(each -> each.values.size()).sum();
        say("migration", "states", String.join(", ", states.stream().map(String::valueOf).toList()),
            "distinct", distinct(all), "read", count, "sent", sent,
            "lost", all.stream().mapToInt(each -> each.lost).sum());
        readers.forEach(Reader::close);
    }

    private static int distinct(List<Reader> readers) {
        Set<String> values = new HashSet<>();
        readers.forEach(each -> values.addAll(each.values));
        return values.size();
    }

    /** kafka-consumer-groups, kafka-configs and kafka-dump-log, as they are. */
    private static void tools(Admin admin, String data) throws Exception {
        String groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        String[] server = {"--bootstrap-server", bootstrap};
        Reader reader = new Reader("busy", "consumer", "client.id", "it").subscribe("committed");
        spin(List.of(reader), () -> !reader.consumer.assignment().isEmpty());
        say("list", "text", run(groups, server, "--list", "--type", "--state"));
        for (String what : List.of("--offsets", "--members", "--state")) {
            say("describe " + what, "text",
                run(groups, server, "--describe", "--group", "busy", what, "--verbose"));
        }
        say("refused", "text", run(groups, server, "--delete", "--group", "busy"));
        say("no reset", "text", run(groups, server, "--reset-offsets", "--group", "busy",
            "--topic", "committed", "--to-offset", "3", "--execute"));
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, "busy");
        admin.incrementalAlterConfigs(Map.of(config, List.of(new AlterConfigOp(
            new ConfigEntry("consumer.session.timeout.ms", "50000"), AlterConfigOp.OpType.SET))))
            .all().get();
        say("config", "value", admin.describeConfigs(List.of(config)).all().get().get(config)
            .get("consumer.session.timeout.ms").value());
        reader.close();
        say("reset", "text", run(groups, server, "--reset-offsets", "--group", "busy",
            "--topic", "committed", "--to-offset", "3", "--execute"));
        say("deleted", "text", run(groups, server, "--delete", "--group", "busy"));
        say("dump", "text", run("org.apache.kafka.tools.DumpLogSegments", new String[0],
            "--offsets-decoder", "--files", data + "/__consumer_offsets-0/00000000000000000000.log"));
    }

    private static String run(String tool, String[] first, String... rest) throws Exception {
        List<String> arguments = new ArrayList<>(List.of(first));
        arguments.addAll(List.of(rest));
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(output, true, StandardCharsets.UTF_8));
        try {
            Class.forName(tool).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException error) {
            output.writeBytes(("\nended: " + error.getCause()).getBytes(StandardCharsets.UTF_8));
        } finally {
            System.out.flush();
            System.setOut(out);
            System.setErr(err);
        }
        return output.toString(StandardCharsets.UTF_8);
    }

    private static ConsumerGroupDescription describe(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private static void make(Admin admin, String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    private static int produced;

    private static void produce(String topic, int count) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                common(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                boolean numbered = !topic.equals("moving");
                producer.send(new ProducerRecord<>(
                    topic, "key-" + i, "" + (numbered ? i : produced++)));
            }
        }
    }

    private static Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private static void say(String what, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"what\": " + quoted(what));
        for (int i = 0; i < pairs.length; i += 2) {
            Object value = pairs[i + 1];
            boolean plain = value instanceof Number || value instanceof Boolean;
            line.append(", ").append(quoted((String) pairs[i])).append(": ");
            line.append(plain ? value.toString() : quoted(String.valueOf(value)));
        }
        System.out.println(line.append("}"));
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n")
            .replace("\t", "\\t").replace("\r", "\\r") + "\"";
    }
}
