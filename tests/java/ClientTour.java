import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.quota.*;

/**
 * What Java programs do with one node: each step prints one line, what came of it or the name of the error.
 *
 * Arguments: the bootstrap address and a prefix for topics and groups. The lines hold nothing that is drawn or timed,
 * so that two servers that answer alike give the same lines.
 */
public class ClientTour {
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

    private static Producer<String, String> producer(Object... pairs) {
        Map<String, Object> all = settings(pairs);
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        all.put("key.serializer", serializer);
        all.put("value.serializer", serializer);
        return new KafkaProducer<>(all);
    }

    private static Consumer<String, String> consumer(Object... pairs) {
        Map<String, Object> all = settings("group.protocol", "classic", "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        for (int i = 0; i < pairs.length; i += 2) {
            all.put((String) pairs[i], pairs[i + 1]);
        }
        String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
        all.put("key.deserializer", deserializer);
        all.put("value.deserializer", deserializer);
        return new KafkaConsumer<>(all);
    }

    private static void create(String name, int partitions) throws Exception {
        // the records carry times of 1970
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(Map.of("retention.ms", "-1")))).all().get();
    }

    private static List<String> drain(Consumer<String, String> consumer, int count) {
        List<String> got = new ArrayList<>();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (got.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(r -> got.add(r.partition() + "/" + r.offset() + "=" + r.value()));
        }
        return got;
    }

    public static void main(String[] args) throws Exception {
        server = args[0];
        prefix = args[1];
        try (Admin made = Admin.create(settings("request.timeout.ms", 10_000, "default.api.timeout.ms", 10_000))) {
            admin = made;
            topics();
            configs();
            producers();
            consumers();
            groups();
            cluster();
        }
    }

    private static void topics() {
        String name = prefix + "-topic";
        step("create", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(
                new NewTopic(name, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "77777"))));
            return made.numPartitions(name).get() + " " + made.replicationFactor(name).get() + " "
                + made.config(name).get().get("retention.ms").value();
        });
        step("create again", () -> admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get());
        step("create validate only", () -> admin.createTopics(List.of(new NewTopic(name + "-v", 1, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).all().get());
        step("create assigned", () -> admin.createTopics(List.of(
            new NewTopic(name + "-a", Map.of(0, List.of(1), 1, List.of(1))))).numPartitions(name + "-a").get());
        step("create assigned wrongly", () -> admin.createTopics(List.of(
            new NewTopic(name + "-b", Map.of(0, List.of(9))))).all().get());
        step("describe", () -> {
            TopicDescription it = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            return it.isInternal() + " " + it.partitions().stream().map(p -> p.partition() + ":" + p.leader().id() + p.isr().size()
                + p.replicas().size() + p.elr() + p.lastKnownElr()).toList();
        });
        step("describe by id", () -> {
            Uuid id = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name()
                .equals(name);
        });
        step("describe unknown id", () -> admin.describeTopics(
            TopicCollection.ofTopicIds(List.of(new Uuid(5, 5)))).allTopicIds().get());
        step("describe with operations", () -> new TreeSet<>(admin.describeTopics(List.of(name),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(name)
            .authorizedOperations()));
        step("more partitions", () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all().get());
        step("fewer partitions", () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all().get());
        step("delete by id", () -> {
            Uuid id = admin.describeTopics(List.of(name + "-a")).allTopicNames().get().get(name + "-a").topicId();
            return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        });
        step("delete unknown", () -> admin.deleteTopics(List.of(name + "-nope")).all().get());
        step("listed", () -> {
            Set<String> found = Set.of();
            for (int i = 0; i < 100 && found.size() != 1; i++) {
                Thread.sleep(50);
                found = new TreeSet<>(admin.listTopics().names().get().stream().filter(t -> t.startsWith(name)).toList());
            }
            return found;
        });
    }

    private static void configs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, prefix + "-topic");
        step("alter configs", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND),
            new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all().get());
        step("describe configs", () -> {
            ConfigEntry entry = null;
            for (int i = 0; i < 100 && (entry == null || entry.isDefault()); i++) { // the broker hears of it after the answer
                Thread.sleep(50);
                entry = admin.describeConfigs(List.of(topic), new DescribeConfigsOptions().includeSynonyms(true)).all().get()
                    .get(topic).get("cleanup.policy");
            }
            return entry.value() + " " + entry.source() + " " + entry.type() + " " + entry.synonyms().size();
        });
        step("append to a number", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.APPEND)))).all().get());
        step("resources with configs", () -> admin.listConfigResources(Set.of(ConfigResource.Type.BROKER),
            new ListConfigResourcesOptions()).all().get());
        step("quotas", () -> {
            ClientQuotaEntity entity = new ClientQuotaEntity(Map.of("user", prefix, "client-id", prefix));
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all().get();
            Collection<Map<String, Double>> found = List.of();
            for (int i = 0; i < 100 && found.isEmpty(); i++) { // the broker hears of it after the answer
                Thread.sleep(50);
                found = admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(
                    ClientQuotaFilterComponent.ofEntity("user", prefix)))).entities().get().values();
            }
            return found;
        });
        step("scram", () -> {
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(prefix,
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "not-a-secret"))).all().get();
            return admin.describeUserScramCredentials(List.of(prefix)).description(prefix).get().credentialInfos();
        });
        step("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        step("tokens", () -> admin.describeDelegationToken().delegationTokens().get());
    }

    private static void producers() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String name = prefix + "-" + codec;
            create(name, 1);
            step("idempotent " + codec, () -> {
                try (Producer<String, String> producer = producer("compression.type", codec, "linger.ms", 5,
                        "enable.idempotence", true, "max.in.flight.requests.per.connection", 5, "batch.size", 1000)) {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int i = 0; i < 500; i++) {
                        sent.add(producer.send(new ProducerRecord<>(name, 0, 1_000L + i, "k" + i, "v".repeat(i % 50) + i,
                            List.of(new RecordHeader("h", new byte[] {(byte) i})))));
                    }
                    producer.flush();
                    for (int i = 0; i < 500; i++) {
                        RecordMetadata m = sent.get(i).get();
                        if (m.offset() != i || m.timestamp() != 1_000L + i) {
                            return "record " + i + " is " + m;
                        }
                    }
                }
                try (Consumer<String, String> consumer = consumer("isolation.level", "read_committed")) {
                    TopicPartition p = new TopicPartition(name, 0);
                    consumer.assign(List.of(p));
                    List<String> got = drain(consumer, 500);
                    OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(p, 1_250L)).get(p);
                    consumer.seek(p, found.offset());
                    return got.size() + " " + got.get(499) + " " + found + " " + drain(consumer, 1).get(0) + " "
                        + consumer.beginningOffsets(List.of(p)) .get(p) + " " + consumer.endOffsets(List.of(p)).get(p);
                }
            });
        }
        for (String acks : List.of("0", "1", "all")) {
            step("acks " + acks, () -> {
                try (Producer<String, String> producer = producer("acks", acks, "enable.idempotence", false)) {
                    RecordMetadata m = producer.send(new ProducerRecord<>(prefix + "-none", 0, null, null)).get();
                    return m.hasOffset() + " " + m.serializedKeySize() + " " + m.serializedValueSize();
                }
            });
        }
        step("too large", () -> {
            try (Producer<String, String> producer = producer("max.request.size", 5_000_000)) {
                return producer.send(new ProducerRecord<>(prefix + "-none", "x".repeat(3_000_000))).get();
            }
        });
        step("unknown partition", () -> {
            try (Producer<String, String> producer = producer("max.block.ms", 1_000)) {
                return producer.send(new ProducerRecord<>(prefix + "-none", 7, null, "x")).get();
            }
        });
    }

    private static void consumers() throws Exception {
        String name = prefix + "-shared";
        create(name, 4);
        try (Producer<String, String> producer = producer()) {
            for (int p = 0; p < 4; p++) {
                producer.send(new ProducerRecord<>(name, p, null, "v" + p));
            }
        }
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")) {
            step("two members, " + assignor, () -> {
                String group = name + assignor;
                Object[] settings = {"group.id", group, "partition.assignment.strategy",
                    "org.apache.kafka.clients.consumer." + assignor};
                try (Consumer<String, String> one = consumer(settings); Consumer<String, String> two = consumer(settings)) {
                    one.subscribe(List.of(name));
                    List<String> got = drain(one, 4);
                    one.commitSync();
                    two.subscribe(List.of(name));
                    long deadline = System.nanoTime() + 20_000_000_000L;
                    while (two.assignment().size() != 2 || one.assignment().size() != 2) {
                        one.poll(Duration.ofMillis(50));
                        two.poll(Duration.ofMillis(50));
                        if (System.nanoTime() > deadline) {
                            return one.assignment() + " " + two.assignment();
                        }
                    }
                    return got.size() + " " + one.assignment().size() + " " + two.assignment().size() + " "
                        + two.committed(Set.of(new TopicPartition(name, 0))).values() + " " + one.groupMetadata().generationId();
                }
            });
        }
        step("a static member comes back", () -> {
            Object[] settings = {"group.id", name + "-static", "group.instance.id", "i"};
            String first;
            try (Consumer<String, String> member = consumer(settings)) {
                member.subscribe(List.of(name));
                drain(member, 4);
                first = member.assignment().size() + " " + member.groupMetadata().generationId();
            }
            try (Consumer<String, String> member = consumer(settings)) {
                member.subscribe(List.of(name));
                drain(member, 4);
                return first + " / " + member.assignment().size() + " " + member.groupMetadata().generationId();
            }
        });
        step("a second of the same instance", () -> {
            Object[] settings = {"group.id", name + "-fenced", "group.instance.id", "i"};
            try (Consumer<String, String> one = consumer(settings); Consumer<String, String> two = consumer(settings)) {
                one.subscribe(List.of(name));
                drain(one, 4);
                two.subscribe(List.of(name));
                drain(two, 4);
                one.commitSync();
                return "not fenced";
            }
        });
        step("subscribed by pattern, paused, resumed", () -> {
            try (Consumer<String, String> member = consumer("group.id", name + "-pattern", "client.rack", "r")) {
                member.subscribe(java.util.regex.Pattern.compile(name));
                List<String> all = drain(member, 4);
                member.seekToBeginning(member.assignment());
                member.pause(List.of(new TopicPartition(name, 0)));
                int paused = drain(member, 3).size();
                member.resume(member.paused());
                return all.size() + " " + paused + " " + drain(member, 1);
            }
        });
        step("commit with metadata", () -> {
            TopicPartition p = new TopicPartition(name, 1);
            try (Consumer<String, String> member = consumer("group.id", name + "-meta")) {
                member.assign(List.of(p));
                member.commitSync(Map.of(p, new OffsetAndMetadata(1, Optional.of(0), "note")));
                return member.committed(Set.of(p)) + " " + member.currentLag(p);
            }
        });
        step("no reset", () -> {
            try (Consumer<String, String> member = consumer("group.id", name + "-none", "auto.offset.reset", "none")) {
                member.assign(List.of(new TopicPartition(name, 1)));
                return member.poll(Duration.ofSeconds(5)).count();
            }
        });
        step("reset by duration", () -> {
            try (Consumer<String, String> member = consumer("group.id", name + "-by", "auto.offset.reset", "by_duration:PT1H")) {
                member.assign(List.of(new TopicPartition(name, 1)));
                return drain(member, 1);
            }
        });
    }

    private static void groups() {
        String name = prefix + "-shared";
        String group = name + "-meta";
        TopicPartition p = new TopicPartition(name, 1);
        step("groups", () -> admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
            .filter(g -> g.groupId().startsWith(name)).map(g -> g.groupId().substring(name.length()) + "=" + g.groupState().get()
                + "/" + g.type().get() + "/" + g.protocol()).sorted().toList());
        step("describe group", () -> {
            ConsumerGroupDescription it = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return it.groupState() + " " + it.type() + " " + it.coordinator().id() + " " + it.members();
        });
        step("describe classic group", () -> admin.describeClassicGroups(List.of(group)).all().get().get(group).state());
        step("describe unknown group", () -> admin.describeConsumerGroups(List.of(name + "-no")).all().get());
        step("alter offsets", () -> admin.alterConsumerGroupOffsets(group, Map.of(p, new OffsetAndMetadata(0))).all().get());
        step("offsets", () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
        step("offsets of two groups", () -> new TreeMap<>(admin.listConsumerGroupOffsets(Map.of(
            group, new ListConsumerGroupOffsetsSpec(), name + "-no", new ListConsumerGroupOffsetsSpec())).all().get()));
        step("delete offsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(p)).all().get());
        step("remove members", () -> admin.removeMembersFromConsumerGroup(name + "-static",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("i")))).all().get());
        step("delete group", () -> admin.deleteConsumerGroups(List.of(name + "-pattern")).all().get());
        step("delete unknown group", () -> admin.deleteConsumerGroups(List.of(name + "-no")).all().get());
    }

    private static void cluster() {
        TopicPartition p = new TopicPartition(prefix + "-none", 0);
        step("nodes", () -> admin.describeCluster().nodes().get().size() + " " + admin.describeCluster().controller().get().id()
            + " " + !admin.describeCluster().clusterId().get().isEmpty());
        step("features", () -> new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures()));
        step("quorum", () -> {
            QuorumInfo it = admin.describeMetadataQuorum().quorumInfo().get();
            return it.leaderId() + " " + it.voters().size() + " " + it.observers() + " " + (it.highWatermark() > 0);
        });
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.forTimestamp(1_100),
                OffsetSpec.earliestLocal(), OffsetSpec.latestTiered(), OffsetSpec.earliestPendingUpload())) {
            step("offset " + spec.getClass().getSimpleName(),
                () -> admin.listOffsets(Map.of(p, spec)).partitionResult(p).get().offset());
        }
        step("delete records", () -> admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(10))).all().get());
        step("earliest now", () -> admin.listOffsets(Map.of(p, OffsetSpec.earliest())).partitionResult(p).get().offset());
        step("delete too many records", () -> admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(9_999))).all().get());
        step("log dirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream()
            .map(d -> d.error() + " " + d.replicaInfos().containsKey(p) + " " + d.totalBytes().isPresent()).toList());
        step("replica log dirs", () -> admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica(p.topic(), 0, 1)))
            .all().get().values().stream().map(r -> r.getCurrentReplicaOffsetLag()).toList());
        step("elect", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(p)).partitions().get().values().stream()
            .map(e -> e.map(x -> x.getClass().getSimpleName()).orElse("done")).toList());
        step("reassign", () -> admin.alterPartitionReassignments(Map.of(p,
            Optional.of(new NewPartitionReassignment(List.of(1))))).all().get());
        step("reassign to nobody", () -> admin.alterPartitionReassignments(Map.of(p,
            Optional.of(new NewPartitionReassignment(List.of(7))))).all().get());
        step("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
        step("transactions", () -> admin.listTransactions().all().get());
        step("unregister nobody", () -> admin.unregisterBroker(9).all().get());
        step("metrics of clients", () -> admin.clientInstanceId(Duration.ofSeconds(1)));
    }
}
