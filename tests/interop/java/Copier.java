import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The copier of tests/support/clients/group_copier.py with Kafka's own client, as its javadoc has it: what is not fatal
 * aborts the transaction, and the consumer goes back to what is committed.
 *
 * java Copier BOOTSTRAP SOURCE TARGET GROUP NAME PER_TRANSACTION ABORTED PROTOCOL
 */
public class Copier {
    static final Random CHANCE = new Random();

    public static void main(String[] args) {
        try {
            copy(args[0], args[1], args[2], args[3], args[4], args[5], Double.parseDouble(args[6]), args[7]);
        } catch (Throwable error) {
            say("failed " + error);
            Runtime.getRuntime().halt(1);  // whatever the library still waits for
        }
    }

    static void copy(String bootstrap, String source, String target, String group, String name, String perTransaction,
            double aborted, String protocol) {
        var consumer = new KafkaConsumer<>(settings(bootstrap, Map.of(
            "group.id", group,
            "group.protocol", protocol,
            "max.poll.records", perTransaction,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed"),
            protocol.equals("classic")
                ? Map.of("session.timeout.ms", "3000", "heartbeat.interval.ms", "400") : Map.of()),
            new StringDeserializer(), new StringDeserializer());
        var producer = new KafkaProducer<>(
            settings(bootstrap, Map.of("transactional.id", name, "max.block.ms", "15000"), Map.of()),
            new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        consumer.subscribe(List.of(source));
        say("begun");
        while (true) {
            var records = consumer.poll(Duration.ofMillis(300));
            if (records.isEmpty()) {
                say("idle");
                continue;
            }
            boolean done = false;
            try {
                producer.beginTransaction();
                var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (CHANCE.nextDouble() >= aborted) {
                    producer.commitTransaction();
                    done = true;
                }
            } catch (ApplicationRecoverableException | InvalidConfigurationException error) {
                throw error;  // fatal for the producer: another instance goes on
            } catch (KafkaException error) {
                say("refused " + error.getClass().getSimpleName());
            }
            if (done) {
                say("committed " + records.count());
            } else {
                producer.abortTransaction();
                rewind(consumer);
                say("aborted 0");
            }
        }
    }

    static void rewind(KafkaConsumer<String, String> consumer) {
        consumer.committed(consumer.assignment()).forEach((place, committed) ->
            consumer.seek(place, committed == null ? 0 : committed.offset()));
    }

    static Properties settings(String bootstrap, Map<String, String> some, Map<String, String> more) {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "3000");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.putAll(some);
        settings.putAll(more);
        return settings;
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
