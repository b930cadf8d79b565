import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;

/**
 * What Java programs do with transactions: each step prints one line, its result or the name of the error.
 *
 * Arguments: the bootstrap address and a prefix for topics, groups and transactional ids. The lines hold nothing random
 * or timed, so two servers with the same behaviour give the same lines.
 */
public class TransactionTour {
    private interface Step {
        Object run() throws Exception;
    }

    private static String server;
    private static String prefix;
    private static Admin admin;

    private static void step(String name, Step step) {
        Object said;
        try {
            said = step.run();
        } catch (Throwable e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            said = cause.getClass().getSimpleName();
        }
        System.out.println(name + ": " + said);
    }

    private static Map<String, Object> settings(Object... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", server);
        for (int i = 0; i < pairs.length; i += 2) {
            all.put((String) pairs[i], pairs[i + 1]);
        }
        return all;
    }

    private static Producer<String, String> producer(String id, Object... pairs) {
        Map<String, Object> all = settings("transactional.id", prefix + id, "retry.backoff.ms", 20);
        all.putAll(settings(pairs));
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        all.put("key.serializer", serializer);
        all.put("value.serializer", serializer);
        return new KafkaProducer<>(all);
    }

    private static Consumer<String, String> consumer(String level, String group) {
        Map<String, Object> all = settings("group.protocol", "classic", "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "isolation.level", level, "group.id", prefix + group);
        String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
        all.put("key.deserializer", deserializer);
        all.put("value.deserializer", deserializer);
        return new KafkaConsumer<>(all);
    }

    private static void send(Producer<String, String> producer, String topic, int count, String word) {
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(prefix + topic, i % 2, null, word + i));
        }
    }

    /** The values of a topic, sorted, and how far a consumer of this level gets in each partition. */
    private static String read(String level, String topic) {
        try (Consumer<String, String> consumer = consumer(level, "none")) {
            List<TopicPartition> all = List.of(new TopicPartition(prefix + topic, 0), new TopicPartition(prefix + topic, 1));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<String> values = new ArrayList<>();
            long limit = System.nanoTime() + 20_000_000_000L;
            while (System.nanoTime() < limit && all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
            Collections.sort(values);
            return values + " to " + all.stream().map(one -> ends.get(one).toString()).collect(Collectors.joining(","));
        }
    }

    /** The state of a transaction, once its markers are written. */
    private static String state(String id) throws Exception {
        for (int i = 0; ; i++) {
            TransactionDescription found =
                admin.describeTransactions(List.of(prefix + id)).description(prefix + id).get();
            String state = found.state().toString();
            if (!state.startsWith("Prepare") || i > 500) {
                return state + " " + found.topicPartitions().size() + " partitions, epoch " + found.producerEpoch()
                    + ", timeout " + found.transactionTimeoutMs() + ", begun "
                    + found.transactionStartTimeMs().isPresent();
            }
            Thread.sleep(10);
        }
    }

    private static String listed(TransactionState... states) throws Exception {
        ListTransactionsOptions options = new ListTransactionsOptions().filterStates(Set.of(states));
        return admin.listTransactions(options).all().get().stream().map(TransactionListing::transactionalId)
            .filter(id -> id.startsWith(prefix)).map(id -> id.substring(prefix.length())).sorted().toList().toString();
    }

    public static void main(String[] args) throws Exception {
        server = args[0];
        prefix = args[1] + "-";
        admin = Admin.create(settings());
        admin.createTopics(List.of(new NewTopic(prefix + "in", 2, (short) 1), new NewTopic(prefix + "out", 2, (short) 1)))
            .all().get();
        life();
        fencing();
        exactlyOnce();
        timeOut();
        admin();
        admin.close();
    }

    private static void life() throws Exception {
        try (Producer<String, String> producer = producer("life")) {
            step("begin before init", () -> { producer.beginTransaction(); return "begun"; });
        }
        try (Producer<String, String> producer = producer("life")) {
            producer.initTransactions();
            step("after init", () -> state("life"));
            for (int round = 0; round < 4; round++) {
                boolean commit = round % 2 == 0;
                int number = round;
                producer.beginTransaction();
                send(producer, "in", 6, "r" + number + "-");
                producer.flush();
                step("open " + number, () -> state("life"));
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                step("ended " + number, () -> state("life"));
            }
            producer.beginTransaction();
            producer.commitTransaction();
            step("committed nothing", () -> state("life"));
            producer.beginTransaction();
            producer.abortTransaction();
            step("aborted nothing", () -> state("life"));
        }
        step("read committed", () -> read("read_committed", "in"));
        step("read uncommitted", () -> read("read_uncommitted", "in"));
    }

    private static void fencing() throws Exception {
        Producer<String, String> old = producer("fence");
        old.initTransactions();
        old.beginTransaction();
        send(old, "in", 2, "zombie-");
        old.flush();
        try (Producer<String, String> next = producer("fence")) {
            next.initTransactions();
            step("after the fence", () -> state("fence"));
            step("zombie sends", () -> old.send(new ProducerRecord<>(prefix + "in", 0, null, "zombie")).get());
            step("zombie commits", () -> { old.commitTransaction(); return "committed"; });
            next.beginTransaction();
            send(next, "in", 2, "next-");
            next.commitTransaction();
            step("next", () -> state("fence"));
        }
        old.close(Duration.ZERO);
        step("read after fence", () -> read("read_committed", "in"));
    }

    private static void exactlyOnce() throws Exception {
        for (boolean commit : new boolean[] {false, true}) {
            try (Producer<String, String> producer = producer("copy");
                 Consumer<String, String> consumer = consumer("read_committed", "copy")) {
                producer.initTransactions();
                consumer.subscribe(List.of(prefix + "in"));
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                int copied = 0;
                for (int i = 0; i < 200 && copied < 14; i++) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        producer.send(new ProducerRecord<>(prefix + "out", record.partition(), null, record.value()));
                        copied++;
                    }
                }
                for (TopicPartition one : consumer.assignment()) {
                    offsets.put(one, new OffsetAndMetadata(consumer.position(one)));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.flush();
                step("copy has", () -> state("copy"));
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                int found = copied;
                step("copied", () -> found + " " + state("copy"));
                step("offsets", () -> consumer.committed(consumer.assignment(), Duration.ofSeconds(10)).values().stream()
                    .map(one -> one == null ? "none" : String.valueOf(one.offset())).sorted().toList());
            }
        }
        step("copies", () -> read("read_committed", "out"));
    }

    private static void timeOut() throws Exception {
        try (Producer<String, String> producer = producer("slow", "transaction.timeout.ms", 1000)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "out", 2, "late-");
            producer.flush();
            for (int i = 0; i < 200 && state("slow").startsWith("Ongoing"); i++) {
                Thread.sleep(100);
            }
            step("timed out", () -> state("slow"));
            step("late commit", () -> { producer.commitTransaction(); return "committed"; });
        }
        try (Producer<String, String> producer = producer("never", "transaction.timeout.ms", 900_001)) {
            step("too long", () -> { producer.initTransactions(); return "done"; });
        }
        step("read after time-out", () -> read("read_committed", "out"));
    }

    private static void admin() throws Exception {
        try (Producer<String, String> producer = producer("open")) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "in", 2, "open-");
            producer.flush();
            step("ongoing", () -> listed(TransactionState.ONGOING));
            step("complete", () -> listed(TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT));
            step("all", () -> listed());
            step("unknown", () -> state("unknown"));
            TopicPartition first = new TopicPartition(prefix + "in", 0);
            step("producers", () -> admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers()
                .stream().filter(one -> one.currentTransactionStartOffset().isPresent()).count());
            step("fence", () -> { admin.fenceProducers(List.of(prefix + "open")).all().get(); return "fenced"; });
            step("fenced", () -> state("open"));
            step("commit of fenced", () -> { producer.commitTransaction(); return "committed"; });
        }
        step("read at the end", () -> read("read_committed", "in"));
    }
}
