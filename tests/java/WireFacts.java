import java.util.stream.Collectors;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Prints what Kafka knows of error codes, APIs and types of records, a line each. */
public class WireFacts {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            System.out.println("error " + error.name() + " " + error.code() + " "
                + (error.exception() instanceof RetriableException));
        }
        for (ApiKeys api : ApiKeys.values()) {
            System.out.println("key " + api.name() + " " + api.id);
            if (!api.hasValidVersion()) {
                continue;
            }
            String listeners = java.util.Arrays.stream(ListenerType.values()).filter(api::inScope)
                .map(listener -> listener.name().toLowerCase()).sorted().collect(Collectors.joining(","));
            System.out.println("api " + api.id + " " + api.name + " " + api.oldestVersion() + " "
                + api.latestVersion(false) + " " + listeners);
            for (short version = api.oldestVersion(); version <= api.latestVersion(); version++) {
                System.out.println("headers " + api.id + " " + version + " " + api.requestHeaderVersion(version) + " "
                    + api.responseHeaderVersion(version));
            }
        }
        for (MetadataRecordType type : MetadataRecordType.values()) {
            System.out.println("metadata " + type.id() + " " + nameOf(type.newMetadataRecord()));
        }
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            System.out.println("group " + type.id() + " " + nameOf(type.newRecordKey()) + " "
                + nameOf(type.newRecordValue()) + " " + type.highestSupportedVersion());
        }
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values()) {
            System.out.println("transaction " + type.id() + " " + nameOf(type.newRecordKey()) + " "
                + nameOf(type.newRecordValue()) + " " + type.highestSupportedVersion());
        }
        for (var type : org.apache.kafka.coordinator.share.generated.CoordinatorRecordType.values()) {
            System.out.println("share " + type.id() + " " + nameOf(type.newRecordKey()) + " "
                + nameOf(type.newRecordValue()) + " " + type.highestSupportedVersion());
        }
    }

    private static String nameOf(Object message) {
        return message.getClass().getSimpleName();
    }
}
