import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;

/** Reads batches from the first file and prints their records; writes batches of every codec into the second. */
public class RecordBatches {
    public static void main(String[] args) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0]))));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                StringBuilder line = new StringBuilder();
                line.append(batch.compressionType().name).append(' ').append(batch.producerId()).append(' ');
                line.append(batch.isTransactional()).append(' ').append(batch.partitionLeaderEpoch()).append(' ');
                line.append(record.offset()).append(' ').append(record.timestamp()).append(' ');
                line.append(record.sequence()).append(' ').append(text(record.key())).append(' ').append(text(record.value()));
                for (Header header : record.headers())
                    line.append(' ').append(header.key()).append('=').append(header.value() == null ? "null" : header.value().length);
                System.out.println(line);
            }
        }
        ByteBuffer out = ByteBuffer.allocate(1 << 20);
        long offset = 0;
        for (CompressionType type : CompressionType.values()) {
            MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 18), RecordBatch.MAGIC_VALUE_V2,
                Compression.of(type).build(), TimestampType.CREATE_TIME, offset, -1L, 5L, (short) 1, 3, true, 9);
            for (int i = 0; i < 3; i++) {
                byte[] value = i == 2 ? null : ("value-" + type.name + "-").repeat(4000 * i + 1).getBytes(StandardCharsets.UTF_8);
                builder.append(1700000000000L + i, ("key-" + i).getBytes(StandardCharsets.UTF_8), value,
                    new Header[] {new RecordHeader("h", new byte[] {1, 2, (byte) i})});
            }
            MemoryRecords built = builder.build();
            out.put(built.buffer());
            offset += 3;
        }
        out.flip();
        byte[] bytes = new byte[out.remaining()];
        out.get(bytes);
        Files.write(Path.of(args[1]), bytes);
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes.length > 40 ? "#" + java.util.Arrays.hashCode(bytes) : new String(bytes, StandardCharsets.UTF_8);
    }
}
