// Kafka's own assignors. Each line is one group: "uniform|range COUNTS MEMBER...". COUNTS are partitions of topics 0, 1, ...
// separated by commas. MEMBER is "id/instance/topics/earlier": instance or "-"; topics separated by commas; earlier as
// "topic:partition" separated by commas. Answers: for each member in order "id=topic:partition,...", by spaces.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

public class AssignorOracle {
    static Uuid topic(String number) {
        return new Uuid(1, Long.parseLong(number) + 1);
    }

    static String answer(String line) {
        String[] words = line.split(" ");
        Map<Uuid, Integer> counts = new HashMap<>();
        String[] numbers = words[1].split(",");
        for (int i = 0; i < numbers.length; i++) counts.put(topic("" + i), Integer.parseInt(numbers[i]));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split("/", -1);
            Set<Uuid> topics = new HashSet<>();
            if (!parts[2].isEmpty()) for (String t : parts[2].split(",")) topics.add(topic(t));
            Map<Uuid, Set<Integer>> earlier = new HashMap<>();
            if (!parts[3].isEmpty())
                for (String p : parts[3].split(",")) {
                    String[] pair = p.split(":");
                    earlier.computeIfAbsent(topic(pair[0]), k -> new HashSet<>()).add(Integer.parseInt(pair[1]));
                    owners.computeIfAbsent(topic(pair[0]), k -> new HashMap<>()).put(Integer.parseInt(pair[1]), parts[0]);
                }
            subscriptions.add(topics);
            Optional<String> instance = parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(earlier)));
        }
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            words[0].equals("uniform") ? new UniformAssignor() : new RangeAssignor();
        GroupAssignment found = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return counts.getOrDefault(id, -1);
            }

            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        });
        StringBuilder out = new StringBuilder();
        for (String id : members.keySet()) {
            out.append(id).append('=');
            TreeSet<String> parts = new TreeSet<>();
            MemberAssignment target = found.members().get(id);
            if (target != null)
                target.partitions().forEach((t, ps) ->
                    ps.forEach(p -> parts.add((t.getLeastSignificantBits() - 1) + ":" + p)));
            out.append(String.join(",", parts)).append(' ');
        }
        return out.toString().strip();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) out.append(answer(line)).append('\n');
        System.out.print(out);
    }
}
