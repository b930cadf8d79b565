// What Apache Kafka makes of records of __consumer_offsets: one request a line in, one JSON result a line out.
//
//   read <hex key> <hex value or ->                              -> key and value as JSON, and both written again as hex
//   offset <group> <topic> <partition> <offset> <epoch> <metadata> <commit ms> <expire ms or -1> <topic id>
//   group <group> <generation> <protocol> <instance or -> <member> <subscription hex> <assignment hex> <now ms>
//   empty <group> <now ms>                                       -> the record that Kafka's helpers write, as hex
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

public class GroupRecordOracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] a = line.split(" ", -1);
            ObjectNode result = JSON.createObjectNode();
            try {
                CoordinatorRecord record = switch (a[0]) {
                    case "read" -> SERDE.deserialize(bytes(a[1]), bytes(a[2]));
                    case "offset" -> offset(a);
                    case "group" -> group(a);
                    case "empty" -> GroupCoordinatorRecordHelpers.newEmptyGroupMetadataRecord(
                        new ClassicGroup(new LogContext(), a[1], ClassicGroupState.EMPTY, Time.SYSTEM, 0,
                            Optional.empty(), Optional.empty(), Optional.empty(), Optional.of(Long.parseLong(a[2]))));
                    default -> throw new IllegalArgumentException(a[0]);
                };
                result.put("keyHex", HEX.formatHex(SERDE.serializeKey(record)));
                result.set("key", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
                if (record.value() != null) {
                    result.put("valueHex", HEX.formatHex(SERDE.serializeValue(record)));
                    result.put("version", record.value().version());
                    result.set("value", CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                        record.value().message(), record.value().version()));
                }
            } catch (Exception e) {
                result.put("error", String.valueOf(e));
            }
            out.println(JSON.writeValueAsString(result));
        }
        out.flush();
    }

    static ByteBuffer bytes(String hex) {
        return hex.equals("-") ? null : ByteBuffer.wrap(HEX.parseHex(hex));
    }

    static CoordinatorRecord offset(String[] a) {
        int epoch = Integer.parseInt(a[5]);
        long expire = Long.parseLong(a[8]);
        return GroupCoordinatorRecordHelpers.newOffsetCommitRecord(a[1], a[2], Integer.parseInt(a[3]),
            new OffsetAndMetadata(
                Long.parseLong(a[4]),
                epoch == -1 ? OptionalInt.empty() : OptionalInt.of(epoch),
                a[6],
                Long.parseLong(a[7]),
                expire == -1 ? OptionalLong.empty() : OptionalLong.of(expire),
                Uuid.fromString(a[9])));
    }

    static CoordinatorRecord group(String[] a) {
        ClassicGroup group = new ClassicGroup(new LogContext(), a[1], ClassicGroupState.STABLE, Time.SYSTEM,
            Integer.parseInt(a[2]), Optional.of("consumer"), Optional.of(a[3]), Optional.of(a[5]),
            Optional.of(Long.parseLong(a[8])));
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestProtocol().setName(a[3]).setMetadata(HEX.parseHex(a[6])));
        Optional<String> instance = a[4].equals("-") ? Optional.empty() : Optional.of(a[4]);
        group.add(new ClassicGroupMember(a[5], instance, "client", "/10.0.0.1", 20_000, 10_000, "consumer", protocols));
        return GroupCoordinatorRecordHelpers.newGroupMetadataRecord(group, Map.of(a[5], HEX.parseHex(a[7])));
    }
}
