package hifi;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import net.razorvine.pickle.Pickler;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.python.EvaluatePython$;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.KafkaSourceRDDPartition;
import org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.immutable.Nil$;
import scala.reflect.ClassTag$;

/**
 * The records of a range of a topic, which each job names: so a query over them is planned once, for all ranges.
 * Compiled by Janino, which has no generics.
 */
public class RangeRows extends RDD {
    private static final String RANGE = "hifi.range";
    private static final long TIMEOUT_MS = 120000L;

    private final String topic;
    private final Map client;

    /** Rows of a topic; the settings of Kafka's client have a group. */
    public RangeRows(SparkContext context, String topic, Map client) {
        super(context, Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        this.topic = topic;
        this.client = KafkaSourceProvider.kafkaParamsForExecutors(PythonUtils.toScalaMap(client), "");
    }

    /** The rows as a frame. */
    public Dataset frame(SparkSession session, StructType schema) {
        return session.internalCreateDataFrame(this, schema, false);
    }

    /**
     * The pickled rows of a query over a range.
     *
     * @param range a line for each partition: partition, first offset, offset after the last one, and whole numbers that
     *     each of its rows has after the record, with spaces between them; "-" is null.
     * @param mostBytes of the rows; what has more gives an empty array.
     */
    public static byte[] collect(Dataset query, String range, long mostBytes) {
        SparkContext context = query.sparkSession().sparkContext();
        context.setLocalProperty(RANGE, range);
        try {
            Object results = context.runJob(
                query.queryExecution().toRdd(),
                new Pickled(query.schema(), mostBytes),
                ClassTag$.MODULE$.apply(byte[].class)
            );
            return ((byte[][]) results)[0];
        } finally {
            context.setLocalProperty(RANGE, null);
        }
    }

    public Partition[] getPartitions() {
        return new Partition[] {new KafkaSourceRDDPartition(0, null)}; // one task reads all: the range is small
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
        return new Reader(topic, client, context.getLocalProperty(RANGE), context);
    }

    /** Reads one partition of the topic after the other. */
    public static class Reader extends scala.collection.AbstractIterator implements TaskCompletionListener {
        private final String topic;
        private final Map client;
        private final Iterator lines;
        private KafkaDataConsumer consumer;
        private int partition;
        private long offset;
        private long end;
        private Object[] numbers;
        private ConsumerRecord record;

        public Reader(String topic, Map client, String range, TaskContext context) {
            this.topic = topic;
            this.client = client;
            lines = java.util.Arrays.asList(range.split("\n")).iterator();
            context.addTaskCompletionListener(this);
        }

        public boolean hasNext() {
            while (record == null) {
                if (consumer != null && offset < end) {
                    record = consumer.get(offset, end, TIMEOUT_MS, true);
                    if (record == null) { // no more in the range: the rest was compacted or aborted
                        offset = end;
                    }
                } else if (lines.hasNext()) {
                    open((String) lines.next());
                } else {
                    release();
                    return false;
                }
            }
            return true;
        }

        public Object next() {
            if (!hasNext()) {
                throw new java.util.NoSuchElementException();
            }
            ConsumerRecord current = record;
            record = null;
            offset = current.offset() + 1;
            Object[] values = new Object[5 + numbers.length];
            values[0] = Integer.valueOf(partition);
            values[1] = Long.valueOf(current.offset());
            values[2] = current.key();
            values[3] = current.value();
            values[4] = headers(current);
            System.arraycopy(numbers, 0, values, 5, numbers.length);
            return new GenericInternalRow(values);
        }

        private void open(String line) {
            release();
            String[] fields = line.split(" ");
            partition = Integer.parseInt(fields[0]);
            offset = Long.parseLong(fields[1]);
            end = Long.parseLong(fields[2]);
            numbers = new Object[fields.length - 3];
            for (int index = 0; index < numbers.length; index++) {
                String text = fields[index + 3];
                numbers[index] = text.equals("-") ? null : Long.valueOf(Long.parseLong(text));
            }
            if (offset < end) {
                consumer = KafkaDataConsumer.acquire(new TopicPartition(topic, partition), client);
            }
        }

        private static Object headers(ConsumerRecord record) {
            List headers = new ArrayList();
            for (Iterator each = record.headers().iterator(); each.hasNext();) {
                Header header = (Header) each.next();
                headers.add(new GenericInternalRow(new Object[] {UTF8String.fromString(header.key()), header.value()}));
            }
            return headers.isEmpty() ? null : new GenericArrayData(headers.toArray());
        }

        private void release() {
            if (consumer != null) {
                consumer.release();
                consumer = null;
            }
        }

        public void onTaskCompletion(TaskContext context) {
            release();
        }
    }

    /** Pickles rows in the task, as Python takes them. */
    public static class Pickled extends scala.runtime.AbstractFunction1 implements Serializable {
        private final DataType[] types;
        private final long mostBytes;

        public Pickled(StructType schema, long mostBytes) {
            this.mostBytes = mostBytes;
            types = new DataType[schema.length()];
            for (int index = 0; index < types.length; index++) {
                types[index] = schema.fields()[index].dataType();
            }
        }

        public Object apply(Object rows) {
            EvaluatePython$.MODULE$.registerPicklers();
            List all = new ArrayList();
            long bytes = 0;
            for (scala.collection.Iterator each = (scala.collection.Iterator) rows; each.hasNext();) {
                UnsafeRow row = (UnsafeRow) each.next();
                bytes += row.getSizeInBytes();
                if (bytes > mostBytes) {
                    return new byte[0];
                }
                Object[] values = new Object[types.length];
                for (int index = 0; index < types.length; index++) {
                    values[index] = EvaluatePython$.MODULE$.toJava(row.get(index, types[index]), types[index], false);
                }
                all.add(values);
            }
            try {
                return new Pickler(true, false).dumps(all);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
