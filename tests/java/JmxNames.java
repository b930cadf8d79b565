import com.sun.tools.attach.VirtualMachine;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** What a running Kafka shows through JMX: a line a bean, a tab, its attributes as name=value joined by tabs. */
public class JmxNames {
    public static void main(String[] args) throws Exception {
        String url = VirtualMachine.attach(args[0]).startLocalManagementAgent();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            for (ObjectName name : new TreeSet<>(beans.queryNames(new ObjectName("kafka.*:*"), null))) {
                String attributes = Stream.of(beans.getMBeanInfo(name).getAttributes())
                    .map(MBeanAttributeInfo::getName)
                    .map(attribute -> attribute + "=" + value(beans, name, attribute))
                    .collect(Collectors.joining("\t"));
                System.out.println(name.getDomain() + ":" + name.getKeyPropertyListString() + "\t" + attributes);
            }
        }
    }

    private static Object value(MBeanServerConnection beans, ObjectName name, String attribute) {
        try {
            return beans.getAttribute(name, attribute);
        } catch (Exception e) {
            return "";
        }
    }
}
