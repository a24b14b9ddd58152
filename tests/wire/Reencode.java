import java.io.BufferedReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Kafka's own classes as a second opinion. Each line of the file named by the argument is a message's name, its version and its
 * bytes in hex; each is read by Kafka's class and written again. Kafka's error codes and API versions are printed too.
 */
public class Reencode {
    static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
    };

    public static void main(String[] arguments) throws Exception {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println("error " + error.code() + " " + error.name() + " " + retriable);
        }
        for (ApiKeys api : ApiKeys.values()) {
            System.out.println("api " + api.id + " " + api.name + " " + api.oldestVersion() + " " + api.latestVersion(false));
        }
        try (BufferedReader lines = Files.newBufferedReader(Path.of(arguments[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split(" ", 3);
                if (parts[0].equals("batch")) {
                    System.out.println("batch " + records(parts[2]));
                } else {
                    System.out.println("message " + again(parts[0], Short.parseShort(parts[1]), parts[2]));
                }
            }
        }
    }

    static String again(String name, short version, String hex) {
        try {
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            Message message = (Message) find(name).getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "left over: " + bytes.remaining() + " bytes";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return HexFormat.of().formatHex(out.array());
        } catch (ReflectiveOperationException | RuntimeException problem) {
            Throwable cause = problem.getCause() == null ? problem : problem.getCause();
            return "refused: " + cause;
        }
    }

    /** What Kafka finds in a record batch: offset, timestamp, key, value and headers of each record. */
    static String records(String hex) {
        StringBuilder found = new StringBuilder();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            found.append(batch.compressionType().name);
            for (Record record : batch) {
                found.append(" ").append(record.offset()).append(",").append(record.timestamp());
                found.append(",").append(text(record.key())).append(",").append(text(record.value()));
                for (Header header : record.headers()) {
                    ByteBuffer value = header.value() == null ? null : ByteBuffer.wrap(header.value());
                    found.append(",").append(header.key()).append("=").append(text(value));
                }
            }
        }
        return found.toString();
    }

    static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PLACES) {
            try {
                return Class.forName(String.format(place, name));
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
