import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints what Apache Kafka says of its metadata.version levels and features, a line each, for test_features.py. */
public class MetadataVersions {
    public static void main(String[] args) {
        for (MetadataVersion v : MetadataVersion.VERSIONS) {
            if (!v.isProduction()) continue;
            System.out.println(String.join(" ", "level", "" + v.featureLevel(), v.version(), "" + v.didMetadataChange(),
                "" + v.registerBrokerRecordVersion(), "" + v.partitionRecordVersion(), "" + v.partitionChangeRecordVersion(),
                "" + v.fetchRequestVersion(), "" + v.listOffsetRequestVersion(),
                "" + v.isScramSupported(), "" + v.isMetadataTransactionSupported(), "" + v.isDelegationTokenSupported(),
                "" + v.isControllerRegistrationSupported(), "" + v.isDirectoryAssignmentSupported(),
                "" + v.isElrSupported(), "" + v.isMigrationSupported(), "" + v.isCordonedLogDirsSupported(),
                "" + !v.isLeaderEpochBumpRequiredOnIsrShrink()));
        }
        for (Feature f : Feature.PRODUCTION_FEATURES) {
            System.out.println("feature " + f.featureName() + " " + f.minimumProduction() + " " + f.latestProduction());
            for (MetadataVersion v : MetadataVersion.VERSIONS)
                if (v.isProduction())
                    System.out.println("default " + f.featureName() + " " + v.featureLevel() + " " + f.defaultLevel(v));
            for (FeatureVersion fv : f.featureVersions())
                if (fv.featureLevel() <= f.latestProduction())
                    System.out.println("needs " + f.featureName() + " " + fv.featureLevel() + " "
                        + fv.bootstrapMetadataVersion().featureLevel() + " " + fv.dependencies());
        }
    }
}
