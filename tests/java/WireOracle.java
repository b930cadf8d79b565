import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;

/**
 * Does to messages, with Kafka's classes, what the first argument says:
 *
 *   again   decodes them and encodes them again (a length of -1: encodes a message as its constructor makes it)
 *   json    builds them of JSON and encodes them
 *   random  makes random ones, from the schemas in Kafka's classes, and encodes them; the second argument is the seed
 *   error   encodes the response with which Kafka says INVALID_REQUEST, "wrong", to a request
 *   count   tells the errors that Kafka counts in a response, as {CODE=times, ...}
 *
 * Asked on stdin: class name (UTF), short version, int length, as many bytes. Answered on stdout: int length and bytes, or
 * length -1 and the error (UTF).
 */
public class WireOracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.", "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };
    private static final int[] LENGTHS = {0, 1, 1, 2, 3, 10};
    private static final String[] TEXTS = {"", "a", "topic-1", "gr\u00f6\u00dfe", "\u65e5\u672c", "x".repeat(130)};
    private static final ObjectMapper JSON = new ObjectMapper();

    private static Random random;

    public static void main(String[] args) throws Exception {
        random = new Random(args.length > 1 ? Long.parseLong(args[1]) : 0);
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
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
                byte[] answer = answer(args[0], name, version, length < 0 ? null : raw);
                out.writeInt(answer.length);
                out.write(answer);
            } catch (Throwable e) {
                Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
                out.writeInt(-1);
                out.writeUTF(String.valueOf(cause));
            }
        }
        out.flush();
    }

    private static byte[] answer(String mode, String name, short version, byte[] raw) throws Exception {
        Class<?> type = find(name);
        switch (mode) {
            case "json":
                Method read = Class.forName(type.getName() + "JsonConverter").getMethod("read", JsonNode.class, short.class);
                return written((Message) read.invoke(null, JSON.readTree(raw), version), version);
            case "random":
                Schema schema = ((Schema[]) type.getField("SCHEMAS").get(null))[version];
                Struct struct = (Struct) value(schema);
                ByteBuffer made = ByteBuffer.allocate(schema.sizeOf(struct));
                schema.write(made, struct);
                return written(decoded(type, version, made.array()), version);
            case "error":
                short key = ((org.apache.kafka.common.protocol.ApiMessage) type.getConstructor().newInstance()).apiKey();
                AbstractRequest request = AbstractRequest.parseRequest(
                    ApiKeys.forId(key), version, new ByteBufferAccessor(ByteBuffer.wrap(raw))).request;
                return written(request.getErrorResponse(0, Errors.INVALID_REQUEST.exception("wrong")).data(), version);
            case "count":
                short api = ((org.apache.kafka.common.protocol.ApiMessage) type.getConstructor().newInstance()).apiKey();
                AbstractResponse response = AbstractResponse.parseResponse(
                    ApiKeys.forId(api), new ByteBufferAccessor(ByteBuffer.wrap(raw)), version);
                Map<Short, Integer> counts = new TreeMap<>();
                response.errorCounts().forEach((error, times) -> counts.merge(error.code(), times, Integer::sum));
                return counts.toString().getBytes(java.nio.charset.StandardCharsets.UTF_8);
            default:
                Message fresh = (Message) type.getConstructor().newInstance();
                return written(raw == null ? fresh : decoded(type, version, raw), version);
        }
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

    private static Message decoded(Class<?> type, short version, byte[] raw) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(raw);
        Message message = (Message) type.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes left");
        }
        return message;
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static Object value(Type type) {
        if (type.isNullable() && random.nextInt(5) == 0) {
            return null;
        }
        if (type instanceof Schema) {
            Schema schema = (Schema) type;
            Struct struct = new Struct(schema);
            for (BoundField field : schema.fields()) {
                struct.set(field, value(field.def.type));
            }
            return struct;
        }
        if (type instanceof TaggedFields) {
            return tags((TaggedFields) type);
        }
        if (type.isArray()) {
            Object[] items = new Object[length()];
            for (int i = 0; i < items.length; i++) {
                items[i] = value(type.arrayElementType().get());
            }
            return items;
        }
        return scalar(type.toString().replace("COMPACT_", "").replace("NULLABLE_", ""));
    }

    private static Object tags(TaggedFields type) {
        TreeMap<Integer, Object> tags = new TreeMap<>();
        for (Map.Entry<Integer, Field> entry : type.fields().entrySet()) {
            if (random.nextBoolean()) {
                tags.put(entry.getKey(), value(entry.getValue().type));
            }
        }
        for (int i = random.nextInt(4) - 2; i > 0; i--) {
            int tag = 100 + random.nextInt(1000);
            tags.put(tag, new RawTaggedField(tag, bytes()));
        }
        return tags;
    }

    private static Object scalar(String type) {
        switch (type) {
            case "BOOLEAN": return random.nextBoolean();
            case "INT8": return (byte) random.nextInt();
            case "INT16": return (short) random.nextInt();
            case "UINT16": return random.nextInt(1 << 16);
            case "INT32": return random.nextInt();
            case "UINT32": return random.nextLong() & 0xffffffffL;
            case "INT64": return random.nextLong();
            case "UUID": return new Uuid(random.nextLong(), random.nextLong());
            case "FLOAT64": return random.nextGaussian();
            case "STRING": return TEXTS[random.nextInt(TEXTS.length)];
            case "BYTES": return ByteBuffer.wrap(bytes());
            case "RECORDS": return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
            default: throw new IllegalArgumentException(type);
        }
    }

    private static int length() {
        return LENGTHS[random.nextInt(LENGTHS.length)];
    }

    private static byte[] bytes() {
        byte[] made = new byte[random.nextInt(4) == 0 ? 130 : random.nextInt(4)];
        random.nextBytes(made);
        return made;
    }
}
