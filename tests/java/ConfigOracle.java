// Answers what Apache Kafka makes of configurations: one JSON case a line in, one JSON result a line out.
//
//   {"kind":"value","table":"broker","name":...,"text":...}     -> {"value": text}
//   {"kind":"node","texts":{...}}                               -> {"values":{...}, "listeners":[...], ...}
//   {"kind":"properties","text":...}                            -> {"values":{...}}
//   {"kind":"topic","texts":{...},"previous":{...},"node":{..}} -> {}
//   {"kind":"group","texts":{...},"node":{...}}                 -> {}
//   {"kind":"dynamic","texts":{...},"perBroker":true}           -> {}
//   {"kind":"client-metrics","name":...,"texts":{...}}          -> {}
//   {"kind":"double","text":...}                                -> {"value": Double.toString}
// A refusal is {"error": message}.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // the log goes elsewhere
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> result = new LinkedHashMap<>();
            try {
                answer(JSON.readTree(line), result);
            } catch (Exception | AssertionError e) {
                result.clear();
                result.put("error", String.valueOf(e.getMessage()));
            }
            out.println(JSON.writeValueAsString(result));
        }
        out.flush();
    }

    static Properties texts(JsonNode node) {
        Properties props = new Properties();
        if (node != null) node.fields().forEachRemaining(e -> props.put(e.getKey(), e.getValue().asText()));
        return props;
    }

    static Map<String, String> map(JsonNode node) {
        Map<String, String> out = new TreeMap<>();
        texts(node).forEach((k, v) -> out.put((String) k, (String) v));
        return out;
    }

    static Map<String, ConfigDef.ConfigKey> table(String name) {
        switch (name) {
            case "broker": return KafkaConfig.configDef().configKeys();
            case "topic": return LogConfig.configKeys();
            case "group": return GroupConfig.CONFIG_DEF.configKeys();
            default: return ClientMetricsConfigs.configDef().configKeys();
        }
    }

    static void answer(JsonNode c, Map<String, Object> result) throws Exception {
        switch (c.get("kind").asText()) {
            case "value": {
                ConfigDef.ConfigKey key = table(c.get("table").asText()).get(c.get("name").asText());
                ConfigDef alone = new ConfigDef().define(key);
                Object value = alone.parse(Map.of(key.name, c.get("text").asText())).get(key.name);
                result.put("value", ConfigDef.convertToString(value, key.type));
                break;
            }
            case "double":
                result.put("value", Double.toString(Double.parseDouble(c.get("text").asText())));
                break;
            case "properties": {
                Properties props = new Properties();
                props.load(new StringReader(c.get("text").asText()));
                result.put("values", new TreeMap<>(props));
                break;
            }
            case "node":
                node(new KafkaConfig(texts(c.get("texts")), false), result);
                break;
            case "topic": {
                KafkaConfig broker = new KafkaConfig(texts(c.get("node")), false);
                LogConfig.validate(map(c.get("previous")), map(c.get("texts")), broker.extractLogConfigMap(),
                    broker.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
                break;
            }
            case "group": {
                KafkaConfig broker = new KafkaConfig(texts(c.get("node")), false);
                GroupConfig.validate(map(c.get("texts")), broker.groupCoordinatorConfig(), broker.shareGroupConfig());
                break;
            }
            case "dynamic":
                DynamicBrokerConfig.validateConfigs(texts(c.get("texts")), c.get("perBroker").asBoolean());
                break;
            case "client-metrics":
                ClientMetricsConfigs.validate(c.get("name").asText(), map(c.get("texts")));
                break;
            default:
                throw new IllegalArgumentException(c.toString());
        }
    }

    static void node(KafkaConfig k, Map<String, Object> result) {
        Map<String, String> values = new TreeMap<>();
        k.values().forEach((name, value) -> {
            ConfigDef.ConfigKey key = KafkaConfig.configDef().configKeys().get(name);
            values.put(name, ConfigDef.convertToString(value, key.type));
        });
        result.put("values", values);
        result.put("listeners", endpoints(k.listeners()));
        result.put("controllerListeners", endpoints(k.controllerListeners()));
        result.put("advertised", endpoints(k.effectiveAdvertisedBrokerListeners()));
        result.put("advertisedController", endpoints(k.effectiveAdvertisedControllerListeners()));
        result.put("interBroker", k.interBrokerListenerName().value());
        result.put("logDirs", k.logDirs());
        result.put("metadataLogDir", k.metadataLogDir());
        Map<String, String> topics = new TreeMap<>();
        k.extractLogConfigMap().forEach((name, value) -> topics.put(name,
            ConfigDef.convertToString(value instanceof Enum || name.equals("message.timestamp.type") ? value.toString() : value,
                LogConfig.configKeys().get(name).type)));
        result.put("topics", topics);
    }

    static List<String> endpoints(scala.collection.Seq<org.apache.kafka.common.Endpoint> all) {
        return scala.jdk.javaapi.CollectionConverters.asJava(all).stream()
            .map(e -> e.listener() + "|" + e.securityProtocol() + "|" + (e.host() == null ? "" : e.host()) + "|" + e.port()).toList();
    }
}
