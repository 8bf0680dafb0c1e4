import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/**
 * Count, sum and largest delay of each carrier in tumbling windows, exactly once; a result when its window closes.
 *
 * <p>Arguments: KAFKA SOURCE TARGET STATE_FOLDER WINDOW_MS GRACE_MS COMMIT_MS. An event's time is its header ce_time.
 */
public final class WindowedDelays {
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Totals(long flights, long total, long worst) {
        static final Totals NONE = new Totals(0, 0, Long.MIN_VALUE);

        Totals plus(long delay) {
            return new Totals(flights + 1, total + delay, Math.max(worst, delay));
        }

        static Serde<Totals> serde() {
            return Serdes.serdeFrom(
                (topic, totals) -> totals == null ? null : ByteBuffer.allocate(24)
                    .putLong(totals.flights).putLong(totals.total).putLong(totals.worst).array(),
                (topic, bytes) -> {
                    if (bytes == null) {
                        return null;
                    }
                    ByteBuffer buffer = ByteBuffer.wrap(bytes);
                    return new Totals(buffer.getLong(), buffer.getLong(), buffer.getLong());
                });
        }
    }

    private static long delay(byte[] value) {
        try {
            return JSON.readTree(value).get("delay").longValue();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static KeyValue<String, byte[]> result(Windowed<String> window, Totals totals) {
        ObjectNode body = JSON.createObjectNode()
            .put("window_start", window.window().startTime().toString())
            .put("window_end", window.window().endTime().toString())
            .put("carrier", window.key())
            .put("flights", totals.flights)
            .put("total", totals.total)
            .put("worst", totals.worst);
        return KeyValue.pair(window.key(), body.toString().getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1] + "-delays");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[6]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);

        StreamsBuilder builder = new StreamsBuilder();
        builder
            .stream(
                arguments[1],
                Consumed.with(Serdes.String(), Serdes.ByteArray()).withTimestampExtractor((record, time) ->
                    Instant.parse(new String(record.headers().lastHeader("ce_time").value())).toEpochMilli()))
            .mapValues(WindowedDelays::delay)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
            .windowedBy(TimeWindows.ofSizeAndGrace(
                Duration.ofMillis(Long.parseLong(arguments[4])), Duration.ofMillis(Long.parseLong(arguments[5]))))
            .aggregate(
                () -> Totals.NONE,
                (carrier, delay, totals) -> totals.plus(delay),
                Materialized.with(Serdes.String(), Totals.serde()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .map(WindowedDelays::result)
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.ByteArray()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
