import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * For how long Kafka throttles who has recorded so much at such times. Asked on stdin: a line "windows window-ms limit",
 * then a line "value time-ms" each; answered on stdout: milliseconds, a line each.
 */
public class RateOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        String[] head = in.readLine().split(" ");
        MetricConfig config = new MetricConfig().samples(Integer.parseInt(head[0]))
            .timeWindow(Long.parseLong(head[1]), TimeUnit.MILLISECONDS)
            .quota(Quota.upperBound(Double.parseDouble(head[2])));
        try (Metrics metrics = new Metrics()) {
            Sensor sensor = metrics.sensor("s");
            sensor.add(new MetricName("rate", "group", "", Map.of()), new Rate(), config);
            StringBuilder out = new StringBuilder();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] asked = line.split(" ");
                long time = Long.parseLong(asked[1]);
                long throttle = 0;
                try {
                    sensor.record(Double.parseDouble(asked[0]), time, true);
                } catch (QuotaViolationException e) {
                    throttle = QuotaUtils.throttleTime(e, time);
                }
                out.append(throttle).append('\n');
            }
            System.out.print(out);
        }
    }
}
