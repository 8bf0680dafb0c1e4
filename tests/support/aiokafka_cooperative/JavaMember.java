import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group with Java's own cooperative consumer, for members.py, which runs it from source.
 *
 * <p>Arguments: bootstrap, group, session and heartbeat in ms, topics. It writes a line for each record ("record
 * TOPIC PARTITION OFFSET") and for each change ("assigned", "revoked" or "lost", then "TOPIC:PARTITION"...), and
 * leaves when its input ends.
 */
class JavaMember implements ConsumerRebalanceListener {
    private final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;

    JavaMember(Properties settings) {
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("session.timeout.ms", arguments[2]);
        settings.put("heartbeat.interval.ms", arguments[3]);
        settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "50");
        AtomicBoolean stopping = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // only its end counts
                }
            } catch (IOException error) {
                // as good as its end
            }
            stopping.set(true);
        });
        input.setDaemon(true);
        input.start();
        new JavaMember(settings).run(List.of(arguments).subList(4, arguments.length), stopping);
    }

    private void run(List<String> topics, AtomicBoolean stopping) {
        try (consumer) {
            consumer.subscribe(topics, this);
            while (!stopping.get()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    System.out.println("record " + record.topic() + " " + record.partition() + " " + record.offset());
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    done.put(partition, new OffsetAndMetadata(record.offset() + 1));
                }
                try {
                    consumer.commitSync(done);
                } catch (RebalanceInProgressException error) {
                    // the next commit says the same and more
                }
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> last = new HashMap<>(done);
        last.keySet().retainAll(partitions);
        consumer.commitSync(last);
        done.keySet().removeAll(partitions);
        say("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        done.keySet().removeAll(partitions);
        say("lost", partitions);
    }

    private static void say(String what, Collection<TopicPartition> partitions) {
        StringBuilder line = new StringBuilder(what);
        for (TopicPartition partition : partitions) {
            line.append(' ').append(partition.topic()).append(':').append(partition.partition());
        }
        System.out.println(line);
    }
}
