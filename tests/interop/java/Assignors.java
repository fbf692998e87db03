import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/** Kafka's own assignors, asked line by line: "assign", "again" (a subscription read and written) or "said" (user data). */
public class Assignors {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] parts = in.nextLine().split("\\|", -1);
            String answer;
            try {
                answer = switch (parts[0]) {
                    case "assign" -> assign(assignor(parts[1]), parts[2], parts[3]);
                    case "again" -> again(parts[1]);
                    default -> said(assignor(parts[1]), parts[2], Integer.parseInt(parts[3]), parts[4]);
                };
            } catch (Exception e) {
                answer = "error " + e;
            }
            System.out.println(answer);
        }
    }

    static ConsumerPartitionAssignor assignor(String name) {
        for (ConsumerPartitionAssignor each : List.of(new RangeAssignor(), new RoundRobinAssignor(),
                new StickyAssignor(), new CooperativeStickyAssignor()))
            if (each.name().equals(name)) return each;
        throw new IllegalArgumentException(name);
    }

    /** topics: "name:count name:count"; members: "id;instance;subscription id;instance;subscription", in their order. */
    static String assign(ConsumerPartitionAssignor assignor, String topics, String members) {
        Node node = new Node(0, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topics.split(" ")) {
            String[] of = topic.split(":");
            for (int p = 0; p < Integer.parseInt(of[1]); p++)
                partitions.add(new PartitionInfo(of[0], p, node, new Node[] {node}, new Node[] {node}));
        }
        Map<String, Subscription> subscriptions = new java.util.HashMap<>();
        for (String member : members.split(" ")) {
            String[] of = member.split(";", -1);
            Subscription said = ConsumerProtocol.deserializeSubscription(bytes(of[2]));
            said.setGroupInstanceId(of[1].isEmpty() ? Optional.empty() : Optional.of(of[1]));
            subscriptions.put(of[0], said);
        }
        Cluster cluster = new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
        var found = assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        List<String> out = new ArrayList<>();
        new TreeMap<>(found).forEach((id, what) -> out.add(id + ";" + hex(ConsumerProtocol.serializeAssignment(what))));
        return String.join(" ", out);
    }

    static String again(String subscription) {
        return hex(ConsumerProtocol.serializeSubscription(ConsumerProtocol.deserializeSubscription(bytes(subscription))));
    }

    static String said(ConsumerPartitionAssignor assignor, String assignment, int generation, String topics) {
        assignor.onAssignment(ConsumerProtocol.deserializeAssignment(bytes(assignment)),
                new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
        ByteBuffer said = assignor.subscriptionUserData(new TreeSet<>(List.of(topics.split(" "))));
        return said == null ? "none" : hex(said);
    }

    static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HEX.parseHex(hex));
    }

    static String hex(ByteBuffer buffer) {
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        return HEX.formatHex(out);
    }
}
