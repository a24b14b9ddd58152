import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignorException;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * What Apache's assignors make of the groups in a file, a line each: "ASSIGNOR alike|mixed TOPIC:COUNT,…" and for each
 * member "ID;INSTANCE;TOPIC,…;TOPIC-PARTITION,…" (subscribed, assigned). Topics are numbers. The answer has
 * "ID;TOPIC-PARTITION,…" for each member, or "failed".
 */
public class Assignors {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(answer(line.split(" ")));
        }
    }

    private static String answer(String[] words) {
        PartitionAssignor assignor = switch (words[0]) {
            case "range" -> new RangeAssignor();
            case "uniform" -> new UniformAssignor();
            default -> new SimpleAssignor();
        };
        SubscriptionType type =
                words[1].equals("alike") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<Uuid, Integer> counts = new LinkedHashMap<>();
        for (String each : parts(words[2])) {
            counts.put(topic(each.split(":")[0]), Integer.parseInt(each.split(":")[1]));
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new LinkedHashMap<>();
        for (int number = 3; number < words.length; number++) {
            String[] fields = words[number].split(";", -1);
            Set<Uuid> topics = new LinkedHashSet<>();
            for (String each : parts(fields[2])) {
                topics.add(topic(each));
            }
            Map<Uuid, Set<Integer>> assigned = new LinkedHashMap<>();
            for (String each : parts(fields[3])) {
                Uuid id = topic(each.split("-")[0]);
                int partition = Integer.parseInt(each.split("-")[1]);
                assigned.computeIfAbsent(id, x -> new HashSet<>()).add(partition);
                owners.computeIfAbsent(id, x -> new LinkedHashMap<>()).put(partition, fields[0]);
            }
            members.put(fields[0], new MemberSubscriptionAndAssignmentImpl(Optional.empty(),
                    fields[1].isEmpty() ? Optional.empty() : Optional.of(fields[1]),
                    topics, new Assignment(assigned)));
        }
        GroupAssignment found;
        try {
            found = assignor.assign(new GroupSpecImpl(members, type, owners), describer(counts));
        } catch (PartitionAssignorException problem) {
            return "failed";
        }
        List<String> said = new ArrayList<>();
        for (String id : members.keySet()) {
            Set<String> partitions = new TreeSet<>();
            if (found.members().containsKey(id)) {
                new TreeMap<>(found.members().get(id).partitions()).forEach((topic, each) -> each.forEach(
                        partition -> partitions.add(topic.getLeastSignificantBits() + "-" + partition)));
            }
            said.add(id + ";" + String.join(",", partitions));
        }
        return String.join(" ", said);
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return counts.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static List<String> parts(String text) {
        return text.isEmpty() ? List.of() : List.of(text.split(","));
    }
}
