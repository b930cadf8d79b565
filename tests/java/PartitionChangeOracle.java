// What Apache Kafka's controller makes of a wanted partition change: one request a line in (fields by ';', lists by ','),
// the value of the record as hex a line out, or "-" when nothing changes.
//
//   level;elr(0/1);min isr;election;acceptable;replicas;isr;removing;adding;elr;last known elr;leader;recovering;
//   target isr;target replicas;target removing;target adding;target recovering;unclean shutdown
//
// Lists not to be set are "-". Broker n keeps its replicas in the directory 1000 + n.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class PartitionChangeOracle {
    static final MetadataRecordSerde SERDE = new MetadataRecordSerde();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(";", -1)));
        }
        out.flush();
    }

    static String answer(String[] f) {
        List<Integer> acceptable = list(f[4]);
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(f[5]))
            .setDirectories(Arrays.stream(array(f[5])).mapToObj(b -> directory(b)).toArray(Uuid[]::new))
            .setIsr(array(f[6]))
            .setRemovingReplicas(array(f[7]))
            .setAddingReplicas(array(f[8]))
            .setElr(array(f[9]))
            .setLastKnownElr(array(f[10]))
            .setLeader(Integer.parseInt(f[11]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(f[12])))
            .setLeaderEpoch(5)
            .setPartitionEpoch(7)
            .build();
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, new Uuid(0, 42), 3, acceptable::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(f[0])), Integer.parseInt(f[2]), f[1].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(f[3]));
        builder.setDefaultDirProvider(PartitionChangeOracle::directory);
        if (!f[13].equals("-")) builder.setTargetIsr(list(f[13]));
        if (!f[14].equals("-")) builder.setTargetReplicas(list(f[14]));
        if (!f[15].equals("-")) builder.setTargetRemoving(list(f[15]));
        if (!f[16].equals("-")) builder.setTargetAdding(list(f[16]));
        if (!f[17].equals("-")) builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(f[17])));
        if (!f[18].equals("-")) builder.setUncleanShutdownReplicas(list(f[18]));
        Optional<ApiMessageAndVersion> record = builder.build();
        if (record.isEmpty()) return "-";
        ObjectSerializationCache cache = new ObjectSerializationCache();
        java.nio.ByteBuffer buffer = java.nio.ByteBuffer.allocate(SERDE.recordSize(record.get(), cache));
        SERDE.write(record.get(), cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }

    static Uuid directory(int broker) {
        return new Uuid(0, 1000 + broker);
    }

    static List<Integer> list(String text) {
        return text.isEmpty() ? List.of() : Stream.of(text.split(",")).map(Integer::valueOf).toList();
    }

    static int[] array(String text) {
        return list(text).stream().mapToInt(Integer::intValue).toArray();
    }
}
