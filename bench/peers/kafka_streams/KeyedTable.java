import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * The newest fields of each flight, exactly once, with interactive queries over HTTP.
 *
 * <p>Arguments: KAFKA SOURCE STATE_FOLDER PORT COMMIT_MS. `/rows` answers with the number of rows, `/rows/KEY` with one,
 * and `/scan` with count, mean and largest delay of each carrier.
 */
public final class KeyedTable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String STORE = "flights";

    private static byte[] fields(byte[] value) {
        try {
            JsonNode event = JSON.readTree(value);
            ObjectNode row = JSON.createObjectNode();
            for (String name : new String[] {"flight", "carrier", "origin", "dest", "delay", "sent"}) {
                row.set(name, event.get(name));
            }
            return JSON.writeValueAsBytes(row);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] scan(ReadOnlyKeyValueStore<String, byte[]> rows) throws IOException {
        Map<String, long[]> carriers = new TreeMap<>();
        try (KeyValueIterator<String, byte[]> all = rows.all()) {
            while (all.hasNext()) {
                JsonNode row = JSON.readTree(all.next().value);
                long delay = row.get("delay").longValue();
                long[] totals = carriers.computeIfAbsent(
                    row.get("carrier").textValue(), carrier -> new long[] {0, 0, Long.MIN_VALUE});
                totals[0]++;
                totals[1] += delay;
                totals[2] = Math.max(totals[2], delay);
            }
        }
        ArrayNode result = JSON.createArrayNode();
        carriers.forEach((carrier, totals) ->
            result.addArray().add(carrier).add(totals[0]).add((double) totals[1] / totals[0]).add(totals[2]));
        return JSON.writeValueAsBytes(result);
    }

    private static byte[] count(ReadOnlyKeyValueStore<String, byte[]> rows) {
        long count = 0;
        try (KeyValueIterator<String, byte[]> all = rows.all()) {
            for (; all.hasNext(); all.next()) {
                count++;
            }
        }
        return Long.toString(count).getBytes(StandardCharsets.UTF_8);
    }

    private static void answer(HttpExchange exchange, byte[] body) throws IOException {
        exchange.sendResponseHeaders(body == null ? 404 : 200, body == null ? -1 : body.length);
        if (body != null) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1] + "-table");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[4]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder
            .stream(arguments[1], Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .mapValues(KeyedTable::fields)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .reduce(
                (before, now) -> now,
                Materialized.<String, byte[], KeyValueStore<Bytes, byte[]>>as(STORE)
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.ByteArray()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        System.setProperty("sun.net.httpserver.nodelay", "true"); // else an answer may wait 40 ms for an acknowledgement
        InetSocketAddress address =
            new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[3]));
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        HttpHandler handler = exchange -> {
            ReadOnlyKeyValueStore<String, byte[]> rows = streams.store(
                StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
            String path = exchange.getRequestURI().getPath();
            if (path.equals("/scan")) {
                answer(exchange, scan(rows));
            } else if (path.equals("/rows")) {
                answer(exchange, count(rows));
            } else {
                answer(exchange, rows.get(path.substring("/rows/".length())));
            }
        };
        server.createContext("/", exchange -> {
            try {
                handler.handle(exchange);
            } catch (RuntimeException error) { // the store is not open yet
                exchange.sendResponseHeaders(503, -1);
                exchange.close();
            }
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            server.stop(0);
            streams.close();
        }));
        streams.start();
        server.start();
    }
}
