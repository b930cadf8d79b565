import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Decodes messages with Kafka's generated classes and encodes them again.
 *
 * Request on stdin: class name (UTF), short version, int length (-1: encode a message as its constructor makes it), bytes.
 * Answer on stdout: int length and bytes; length -1: it failed, then the error (UTF).
 */
public class WireOracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.", "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new java.io.BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new java.io.BufferedOutputStream(System.out));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException e) {
                break;
            }
            short version = in.readShort();
            int length = in.readInt();
            byte[] raw = new byte[Math.max(length, 0)];
            in.readFully(raw);
            try {
                byte[] answer = again(find(name), version, length < 0 ? null : raw);
                out.writeInt(answer.length);
                out.write(answer);
            } catch (Throwable e) {
                out.writeInt(-1);
                Throwable cause = e.getCause() == null ? e : e.getCause();
                out.writeUTF(String.valueOf(cause));
            }
        }
        out.flush();
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException e) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static byte[] again(Class<?> type, short version, byte[] raw) throws Exception {
        Message message;
        if (raw == null) {
            message = (Message) type.getConstructor().newInstance();
        } else {
            ByteBuffer buffer = ByteBuffer.wrap(raw);
            Constructor<?> reading = type.getConstructor(Readable.class, short.class);
            message = (Message) reading.newInstance(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                throw new IllegalStateException(buffer.remaining() + " bytes left");
            }
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        return written.array();
    }
}
