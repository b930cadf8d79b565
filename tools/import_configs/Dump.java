// Prints the facts of every configuration key that the Kafka jars on the class path define; no documentation texts.
//
// One fact a line, fields separated by tabs:
//   key    TABLE NAME TYPE DEFAULT IMPORTANCE VALIDATOR INTERNAL
//   mode   NAME  per-broker | cluster-wide | ...          how a broker key may change at run time
//   topic  NAME  BROKER-NAME MULTIPLIER ...               what a topic key falls back to, in order
//   group  NAME  BROKER-NAME
//   broker NAME  SYNONYM ...                              other spellings of the same broker key, in order
//   set    NAME  VALUE ...
// DEFAULT is "!" when there is none (the key is required), "~" for null, otherwise "=" and the text.
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;

public class Dump {
    public static void main(String[] args) throws Exception {
        Map<String, ConfigDef.ConfigKey> broker = kafka.server.KafkaConfig.configDef().configKeys();
        keys("broker", broker);
        Map<String, ConfigDef.ConfigKey> onlyDynamic = new TreeMap<>(DynamicConfig.Broker.configKeys());
        onlyDynamic.keySet().removeAll(broker.keySet());
        keys("dynamic", onlyDynamic);
        keys("topic", org.apache.kafka.storage.internals.log.LogConfig.configKeys());
        keys("group", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF.configKeys());
        keys("client-metrics", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef().configKeys());
        keys("quota", QuotaConfig.userAndClientQuotaConfigs().configKeys());
        keys("ip-quota", QuotaConfig.ipConfigs().configKeys());
        new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes()).forEach((name, mode) -> line("mode", name, mode));
        topics();
        groups();
        for (String name : new TreeSet<>(broker.keySet())) {
            List<String> names = DynamicBrokerConfig.brokerConfigSynonyms(name, true);
            if (!names.equals(List.of(name))) {
                List<String> out = new ArrayList<>(List.of("broker", name));
                out.addAll(names);
                line(out.toArray(new String[0]));
            }
        }
        set("listener-mechanism", "LISTENER_MECHANISM_CONFIGS");
        set("cluster-level-listener", "CLUSTER_LEVEL_LISTENER_CONFIGS");
        set("security", "DYNAMIC_SECURITY_CONFIGS");
    }

    static void topics() {
        for (Map.Entry<String, List<ConfigSynonym>> e : new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
            List<String> out = new ArrayList<>(List.of("topic", e.getKey()));
            for (ConfigSynonym s : e.getValue()) {
                out.add(s.name());
                long factor = 1;
                try {
                    factor = Long.parseLong(s.converter().apply("1"));
                } catch (RuntimeException notANumber) {
                    // a converter that does not take numbers leaves the text as it is
                }
                out.add(Long.toString(factor));
            }
            line(out.toArray(new String[0]));
        }
    }

    static void groups() {
        Map<String, Optional<String>> all = new TreeMap<>(org.apache.kafka.coordinator.group.GroupConfig.ALL_GROUP_CONFIG_SYNONYMS);
        all.forEach((name, synonym) -> synonym.ifPresent(s -> line("group", name, s)));
    }

    static void set(String name, String field) throws Exception {
        Field f = DynamicBrokerConfig.class.getDeclaredField(field);
        f.setAccessible(true);
        List<String> out = new ArrayList<>(List.of("set", name));
        for (Object o : (Collection<?>) f.get(null)) out.add(o.toString());
        java.util.Collections.sort(out.subList(2, out.size()));
        line(out.toArray(new String[0]));
    }

    static void keys(String table, Map<String, ConfigDef.ConfigKey> keys) throws Exception {
        for (ConfigDef.ConfigKey k : new TreeMap<>(keys).values()) {
            String value = !k.hasDefault() ? "!" : k.defaultValue == null ? "~"
                : "=" + ConfigDef.convertToString(k.defaultValue, k.type);
            line("key", table, k.name, k.type.name().toLowerCase(), value, k.importance.name().toLowerCase(),
                validator(k.validator), Boolean.toString(k.internalConfig));
        }
    }

    static Object get(Object from, String field) throws Exception {
        Field f = from.getClass().getDeclaredField(field);
        f.setAccessible(true);
        return f.get(from);
    }

    static String text(Object o) {
        return o == null ? "" : o.toString();
    }

    static String joined(Object list) {
        List<String> out = new ArrayList<>();
        for (Object o : (Collection<?>) list) out.add(o.toString());
        return String.join(",", out);
    }

    static String validator(ConfigDef.Validator v) throws Exception {
        if (v == null) return "-";
        switch (v.getClass().getSimpleName()) {
            case "Range":
                return "range:" + text(get(v, "min")) + ".." + text(get(v, "max"));
            case "ValidString":
                return "in:" + joined(get(v, "validStrings"));
            case "CaseInsensitiveValidString":
                return "ci:" + String.join(",", new TreeSet<>((Collection<String>) get(v, "validStrings")));
            case "ValidList": {
                String options = ((Boolean) get(v, "isEmptyAllowed") ? "e" : "") + ((Boolean) get(v, "isNullAllowed") ? "n" : "");
                return "list" + options + ":" + joined(get(get(v, "validString"), "validStrings"));
            }
            case "LambdaValidator":
                return "lambda:" + v;
            default:
                return "named:" + v.getClass().getSimpleName() + "@" + v.getClass().getName();
        }
    }

    static void line(String... fields) {
        for (String f : fields) {
            if (Pattern.compile("[\t\n]").matcher(f).find()) throw new IllegalStateException("a tab or newline in " + f);
        }
        System.out.println(String.join("\t", fields));
    }
}
