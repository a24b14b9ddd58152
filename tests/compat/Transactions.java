import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache Kafka's own producer, which speaks transaction.version 2: one JSON object a line. */
public class Transactions {
    static String bootstrap;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String input = args[1], output = args[2], id = args[3];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        manyTransactions(output, id);
        consumeTransformProduce(input, output, id + "-transform");
        zombie(output, id + "-zombie");
        admin.close();
    }

    static KafkaProducer<String, String> producer(String id) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", id);
        config.put("linger.ms", "0");
        config.put("max.block.ms", "20000");
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    /** Commit, abort, and abort without having written; the epoch after each. */
    static void manyTransactions(String output, String id) throws Exception {
        try (KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            say(id, "begin");
            for (int i = 0; i < 6; i++) {
                producer.beginTransaction();
                if (i != 5)
                    for (int j = 0; j < 4; j++)
                        producer.send(new ProducerRecord<>(output, j % 2, null, i + "-" + j));
                if (i % 2 == 0) producer.commitTransaction();
                else producer.abortTransaction();
                say(id, i % 2 == 0 ? "commit" : "abort");
            }
        }
    }

    static void consumeTransformProduce(String input, String output, String id) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", id);
        config.put("isolation.level", "read_committed");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("max.poll.records", "3");
        int count = 0;
        try (KafkaProducer<String, String> producer = producer(id);
             KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            for (int round = 0; round < 200 && count < 10; round++) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, 0, null, "did " + record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                count += records.count();
            }
        }
        long committed = admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get()
            .get(new TopicPartition(input, 0)).offset();
        System.out.printf("{\"step\": \"transformed\", \"count\": %d, \"committed\": %d}%n",
            count, committed);
        say(id, "transform");
    }

    /** A second producer of the same name takes over while the first is in a transaction. */
    static void zombie(String output, String id) throws Exception {
        try (KafkaProducer<String, String> old = producer(id);
             KafkaProducer<String, String> fresh = producer(id)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>(output, 0, null, "zombie")).get();
            fresh.initTransactions();
            String outcome = "committed";
            try {
                old.send(new ProducerRecord<>(output, 1, null, "zombie too"));
                old.commitTransaction();
            } catch (Exception error) {
                outcome = error.getClass().getSimpleName();
            }
            System.out.printf("{\"step\": \"zombie\", \"outcome\": \"%s\"}%n", outcome);
            fresh.beginTransaction();
            fresh.send(new ProducerRecord<>(output, 1, null, "fresh"));
            fresh.commitTransaction();
            say(id, "fresh");
        }
    }

    static void say(String id, String step) throws Exception {
        TransactionDescription state = null;
        for (int i = 0; i < 100; i++) {
            state = admin.describeTransactions(List.of(id)).description(id).get();
            if (!state.state().name().startsWith("PREPARE")) break;
            Thread.sleep(10);
        }
        String partitions = state.topicPartitions().stream().map(Object::toString)
            .collect(Collectors.joining(" "));
        System.out.printf(
            "{\"step\": \"%s\", \"state\": \"%s\", \"epoch\": %d, \"partitions\": \"%s\"}%n",
            step, state.state(), state.producerEpoch(), partitions);
    }
}
