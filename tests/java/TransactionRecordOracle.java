import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.*;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.server.common.TransactionVersion;

/**
 * Apache Kafka's own records of __transaction_state. Each line of the input: id, transaction.version, number of the
 * state, producer id, previous and next producer id, epoch, timeout, last update, start, version of the client, and
 * partitions as topic:number. Each line of the output: key and value in hexadecimal digits.
 */
public class TransactionRecordOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            HashSet<TopicPartition> partitions = new HashSet<>();
            for (int i = 11; i < f.length; i++) {
                int colon = f[i].lastIndexOf(':');
                partitions.add(new TopicPartition(f[i].substring(0, colon), Integer.parseInt(f[i].substring(colon + 1))));
            }
            TxnTransitMetadata values = new TxnTransitMetadata(Long.parseLong(f[3]), Long.parseLong(f[4]),
                Long.parseLong(f[5]), Short.parseShort(f[6]), (short) -1, Integer.parseInt(f[7]),
                TransactionState.fromId(Byte.parseByte(f[2])), partitions, Long.parseLong(f[9]), Long.parseLong(f[8]),
                TransactionVersion.fromFeatureLevel(Short.parseShort(f[10])));
            TransactionVersion level = TransactionVersion.fromFeatureLevel(Short.parseShort(f[1]));
            HexFormat hex = HexFormat.of();
            String value;
            try {
                value = hex.formatHex(TransactionLog.valueToBytes(values, level));
            } catch (RuntimeException e) {
                value = e.getClass().getSimpleName();
            }
            System.out.println(hex.formatHex(TransactionLog.keyToBytes(f[0])) + " " + value);
        }
    }
}
