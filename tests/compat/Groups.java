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
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

/** Apache's consumer and its tools in groups; one JSON object a line says what they saw. */
public class Groups {
    private static final int PARTITIONS = 6;
    private static final long WAIT_MS = 60_000; // on a busy machine too
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("exit " + code + " " + message);
        });
        try (Admin admin = Admin.create(common())) {
            for (Class<?> assignor : List.of(
                    RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class,
                    CooperativeStickyAssignor.class)) {
                sharing(admin, assignor);
            }
            staticRestart(admin);
            commits(admin);
            pattern(admin);
            tools(admin, arguments[1]);
        }
    }

    /** A consumer that counts what was given to it and taken from it. */
    private static final class Reader implements AutoCloseable, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<String> values = new ArrayList<>();
        int given;
        int taken;
        int emptied;

        Reader(String group, Object... options) {
            Properties properties = common();
            properties.put("group.id", group);
            properties.put("group.protocol", "classic");
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("session.timeout.ms", "6000");
            properties.put("heartbeat.interval.ms", "200");
            properties.put("metadata.max.age.ms", "300");
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
            given++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            taken++;
            if (!partitions.isEmpty() && partitions.containsAll(consumer.assignment())) {
                emptied++;
            }
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
                throw new IllegalStateException("this takes too long");
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

    private static void sharing(Admin admin, Class<?> assignor) throws Exception {
        String name = assignor.getSimpleName();
        String topic = "shared-" + name;
        make(admin, topic, PARTITIONS);
        String option = "partition.assignment.strategy";
        Reader first = new Reader("group-" + name, option, assignor.getName()).subscribe(topic);
        Reader second = new Reader("group-" + name, option, assignor.getName()).subscribe(topic);
        List<Reader> readers = new ArrayList<>(List.of(first));
        spin(readers, () -> shared(List.of(first), PARTITIONS));
        readers.add(second);
        spin(readers, () -> shared(List.of(first, second), PARTITIONS));
        int halves = Math.min(first.consumer.assignment().size(), second.consumer.assignment().size());
        produce(topic, 60);
        spin(readers, () -> first.values.size() + second.values.size() == 60);
        ConsumerGroupDescription seen = describe(admin, "group-" + name);
        int emptied = first.emptied;
        second.close();
        readers.remove(second);
        spin(readers, () -> shared(List.of(first), PARTITIONS));
        first.close();
        say("sharing " + name, "half", halves, "emptied", emptied, "members",
            seen.members().size(), "assignor", seen.partitionAssignor(), "state",
            seen.groupState().toString(), "left", describe(admin, "group-" + name).groupState());
    }

    private static void staticRestart(Admin admin) throws Exception {
        make(admin, "static", PARTITIONS);
        Reader first = new Reader("static", "group.instance.id", "first").subscribe("static");
        Reader second = new Reader("static", "group.instance.id", "second").subscribe("static");
        List<Reader> readers = new ArrayList<>(List.of(first, second));
        spin(readers, () -> shared(List.of(first, second), PARTITIONS));
        Set<TopicPartition> before = second.consumer.assignment();
        int given = first.given;
        second.close();
        readers.remove(second);
        Reader back = new Reader("static", "group.instance.id", "second").subscribe("static");
        readers.add(back);
        spin(readers, () -> !back.consumer.assignment().isEmpty());
        long until = System.currentTimeMillis() + 1000;
        spin(readers, () -> System.currentTimeMillis() > until);
        boolean same = before.equals(back.consumer.assignment());
        first.close();
        back.close();
        say("static", "same", same, "rebalances", first.given - given);
    }

    private static void commits(Admin admin) throws Exception {
        make(admin, "committed", 1);
        produce("committed", 20);
        TopicPartition place = new TopicPartition("committed", 0);
        Reader reader = new Reader("committed").subscribe("committed");
        spin(List.of(reader), () -> reader.values.size() == 20);
        reader.consumer.commitSync(Map.of(place, new OffsetAndMetadata(5, "a note")));
        OffsetAndMetadata sync = reader.consumer.committed(Set.of(place)).get(place);
        List<Exception> outcomes = new ArrayList<>();
        reader.consumer.commitAsync(
            Map.of(place, new OffsetAndMetadata(9)), (offsets, error) -> outcomes.add(error));
        spin(List.of(reader), () -> !outcomes.isEmpty());
        long async = reader.consumer.committed(Set.of(place)).get(place).offset();
        reader.values.clear();
        reader.consumer.seek(place, 15);
        spin(List.of(reader), () -> reader.values.size() == 5);
        reader.close();
        say("commits", "sync", sync.offset(), "note", sync.metadata(), "async", async,
            "error", String.valueOf(outcomes.get(0)), "sought", reader.values.get(0));
    }

    private static void pattern(Admin admin) throws Exception {
        make(admin, "fits-a", 2);
        Reader reader = new Reader("pattern");
        reader.consumer.subscribe(Pattern.compile("fits-.*"), reader);
        spin(List.of(reader), () -> reader.consumer.assignment().size() == 2);
        make(admin, "fits-b", 2);
        spin(List.of(reader), () -> reader.consumer.assignment().size() == 4);
        reader.close();
        say("pattern", "partitions", 4);
    }

    /** kafka-consumer-groups, kafka-dump-log and the console consumer's formatters, as they are. */
    private static void tools(Admin admin, String data) throws Exception {
        String groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        String[] server = {"--bootstrap-server", bootstrap};
        say("list", "text", run(groups, server, "--list", "--state"));
        say("describe", "text", run(groups, server, "--describe", "--group", "committed"));
        Reader reader = new Reader("busy").subscribe("committed");
        spin(List.of(reader), () -> !reader.consumer.assignment().isEmpty());
        say("members", "text",
            run(groups, server, "--describe", "--group", "busy", "--members", "--verbose"));
        say("refused", "text", run(groups, server, "--delete", "--group", "busy"));
        reader.close();
        say("reset", "text", run(groups, server, "--reset-offsets", "--group", "committed",
            "--topic", "committed", "--to-offset", "3", "--execute"));
        TopicPartition place = new TopicPartition("committed", 0);
        long offset = admin.listConsumerGroupOffsets("committed").partitionsToOffsetAndMetadata()
            .get().get(place).offset();
        say("after reset", "offset", offset);
        say("delete offsets", "text", run(groups, server, "--delete-offsets", "--group",
            "committed", "--topic", "committed"));
        say("deleted", "text", run(groups, server, "--delete", "--group", "busy"));
        say("left", "groups", new TreeSet<>(admin.listGroups().all().get().stream()
            .map(each -> each.groupId()).toList()));
        say("dump", "text", run("org.apache.kafka.tools.DumpLogSegments", new String[0],
            "--offsets-decoder", "--files", data + "/__consumer_offsets-0/00000000000000000000.log"));
        String console = "org.apache.kafka.tools.consumer.ConsoleConsumer";
        for (String formatter : List.of("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")) {
            say(formatter, "text", run(console, server, "--topic", "__consumer_offsets",
                "--from-beginning", "--timeout-ms", "1500", "--formatter",
                "org.apache.kafka.tools.consumer." + formatter));
        }
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

    private static void produce(String topic, int count) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                common(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, "key-" + i, "" + i));
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
