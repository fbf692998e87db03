// Kafka's own clients behind a pipe: a JSON object of strings a line on standard input, one a line as the answer.
// Each client has a name and a thread, so that one may block in a call while another works.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;

public class Clients {
    static final Pattern FIELD =
        Pattern.compile("\"((?:[^\"\\\\]|\\\\.)*)\": \"((?:[^\"\\\\]|\\\\.)*)\"");
    static final Pattern ESCAPE = Pattern.compile("\\\\(u[0-9a-f]{4}|.)");
    static final PrintStream OUT = System.out;

    final Map<String, KafkaProducer<String, String>> producers = new ConcurrentHashMap<>();
    final Map<String, KafkaConsumer<String, String>> consumers = new ConcurrentHashMap<>();
    final Map<String, ExecutorService> threads = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var clients = new Clients();
        say(Map.of("call", "ready"));
        for (String line; (line = input.readLine()) != null; ) {
            clients.start(fields(line));
        }
        System.exit(0);
    }

    void start(Map<String, String> call) {
        threads.computeIfAbsent(call.get("client"), name -> Executors.newSingleThreadExecutor()).execute(() -> {
            var answer = new LinkedHashMap<String, String>();
            answer.put("call", call.get("call"));
            try {
                carryOut(call, answer);
            } catch (Throwable error) {
                var cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", cause.getClass().getSimpleName());
                answer.put("detail", String.valueOf(cause.getMessage()));
                answer.put("under", cause.getCause() == null ? "" : cause.getCause().getClass().getSimpleName());
            }
            say(answer);
        });
    }

    void carryOut(Map<String, String> call, Map<String, String> answer) throws Exception {
        var name = call.get("client");
        switch (call.get("do")) {
            case "producer" -> producers.put(name,
                new KafkaProducer<>(settings(call), new StringSerializer(), new StringSerializer()));
            case "consumer" -> consumers.put(name,
                new KafkaConsumer<>(settings(call), new StringDeserializer(), new StringDeserializer()));
            case "init" -> producers.get(name).initTransactions();
            case "begin" -> producers.get(name).beginTransaction();
            case "send" -> send(producers.get(name), call, answer);
            case "flush" -> producers.get(name).flush();
            case "sendOffsets" -> sendOffsets(producers.get(name), call);
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "round" -> round(producers.get(name), call);
            case "subscribe" -> consumers.get(name).subscribe(List.of(call.get("topic").split(",")));
            case "subscribePattern" -> consumers.get(name).subscribe(new SubscriptionPattern(call.get("pattern")));
            case "commitSync" -> consumers.get(name).commitSync();
            case "commitAt" -> consumers.get(name).commitSync(places(call.get("places")));
            case "assigned" -> answer.put("assigned", consumers.get(name).assignment().stream()
                .map(TopicPartition::toString).sorted().collect(Collectors.joining(",")));
            case "poll" -> poll(consumers.get(name), call, answer);
            case "copy" -> copy(producers.get(name), consumers.get(call.get("from")), call, answer);
            case "tool" -> tool(call.get("tool"), call.get("arguments").split(" "), answer);
            case "close" -> close(name);
            default -> throw new IllegalArgumentException(call.get("do"));
        }
    }

    // One of Kafka's command-line tools, called as its script does. What it prints, and the exit code it asks for; those
    // that end by themselves have none. Only one at a time: both streams and the exit are the JVM's.
    static synchronized void tool(String name, String[] arguments, Map<String, String> answer) throws Exception {
        var main = Class.forName("org.apache.kafka.tools." + name).getMethod("main", String[].class);
        var printed = new ByteArrayOutputStream();
        var errors = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> {
            answer.putIfAbsent("exit", String.valueOf(code));
            throw new Ended();  // a tool may catch this, and ask to exit once more
        });
        try {
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                throw new ExecutionException(error.getCause());
            }
        } finally {
            System.setOut(OUT);
            System.setErr(errors);
            Exit.resetExitProcedure();
        }
        answer.put("out", printed.toString(StandardCharsets.UTF_8));
    }

    static class Ended extends Error {
    }

    // Sends and waits for every answer, unless told not to wait.
    void send(KafkaProducer<String, String> producer, Map<String, String> call, Map<String, String> answer)
            throws Exception {
        var sent = new ArrayList<Future<RecordMetadata>>();
        for (var value : call.get("values").split(",")) {
            sent.add(producer.send(record(call, value)));
        }
        if (call.containsKey("unanswered")) {
            return;
        }
        var offsets = new ArrayList<String>();
        for (var future : sent) {
            offsets.add(String.valueOf(future.get().offset()));
        }
        answer.put("offsets", String.join(",", offsets));
    }

    ProducerRecord<String, String> record(Map<String, String> call, String value) {
        return new ProducerRecord<>(call.get("topic"), Integer.valueOf(call.get("partition")), null, value);
    }

    // A whole transaction with a record in each of some partitions, nothing waited for but the commit itself.
    void round(KafkaProducer<String, String> producer, Map<String, String> call) {
        producer.beginTransaction();
        for (var partition : call.get("partitions").split(",")) {
            producer.send(new ProducerRecord<>(call.get("topic"), Integer.valueOf(partition), null, call.get("value")));
        }
        producer.commitTransaction();
    }

    @SuppressWarnings("removal")  // of the group without a member, which older programs still use
    void sendOffsets(KafkaProducer<String, String> producer, Map<String, String> call) {
        var place = new TopicPartition(call.get("topic"), Integer.parseInt(call.get("partition")));
        var offset = new OffsetAndMetadata(Long.parseLong(call.get("offset")));
        var consumer = consumers.get(call.getOrDefault("from", ""));
        var group = consumer == null
            ? new ConsumerGroupMetadata(call.get("group"))
            : consumer.groupMetadata();
        producer.sendOffsetsToTransaction(Map.of(place, offset), group);
    }

    // Offsets to commit, of any partitions: "topic/partition/offset topic/partition/offset".
    static Map<TopicPartition, OffsetAndMetadata> places(String text) {
        var found = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (var place : text.split(" ")) {
            var words = place.split("/");
            found.put(new TopicPartition(words[0], Integer.parseInt(words[1])),
                new OffsetAndMetadata(Long.parseLong(words[2])));
        }
        return found;
    }

    void poll(KafkaConsumer<String, String> consumer, Map<String, String> call, Map<String, String> answer) {
        var values = new ArrayList<String>();
        for (var record : consumer.poll(Duration.ofMillis(Long.parseLong(call.get("ms"))))) {
            values.add(record.value());
        }
        answer.put("values", String.join(",", values));
    }

    // One turn of consume-transform-produce: what a poll gives goes into the output with its offsets, as one.
    void copy(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer,
            Map<String, String> call, Map<String, String> answer) {
        var records = consumer.poll(Duration.ofMillis(Long.parseLong(call.get("ms"))));
        answer.put("copied", String.valueOf(records.count()));
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(call.get("topic"), record.partition(), null, record.value() + "!"));
            offsets.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (call.get("end").equals("commit")) {
            producer.commitTransaction();
            return;
        }
        producer.abortTransaction();
        consumer.committed(offsets.keySet()).forEach((place, committed) ->
            consumer.seek(place, committed == null ? 0 : committed.offset()));
    }

    void close(String name) {
        var producer = producers.remove(name);
        if (producer != null) {
            producer.close(Duration.ofSeconds(5));
        }
        var consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.close();
        }
    }

    static Properties settings(Map<String, String> call) {
        var settings = new Properties();
        call.forEach((name, value) -> {
            if (name.contains(".") || name.equals("acks")) {
                settings.put(name, value);
            }
        });
        return settings;
    }

    static Map<String, String> fields(String line) {
        var found = new LinkedHashMap<String, String>();
        for (Matcher match = FIELD.matcher(line); match.find(); ) {
            found.put(match.group(1), unquoted(match.group(2)));
        }
        return found;
    }

    static String unquoted(String text) {
        return ESCAPE.matcher(text).replaceAll(match -> Matcher.quoteReplacement(switch (match.group(1).charAt(0)) {
            case 'n' -> "\n";
            case 'u' -> String.valueOf((char) Integer.parseInt(match.group(1).substring(1), 16));
            default -> match.group(1);
        }));
    }

    static synchronized void say(Map<String, String> answer) {
        var line = new StringBuilder();
        answer.forEach((name, value) -> line.append(line.isEmpty() ? "{" : ", ")
            .append(quoted(name)).append(": ").append(quoted(value)));
        OUT.println(line.append("}"));
        OUT.flush();
    }

    static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ') {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        return out.append('"').toString();
    }
}
