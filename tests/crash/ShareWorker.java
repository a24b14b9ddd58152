import java.io.FileOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Processes records of a share group with Apache's share consumer: made to be killed at any moment.
 *
 * <p>Arguments, journal and behaviour are those of share_worker.py. On Linux System.nanoTime is the
 * clock of Python's time.monotonic.
 */
public class ShareWorker {
    private static final int BATCH = 10;
    private static final long POLL_MS = 100;
    private static final long WAIT_MS = 5_000;
    private static final int WORK_MS_MAX = 50; // held for so long: some are killed with records
    private static final long PID = ProcessHandle.current().pid();
    private static final Random CHANCE = new Random(PID);
    private static FileOutputStream journal;
    private static int number = 0;

    public static void main(String[] arguments) throws Exception {
        Thread ending = new Thread(ShareWorker::endWithInput);
        ending.setDaemon(true);
        ending.start();
        journal = new FileOutputStream(arguments[3], true);
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", "workers");
        config.put("share.acknowledgement.mode", "explicit");
        config.put("max.poll.records", Integer.toString(BATCH));
        config.put("request.timeout.ms", Long.toString(WAIT_MS));
        config.put("reconnect.backoff.ms", "5");
        config.put("reconnect.backoff.max.ms", "30");
        config.put("retry.backoff.ms", "5");
        // What a poll returns may have waited since the third last poll that returned records: one
        // answer can be given out in two, and the next one be there already.
        Deque<Double> asked = new ArrayDeque<>(List.of(now(), now(), now()));
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Set.of(arguments[2]));
            while (true) {
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(Duration.ofMillis(POLL_MS)).forEach(records::add);
                if (!records.isEmpty()) {
                    process(consumer, records, asked);
                }
            }
        }
    }

    /** Whoever started this process is gone, or wants it to be. */
    private static void endWithInput() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException gone) {
            // It ends all the same.
        }
        Runtime.getRuntime().halt(0);
    }

    private static void process(
            KafkaShareConsumer<String, String> consumer,
            List<ConsumerRecord<String, String>> records,
            Deque<Double> asked)
            throws Exception {
        number++;
        List<String> given = new ArrayList<>();
        for (ConsumerRecord<String, String> each : records) {
            given.add("[" + each.partition() + ", " + each.offset() + ", \"" + each.value() + "\", "
                    + each.deliveryCount().get() + "]");
        }
        note("given", "\"asked\": " + asked.removeFirst() + ", \"records\": " + given);
        asked.addLast(now());
        Thread.sleep(CHANCE.nextInt(WORK_MS_MAX));
        List<String> kinds = new ArrayList<>();
        List<AcknowledgeType> types = new ArrayList<>();
        for (ConsumerRecord<String, String> each : records) {
            int drawn = CHANCE.nextInt(100);
            AcknowledgeType type = drawn < 86 ? AcknowledgeType.ACCEPT
                    : drawn < 95 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
            types.add(type);
            kinds.add("[" + each.partition() + ", " + each.offset() + ", " + type.id + "]");
        }
        note("says", "\"records\": " + kinds);
        List<String> errors = new ArrayList<>();
        try {
            for (int index = 0; index < records.size(); index++) {
                consumer.acknowledge(records.get(index), types.get(index));
            }
            Map<TopicIdPartition, Optional<KafkaException>> outcomes =
                    consumer.commitSync(Duration.ofMillis(WAIT_MS));
            outcomes.forEach((place, problem) -> errors.add("[" + place.partition() + ", "
                    + problem.map(each -> (int) Errors.forException(each).code()).orElse(0) + "]"));
        } catch (KafkaException | IllegalStateException error) {
            errors.clear(); // nobody knows what came of it
        }
        note("said", "\"errors\": " + errors);
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void note(String kind, String fields) throws Exception {
        String line = "{\"at\": " + now() + ", \"kind\": \"" + kind + "\", \"pid\": " + PID
                + ", \"number\": " + number + ", " + fields + "}\n";
        journal.write(line.getBytes());
    }
}
