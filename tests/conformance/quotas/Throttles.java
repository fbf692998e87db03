// Asks Rate and TokenBucket of Apache Kafka 4.3.1 how long to wait: asking.py says how.
import java.io.*;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.common.metrics.stats.*;

public class Throttles {
    static long now = 0;

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            String[] fields = line.split("\t");
            System.out.println(String.join("\t", fields[0], fields[1], fields[2], fields[3], fields[4], answer(fields)));
        }
    }

    static String answer(String[] fields) {
        boolean bucket = fields[0].equals("bucket");
        double limit = Double.parseDouble(fields[3]);
        MetricConfig config = new MetricConfig()
            .samples(Integer.parseInt(fields[1]))
            .timeWindow(Long.parseLong(fields[2]), TimeUnit.MILLISECONDS)
            .quota(new Quota(limit, true));
        now = 1_000_000_000_000L;
        Metrics metrics = new Metrics(config);
        Sensor sensor = metrics.sensor("s");
        MetricName name = metrics.metricName("n", "g");
        Rate rate = new Rate();
        TokenBucket tokens = new TokenBucket();
        if (bucket) sensor.add(name, tokens, config); else sensor.add(name, rate, config);
        StringJoiner answers = new StringJoiner(" ");
        for (String event : fields[4].split(" ")) {
            String[] parts = event.split(":");
            now += Long.parseLong(parts[0]);
            long wait = 0;
            try {
                sensor.record(Double.parseDouble(parts[1]), now, true);
            } catch (QuotaViolationException e) {
                if (bucket) wait = Math.round(-e.value() / e.bound() * 1000);
                else wait = Math.round((e.value() - e.bound()) / e.bound() * rate.windowSize(config, now));
            }
            answers.add(Long.toString(wait));
        }
        metrics.close();
        return answers.toString();
    }
}
