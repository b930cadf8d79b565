// How tests/golden/coordinators/consumer_offsets_4_3_1.log was made: run against a fresh Apache Kafka 4.3.1 with
// offsets.topic.num.partitions=1 and group.initial.rebalance.delay.ms=0, then SIGKILL the server and take the segment.
// Every kind of group leaves its records: classic (stable static member, emptied, simple, deleted), KIP-848 (emptied and
// live), share, and offsets in a committed, an aborted and an open transaction; one topic is deleted.
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class ConsumerOffsetsGolden {
    static String servers;

    static Map<String, Object> consumer(String group, Object... more) {
        Map<String, Object> m = new HashMap<>(Map.of("bootstrap.servers", servers, "group.id", group, "client.id", "golden"));
        m.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        m.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int i = 0; i < more.length; i += 2) m.put((String) more[i], more[i + 1]);
        return m;
    }

    static KafkaConsumer<String, String> joined(Map<String, Object> settings) {
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> c = new KafkaConsumer<>(settings);
        c.subscribe(List.of("t"));
        for (int i = 0; i < 50 && c.assignment().isEmpty(); i++) c.poll(Duration.ofMillis(200));
        return c;
    }

    static Map<TopicPartition, OffsetAndMetadata> at(String topic, int partition, long offset) {
        return new HashMap<>(Map.of(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
    }

    @SuppressWarnings("removal")
    public static void main(String[] args) throws Exception {
        servers = args[0];
        Map<String, Object> producer = new HashMap<>(Map.of("bootstrap.servers", servers));
        producer.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producer.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        Admin admin = Admin.create(Map.of("bootstrap.servers", servers));
        admin.createTopics(List.of(new NewTopic("t", 3, (short) 1), new NewTopic("gone", 1, (short) 1))).all().get();
        try (KafkaProducer<String, String> p = new KafkaProducer<>(producer)) {
            for (int i = 0; i < 30; i++) p.send(new ProducerRecord<>("t", i % 3, null, "v" + i)).get();
        }
        try (KafkaConsumer<String, String> c = joined(consumer("classic", "group.instance.id", "inst-1",
                "session.timeout.ms", 1800000, "max.poll.interval.ms", 1800000))) {
            Map<TopicPartition, OffsetAndMetadata> offsets = at("t", 1, 6);
            offsets.put(new TopicPartition("t", 0), new OffsetAndMetadata(5, Optional.of(0), "five"));
            c.commitSync(offsets);
        }
        try (KafkaConsumer<String, String> c = joined(consumer("left"))) {
            c.commitSync(at("t", 2, 7));
        }
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(consumer("simple", "enable.auto.commit", "false"))) {
            Map<TopicPartition, OffsetAndMetadata> offsets = at("t", 0, 1);
            offsets.putAll(at("gone", 0, 0));
            c.assign(offsets.keySet());
            c.commitSync(offsets);
        }
        try (KafkaConsumer<String, String> c = joined(consumer("modern", "group.protocol", "consumer"))) {
            c.commitSync(at("t", 1, 8));
        }
        joined(consumer("modern-live", "group.protocol", "consumer")).commitSync(at("t", 1, 9));
        try (KafkaShareConsumer<String, String> c = new KafkaShareConsumer<>(consumer("shared"))) {
            c.subscribe(List.of("t"));
            for (int i = 0; i < 10; i++) c.poll(Duration.ofMillis(300));
        }
        for (String how : List.of("commit", "abort", "open")) {
            producer.put("transactional.id", "tx-" + how);
            KafkaProducer<String, String> p = new KafkaProducer<>(producer);
            p.initTransactions();
            p.beginTransaction();
            p.sendOffsetsToTransaction(at("t", 0, 20 + how.length()), new ConsumerGroupMetadata("tx-" + how));
            if (how.equals("commit")) p.commitTransaction();
            if (how.equals("abort")) p.abortTransaction();
        }
        admin.alterConsumerGroupOffsets("deleted", at("t", 0, 3)).all().get();
        admin.deleteConsumerGroups(List.of("deleted")).all().get();
        admin.deleteTopics(List.of("gone")).all().get();
        Thread.sleep(1000);
        System.out.println(admin.listGroups().all().get());
        Runtime.getRuntime().halt(0);
    }
}
