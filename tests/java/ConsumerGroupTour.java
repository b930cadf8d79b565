import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Java's consumers of the new protocol with one node: each step prints one line, which does not depend on the placement
 * of partitions, so that two servers that answer alike give the same lines. Arguments: the bootstrap address, a prefix.
 */
public class ConsumerGroupTour {
    private interface Step {
        Object run() throws Exception;
    }

    /** A consumer, and how many records it has got. */
    private static class Member implements AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        int records;

        Member(String group, String protocol, Object... pairs) {
            Map<String, Object> all = settings("group.id", group, "group.protocol", protocol,
                "auto.offset.reset", "earliest", "enable.auto.commit", false);
            for (int i = 0; i < pairs.length; i += 2) all.put((String) pairs[i], pairs[i + 1]);
            String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
            all.put("key.deserializer", deserializer);
            all.put("value.deserializer", deserializer);
            consumer = new KafkaConsumer<>(all);
        }

        Member to(String... topics) {
            consumer.subscribe(List.of(topics));
            return this;
        }

        void poll() {
            records += consumer.poll(Duration.ofMillis(50)).count();
        }

        Set<TopicPartition> parts() {
            return consumer.assignment();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private static String server;
    private static String name;
    private static Admin admin;

    private static void step(String what, Step step) {
        Object said;
        try {
            said = step.run();
        } catch (Throwable e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            String words = String.valueOf(cause.getMessage()).replace(name, "NAME").replaceAll("\\b[\\w-]{22}(?= )", "ID");
            said = cause.getClass().getSimpleName() + " " + words;
        }
        System.out.println(what + ": " + said);
    }

    private static Map<String, Object> settings(Object... pairs) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", server);
        for (int i = 0; i < pairs.length; i += 2) all.put((String) pairs[i], pairs[i + 1]);
        return all;
    }

    private static String until(BooleanSupplier holds, Member... members) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (System.nanoTime() < deadline) {
            for (Member member : members) member.poll();
            if (holds.getAsBoolean()) return "yes";
        }
        List<Object> found = new ArrayList<>();
        for (Member member : members) found.add(member.parts() + " " + member.records);
        return "no: " + found;
    }

    /** Whether the members have all partitions, each once, and as evenly as possible. */
    private static boolean shared(int count, Member... members) {
        Set<TopicPartition> all = new HashSet<>();
        int sum = 0;
        int least = Integer.MAX_VALUE;
        int most = 0;
        for (Member member : members) {
            all.addAll(member.parts());
            sum += member.parts().size();
            least = Math.min(least, member.parts().size());
            most = Math.max(most, member.parts().size());
        }
        return all.size() == count && sum == count && most - least <= 1;
    }

    private static int sum(Member... members) {
        int records = 0;
        for (Member member : members) records += member.records;
        return records;
    }

    private static void create(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    private static void produce(String topic, int partitions, int each) throws Exception {
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        Map<String, Object> all = settings("key.serializer", serializer, "value.serializer", serializer);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(all)) {
            for (int p = 0; p < partitions; p++)
                for (int i = 0; i < each; i++) producer.send(new ProducerRecord<>(topic, p, null, p + "/" + i));
        }
    }

    private static String described(String group) throws Exception {
        ConsumerGroupDescription it = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        TreeSet<String> members = new TreeSet<>();
        it.members().forEach(m -> members.add(m.groupInstanceId().orElse("-") + " " + m.upgraded().map(u -> u ? "new" : "classic")
            .orElse("?") + " " + m.assignment().topicPartitions().size() + " "
            + m.targetAssignment().map(a -> a.topicPartitions().size()).orElse(-1)));
        return it.groupState() + " " + it.type() + " " + it.partitionAssignor() + " " + members;
    }

    private static long committed() {
        try {
            return admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(o -> o.offset()).sum();
        } catch (InterruptedException | ExecutionException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void members() {
        step("create", () -> {
            create(name, 6);
            produce(name, 6, 10);
            return "created";
        });
        try (Member one = new Member(name, "consumer").to(name); Member two = new Member(name, "consumer").to(name)) {
            step("two share", () -> until(() -> shared(6, one, two), one, two));
            step("and read", () -> until(() -> sum(one, two) >= 60, one, two));
            step("describe", () -> described(name));
            step("commit", () -> until(() -> {
                one.consumer.commitSync();
                two.consumer.commitSync();
                return committed() == 60;
            }, one, two));
            step("delete offsets of a subscribed topic", () ->
                admin.deleteConsumerGroupOffsets(name, Set.of(new TopicPartition(name, 0))).all().get());
            step("delete a group with members", () -> admin.deleteConsumerGroups(List.of(name)).all().get());
            step("reset offsets of a group with members", () -> admin.alterConsumerGroupOffsets(name, Map.of(
                new TopicPartition(name, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(0))).all().get());
            two.close();
            step("one has all", () -> until(() -> shared(6, one), one));
        }
        step("empty", () -> described(name));
        step("list", () -> {
            TreeSet<String> groups = new TreeSet<>();
            admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))).all().get().stream()
                .filter(g -> g.groupId().startsWith(name)).forEach(g -> groups.add(g.groupId().substring(name.length())
                + "=" + g.type() + " " + g.groupState() + " " + g.protocol()));
            return groups;
        });
    }

    private static void statics() {
        String group = name + "-static";
        Object[] a = {"group.instance.id", "a"};
        try (Member other = new Member(group, "consumer", "group.instance.id", "b").to(name)) {
            Set<TopicPartition> before = new HashSet<>();
            try (Member first = new Member(group, "consumer", a).to(name)) {
                step("static members share", () -> until(() -> shared(6, first, other), first, other));
                before.addAll(first.parts());
            }
            step("one is away", () -> described(group));
            try (Member again = new Member(group, "consumer", a).to(name)) {
                step("and back", () -> until(() -> again.parts().equals(before), again, other));
                step("another of its id", () -> {
                    try (Member twin = new Member(group, "consumer", a).to(name)) {
                        return until(() -> !twin.parts().isEmpty(), twin);
                    }
                });
            }
            step("remove a static member", () -> {
                admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("a")))).all().get();
                return until(() -> other.parts().size() == 6, other);
            });
        }
    }

    private static void subscriptions() {
        try (Member one = new Member(name + "-pattern", "consumer")) {
            one.consumer.subscribe(new SubscriptionPattern(name + "-p[0-9]+"));
            step("pattern", () -> {
                create(name + "-p1", 2);
                create(name + "-px", 2);
                return until(() -> shared(2, one), one);
            });
            step("a topic that comes later", () -> {
                create(name + "-p22", 3);
                return until(() -> shared(5, one), one);
            });
        }
        step("invalid pattern", () -> {
            try (Member one = new Member(name + "-bad", "consumer")) {
                one.consumer.subscribe(new SubscriptionPattern("[a"));
                return until(() -> false, one);
            }
        });
        try (Member one = new Member(name + "-range", "consumer", "group.remote.assignor", "range").to(name, name + "-p1");
             Member two = new Member(name + "-range", "consumer", "group.remote.assignor", "range").to(name, name + "-p1")) {
            step("range", () -> until(() -> one.parts().size() == 4 && two.parts().size() == 4, one, two));
            step("describe range", () -> described(name + "-range"));
        }
        step("unknown assignor", () -> {
            try (Member one = new Member(name + "-x", "consumer", "group.remote.assignor", "sticky").to(name)) {
                return until(() -> false, one);
            }
        });
    }

    private static void configs() {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        for (String value : List.of("50000", "44999", "60001", "x"))
            step("session time-out of " + value, () -> {
                AlterConfigOp set = new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", value), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(group, (Collection<AlterConfigOp>) List.of(set))).all().get();
                return "set";
            });
        step("configs", () -> {
            TreeMap<String, String> values = new TreeMap<>();
            for (int i = 0; i < 100 && !"50000".equals(values.get("consumer.session.timeout.ms")); i++) {
                Thread.sleep(50);
                admin.describeConfigs(List.of(group)).all().get().get(group).entries().stream()
                    .filter(e -> e.name().startsWith("consumer.")).forEach(e -> values.put(e.name(), e.value()));
            }
            return values;
        });
    }

    private static void migration() {
        String group = name + "-migrates";
        String strategy = "partition.assignment.strategy";
        for (String assignor : List.of("RangeAssignor", "CooperativeStickyAssignor")) {
            String id = group + assignor;
            Object[] pairs = {strategy, "org.apache.kafka.clients.consumer." + assignor};
            try (Member old = new Member(id, "classic", pairs).to(name)) {
                step("classic " + assignor, () -> until(() -> shared(6, old), old));
                try (Member one = new Member(id, "consumer").to(name)) {
                    step("upgraded", () -> until(() -> shared(6, old, one), old, one));
                    step("describe upgraded", () -> described(id));
                    step("mixed commit", () -> {
                        one.consumer.commitSync();
                        return until(() -> {
                            try {
                                old.consumer.commitSync();
                                return true;
                            } catch (org.apache.kafka.clients.consumer.CommitFailedException
                                | org.apache.kafka.common.errors.RebalanceInProgressException e) {
                                return false;
                            }
                        }, old, one);
                    });
                }
                step("downgraded", () -> until(() -> shared(6, old), old));
                step("describe downgraded", () -> described(id));
            }
        }
    }

    public static void main(String[] args) throws Exception {
        server = args[0];
        name = args[1];
        try (Admin made = Admin.create(settings())) {
            admin = made;
            members();
            statics();
            subscriptions();
            configs();
            migration();
            step("delete", () -> admin.deleteConsumerGroups(List.of(name)).all().get());
        }
        System.exit(0);
    }
}
