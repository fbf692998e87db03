// A worker of tests/support/clients/share_workers.py: it says each record that it has worked on, and accepts it then.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareWorker {
    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "50");
        settings.put("reconnect.backoff.ms", "50");
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback((offsets, error) -> {
            if (error != null) {
                System.out.println("refused " + error.getClass().getSimpleName());
            }
        });
        consumer.subscribe(List.of(arguments[1]));
        System.out.println("begun");
        while (true) {
            for (var record : consumer.poll(Duration.ofMillis(300))) {
                System.out.println("did " + record.value() + " " + record.deliveryCount().orElse((short) 0));
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            consumer.commitSync();
        }
    }
}
