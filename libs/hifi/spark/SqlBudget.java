package hifi;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.InvokeLike;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/**
 * The CPU time and the memory that a thread may use to evaluate expressions; and the expressions that keep to it.
 *
 * Spark's expressions cannot be interrupted, and reserve the memory for a value before they make it. So values are
 * counted where they are made; functions that may need more than their arguments, or make many objects, are asked
 * before for what they need at most, objects of Java included; regular expressions read a text that checks the time,
 * and so does each call of a lambda function. Tasks share a heap: only one event in a JVM at a time may need more than
 * a small share of the memory, and the others that do wait for it.
 * Compiled by Janino, which has no generics and no lambda expressions.
 */
public class SqlBudget {
    private static final ThreadLocal CURRENT = new ThreadLocal();
    private static final java.lang.management.ThreadMXBean THREADS =
        java.lang.management.ManagementFactory.getThreadMXBean();
    private static final java.util.concurrent.locks.ReentrantLock LARGE =
        new java.util.concurrent.locks.ReentrantLock();
    private static final int SMALL_SHARE = 16;
    private static final int TICKS_PER_CHECK = 64;
    private static final int LONGEST_NUMBER = 2000;
    private static final int LARGEST_SCALE = 400;
    private static final Pattern LONG_EXPONENT = Pattern.compile("[0-9.][eE][+-]?[0-9]{4}");
    private static final Pattern LONG_NUMBER =
        Pattern.compile("[0-9.]+[eE][+-]?[0-9]{4}|[0-9.]{" + (LARGEST_SCALE + 1) + "}");
    private static final Pattern NESTED_TYPE = Pattern.compile("ARRAY|MAP|STRUCT");
    private static final Pattern BEFORE_OPERAND =
        Pattern.compile("CASE|WHEN|THEN|ELSE|AND|OR|NOT|IN|IS|LIKE|BETWEEN|[^\\w'\"`)\\]]+");
    private static final int MOST_LEVELS = 200;
    private static final int MOST_CASES = 10;
    private static final double COMPARISONS_PER_S = 1e9;
    private static final int TEXT_BYTES = 64;
    private static final int ENTRY_BYTES = 300;
    private static final int PATTERN_BYTES = 4096;
    private static final int REGEX_BYTES = 128;
    private static final int KEPT_BYTES = 1048576;

    private long deadlineNs;
    private long cpuStartNs;
    private long limitNs;
    private long startNs;
    private long limitBytes;
    private long bytesLeft;
    private double most;
    private int ticks;
    private boolean active;
    private boolean alone;
    private String exceeded;

    /** Thrown where the budget is exceeded. Spark's `try_` functions catch no VirtualMachineError. */
    public static class Exceeded extends VirtualMachineError {
        public Exceeded(String reason) {
            super(reason);
        }

        public Throwable fillInStackTrace() {
            return this;
        }
    }

    /** The budget of this thread. */
    public static SqlBudget current() {
        SqlBudget budget = (SqlBudget) CURRENT.get();
        if (budget == null) {
            budget = new SqlBudget();
            CURRENT.set(budget);
        }
        return budget;
    }

    /** Start to count. */
    public void start(long limitNs, long limitBytes) {
        this.limitNs = limitNs;
        this.limitBytes = limitBytes;
        bytesLeft = limitBytes;
        most = 0;
        cpuStartNs = THREADS.getCurrentThreadCpuTime();
        startNs = System.nanoTime();
        deadlineNs = startNs + limitNs;
        exceeded = null;
        active = true;
    }

    /** Stop counting. CPU time since the start in nanoseconds, at least; 0 below a tenth of the limit. */
    public long stop() {
        active = false;
        if (System.nanoTime() - startNs < limitNs / 10) {
            return 0;
        }
        return THREADS.getCurrentThreadCpuTime() - cpuStartNs;
    }

    /** Forget values that are too large to be kept until the next event, and let other events have large ones. */
    void forget(Expression expression) {
        try {
            if (most > KEPT_BYTES || exceeded != null) {
                expression.foreach(new Forget());
            }
        } finally {
            release();
        }
    }

    private void release() {
        if (alone) {
            alone = false;
            LARGE.unlock();
        }
    }

    /** Before an event needs more than a small share of the memory, wait until no other event of this JVM does. */
    private void reserve(double bytes) {
        most = Math.max(most, limitBytes - bytesLeft + bytes);
        if (!alone && most > limitBytes / SMALL_SHARE) {
            LARGE.lock();
            alone = true;
        }
    }

    /** Forget the values of the last event, which functions, lambda functions and calls of methods keep. */
    public static class Forget extends scala.runtime.AbstractFunction1 {
        public Object apply(Object node) {
            if (node instanceof NamedLambdaVariable) {
                ((NamedLambdaVariable) node).value().set(null);
            } else if (node instanceof Asked) {
                ((Asked) node).lastRegex = null;
                ((Asked) node).lastPattern = null;
                apply(((Asked) node).called);
            } else if (node instanceof Literal && ((Literal) node).value() instanceof Expression) {
                ((Expression) ((Literal) node).value()).foreach(this);
            } else if (node instanceof InvokeLike) {
                java.util.Arrays.fill(((InvokeLike) node).evaluatedArgs(), null);
            }
            return scala.runtime.BoxedUnit.UNIT;
        }
    }

    /** Why the budget was exceeded; null: it was not. */
    public String exceeded() {
        return exceeded;
    }

    /** Check the time now and then. */
    void tick(Described expression) {
        ticks++;
        if (ticks >= TICKS_PER_CHECK) {
            ticks = 0;
            check(expression);
        }
    }

    /** Check the time. The thread's own: a busy machine is not the fault of the event. */
    void check(Described expression) {
        if (!active || System.nanoTime() < deadlineNs) {
            return;
        }
        long usedNs = THREADS.getCurrentThreadCpuTime() - cpuStartNs;
        if (usedNs < limitNs) {
            deadlineNs = System.nanoTime() + limitNs - usedNs;
            return;
        }
        fail(expression, "takes more than " + seconds() + " s of CPU time for an event");
    }

    /** Count the bytes of a value, made or about to be made. */
    void charge(double bytes, Described expression) {
        if (!active) {
            return;
        }
        if (bytes > bytesLeft) {
            fail(expression, "needs more than " + limitBytes / 1048576 + " MB of memory for an event");
        }
        reserve(bytes);
        bytesLeft -= (long) bytes;
    }

    /** Refuse what would need more than is left, without counting it: what is made of it is counted later. */
    void need(double bytes, Described expression) {
        if (!active) {
            return;
        }
        if (bytes > bytesLeft) {
            fail(expression, "needs more than " + limitBytes / 1048576 + " MB of memory for an event");
        }
        reserve(bytes);
    }

    /** Refuse work that would exceed the time. */
    void compare(double comparisons, Described expression) {
        if (active && comparisons > COMPARISONS_PER_S * limitNs / 1e9) {
            fail(expression, "takes more than " + seconds() + " s of CPU time for an event");
        }
    }

    void fail(Described expression, String reason) {
        if (exceeded == null) {
            exceeded = expression.text() + " " + reason;
        }
        throw new Exceeded(exceeded);
    }

    private String seconds() {
        return new java.math.BigDecimal(limitNs / 1e9).round(new java.math.MathContext(3)).stripTrailingZeros()
            .toPlainString();
    }

    /** The size of a value; values within values count as often as they stand there. Stops above the limit. */
    static double size(Object value, DataType type, double limit) {
        if (value == null) {
            return 8;
        }
        if (value instanceof UTF8String) {
            return 16 + ((UTF8String) value).numBytes();
        }
        if (value instanceof byte[]) {
            return 16 + ((byte[]) value).length;
        }
        if (value instanceof VariantVal) {
            return 32 + ((VariantVal) value).getValue().length + ((VariantVal) value).getMetadata().length;
        }
        if (value instanceof ArrayData && type instanceof ArrayType) {
            return elements((ArrayData) value, ((ArrayType) type).elementType(), limit);
        }
        if (value instanceof MapData && type instanceof MapType) {
            double keys = elements(((MapData) value).keyArray(), ((MapType) type).keyType(), limit);
            return keys + (keys > limit ? 0 : elements(((MapData) value).valueArray(), ((MapType) type).valueType(), limit));
        }
        if (value instanceof InternalRow && type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            double total = 16;
            for (int index = 0; index < fields.length && total <= limit; index++) {
                Object part = ((InternalRow) value).isNullAt(index) ? null
                    : ((InternalRow) value).get(index, fields[index].dataType());
                total += fields[index].name().length() + size(part, fields[index].dataType(), limit - total);
            }
            return total;
        }
        return weight(type);
    }

    /** Bytes of a value that is not large, at most; a number of more than 18 digits is three objects. */
    static int weight(DataType type) {
        if (type instanceof DecimalType) {
            return ((DecimalType) type).precision() > 18 ? 128 : 32;
        }
        return type instanceof CalendarIntervalType ? 40 : 8;
    }

    private static double elements(ArrayData array, DataType type, double limit) {
        int count = array.numElements();
        if (!isLarge(type)) {
            return 16 + (double) weight(type) * count;
        }
        double total = 16;
        for (int index = 0; index < count && total <= limit; index++) {
            total += 8 + (array.isNullAt(index) ? 0 : size(array.get(index, type), type, limit - total));
        }
        return total;
    }

    /** Whether values of a type can be large. */
    static boolean isLarge(DataType type) {
        return type instanceof StringType || type instanceof BinaryType || type instanceof ArrayType
            || type instanceof MapType || type instanceof StructType || type instanceof VariantType;
    }

    static boolean isNested(DataType type) {
        return type instanceof ArrayType || type instanceof MapType || type instanceof StructType;
    }

    /** A text that checks the time while a regular expression reads it. */
    static class Text implements CharSequence {
        private final String text;
        private final SqlBudget budget;
        private final Described expression;
        private int reads;

        Text(String text, SqlBudget budget, Described expression) {
            this.text = text;
            this.budget = budget;
            this.expression = expression;
        }

        public char charAt(int index) {
            if ((++reads & 4095) == 0) {
                budget.check(expression);
            }
            return text.charAt(index);
        }

        public int length() {
            return text.length();
        }

        public CharSequence subSequence(int start, int end) {
            return text.substring(start, end);
        }

        public String toString() {
            return text;
        }
    }

    /** An expression that stands in the place of one of Spark's, and is interpreted. */
    public abstract static class Described extends Expression
            implements org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback, java.io.Serializable {
        private final String text;

        Described(String text) {
            this.text = text;
        }

        abstract Expression original();

        /** The SQL of the expression in a message, as it was before it was bound to columns. */
        String text() {
            return text;
        }

        static String textOf(Expression expression) {
            String sql;
            try {
                sql = expression.sql();
            } catch (RuntimeException error) {
                sql = expression.prettyName();
            }
            sql = sql.length() > 1000 ? sql.substring(0, 1000) : sql;
            sql = sql.replace("namedlambdavariable()", "_").replaceAll("[\\p{Cntrl}\\s]+", " ");
            return sql.length() > 120 ? sql.substring(0, 119) + "…" : sql;
        }

        public boolean foldable() {
            return original().foldable();
        }

        public boolean nullable() {
            return true;
        }

        public DataType dataType() {
            return original().dataType();
        }

        public String sql() {
            return original().sql();
        }

        public ExprCode doGenCode(CodegenContext context, ExprCode code) {
            return org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback.doGenCode$(this, context, code);
        }

        public boolean canEqual(Object other) {
            return other instanceof Described;
        }

        public int productArity() {
            return 1;
        }

        public Object productElement(int index) {
            return original();
        }
    }

    /** An expression in the place of its only child. */
    public abstract static class Around extends Described {
        final Expression child;

        Around(Expression child, String text) {
            super(text);
            this.child = child;
        }

        /** The same around another child. */
        abstract Around around(Expression child);

        Expression original() {
            return child;
        }

        public scala.collection.immutable.Seq children() {
            return sequence(java.util.Collections.singletonList(child));
        }

        public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq children) {
            return around((Expression) children.apply(0));
        }
    }

    /** An expression that checks the time, and whose value is counted. */
    public static class Counted extends Around {
        private final boolean large;

        public Counted(Expression child, String text) {
            super(child, text);
            this.large = isLarge(child.dataType());
        }

        Around around(Expression child) {
            return new Counted(child, text());
        }

        public boolean nullable() {
            return child.nullable();
        }

        public Object eval(InternalRow row) {
            SqlBudget budget = current();
            budget.tick(this);
            Object value = child.eval(row);
            if (large && value != null && budget.active) {
                if (value instanceof UTF8String) {
                    budget.charge(16 + ((UTF8String) value).numBytes(), this);
                } else {
                    budget.charge(size(value, child.dataType(), budget.bytesLeft), this);
                }
            }
            return value;
        }
    }

    /** A value whose doubles and floats, within arrays, structs and maps too, are null if infinite or no number. */
    public static class Finite extends Around {
        public Finite(Expression child) {
            super(child, "");
        }

        Around around(Expression child) {
            return new Finite(child);
        }

        public DataType dataType() {
            return child.dataType().asNullable();
        }

        public Object eval(InternalRow row) {
            return finite(child.eval(row), child.dataType());
        }

        /** Whether a type is one of floating-point numbers, or has one within. */
        public static boolean holdsFloats(DataType type) {
            if (type instanceof ArrayType) {
                return holdsFloats(((ArrayType) type).elementType());
            }
            if (type instanceof MapType) {
                return holdsFloats(((MapType) type).valueType());
            }
            if (type instanceof StructType) {
                StructField[] fields = ((StructType) type).fields();
                for (int index = 0; index < fields.length; index++) {
                    if (holdsFloats(fields[index].dataType())) {
                        return true;
                    }
                }
            }
            return type instanceof DoubleType || type instanceof FloatType;
        }

        private static Object finite(Object value, DataType type) {
            if (value == null || !holdsFloats(type)) {
                return value;
            }
            if (value instanceof ArrayData) {
                return finiteElements((ArrayData) value, ((ArrayType) type).elementType());
            }
            if (value instanceof MapData) {
                MapData map = (MapData) value;
                ArrayData values = finiteElements(map.valueArray(), ((MapType) type).valueType());
                return new ArrayBasedMapData(map.keyArray(), values);
            }
            if (value instanceof InternalRow) {
                StructField[] fields = ((StructType) type).fields();
                Object[] parts = new Object[fields.length];
                for (int index = 0; index < fields.length; index++) {
                    DataType part = fields[index].dataType();
                    InternalRow row = (InternalRow) value;
                    parts[index] = row.isNullAt(index) ? null : finite(row.get(index, part), part);
                }
                return new GenericInternalRow(parts);
            }
            double number = ((Number) value).doubleValue();
            return Double.isInfinite(number) || Double.isNaN(number) ? null : value;
        }

        private static ArrayData finiteElements(ArrayData elements, DataType type) {
            Object[] parts = new Object[elements.numElements()];
            for (int index = 0; index < parts.length; index++) {
                parts[index] = elements.isNullAt(index) ? null : finite(elements.get(index, type), type);
            }
            return new GenericArrayData(parts);
        }
    }

    /** An array or a map of a function that calls a lambda function for each element; it needs memory for each. */
    public static class Sized extends Around {
        private final int bytes;

        public Sized(Expression child, int bytes, String text) {
            super(child, text);
            this.bytes = bytes;
        }

        Around around(Expression child) {
            return new Sized(child, bytes, text());
        }

        public boolean nullable() {
            return child.nullable();
        }

        public Object eval(InternalRow row) {
            Object value = child.eval(row);
            current().need(count(value) * bytes, this);
            return value;
        }
    }

    /** The elements of an array or the entries of a map; 0: it is neither. */
    static double count(Object value) {
        if (value instanceof ArrayData) {
            return ((ArrayData) value).numElements();
        }
        return value instanceof MapData ? ((MapData) value).numElements() : 0;
    }

    /** A function that is asked for the time and memory that it needs before it is called. */
    public static class Asked extends Described {
        private static final Pattern FACTOR = Pattern.compile("(?:times|each)([0-9]+)");

        private final Expression function;
        private final Expression[] arguments;
        private final String given;
        private final String kind;
        private final boolean decimals;
        private final double factor;
        private final boolean stopsAtNull;
        private Expression called;
        private transient UTF8String lastRegex;
        private transient Pattern lastPattern;

        public Asked(Expression function, String kind, String text) {
            super(text);
            this.function = function;
            given = kind;
            decimals = kind.startsWith("decimals");
            this.kind = decimals ? kind.substring(8) : kind;
            Matcher number = FACTOR.matcher(this.kind);
            factor = number.matches() ? Double.parseDouble(number.group(1)) : 0;
            stopsAtNull = function.nullIntolerant() || isLarge(function.dataType())
                && (function instanceof MapConcat || function instanceof Concat && isNested(function.dataType()));
            arguments = new Expression[function.children().size()];
            java.util.List references = new java.util.ArrayList();
            for (int index = 0; index < arguments.length; index++) {
                arguments[index] = (Expression) function.children().apply(index);
                boolean constant = arguments[index] instanceof Literal || arguments[index] instanceof LambdaFunction;
                references.add(constant ? arguments[index]
                    : new BoundReference(index, arguments[index].dataType(), true));
            }
            called = (Expression) function.withNewChildren(sequence(references));
        }

        Expression original() {
            return function;
        }

        public scala.collection.immutable.Seq children() {
            return sequence(java.util.Arrays.asList(arguments));
        }

        public TreeNode withNewChildrenInternal(scala.collection.immutable.IndexedSeq children) {
            return new Asked((Expression) function.withNewChildren(children), given, text());
        }

        public Object eval(InternalRow row) {
            SqlBudget budget = current();
            budget.tick(this);
            Object[] values = new Object[arguments.length];
            for (int index = 0; index < values.length; index++) {
                values[index] = arguments[index].eval(row);
                if (values[index] == null && stopsAtNull) {
                    return null;
                }
            }
            long before = budget.bytesLeft;
            Object value = evaluate(values, budget);
            if (value != null && isLarge(function.dataType()) && budget.active) {
                long counted = before - budget.bytesLeft;
                double size = size(value, function.dataType(), before);
                budget.charge(Math.max(0, size - counted), this);
            }
            return value;
        }

        private Object evaluate(Object[] values, SqlBudget budget) {
            if (kind.startsWith("regex")) {
                for (int index = 0; index < values.length; index++) {
                    if (values[index] == null) {
                        return null;
                    }
                }
                if (values.length > 1) {
                    budget.need(REGEX_BYTES * length(values[1]), this);
                }
                return regex(values, budget);
            }
            if (kind.equals("decimal")) {
                if (values[0] instanceof UTF8String) {
                    budget.need(6 * length(values[0]), this);
                    values[0] = shortened((UTF8String) values[0]);
                    if (values[0] == null) {
                        return null;
                    }
                }
            } else if (budget.active) {
                ask(values, budget);
            }
            return called.eval(new GenericInternalRow(values));
        }

        /** Count what the function is about to make, or refuse how long it would take. */
        private void ask(Object[] values, SqlBudget budget) {
            if (kind.equals("deep")) {
                for (int index = 0; index < values.length; index++) {
                    budget.charge(size(values[index], arguments[index].dataType(), budget.bytesLeft), this);
                }
                return;
            }
            if (kind.equals("format")) {
                askFormat(values, budget);
                return;
            }
            for (int index = 0; decimals && index < values.length; index++) {
                if (hasLongExponent(values[index], arguments[index].dataType())) {
                    budget.fail(this, "reads a number with an exponent of more than three digits");
                }
            }
            if (kind.startsWith("times")) {
                double total = 0;
                for (int index = 0; index < values.length; index++) {
                    total += size(values[index], arguments[index].dataType(), budget.bytesLeft);
                }
                budget.need(factor * total, this);
                return;
            }
            if (kind.startsWith("each")) {
                double total = 0;
                for (int index = 0; index < values.length; index++) {
                    total += count(values[index]);
                }
                budget.need(factor * total, this);
                return;
            }
            if (kind.equals("join")) {
                askJoin(values, budget);
                return;
            }
            for (int index = 0; index < values.length; index++) {
                if (values[index] == null && !kind.equals("array_repeat") && !kind.equals("sequence")) {
                    return;
                }
            }
            if (kind.equals("repeat")) {
                budget.charge(length(values[0]) * Math.max(0, ((Number) values[1]).doubleValue()), this);
            } else if (kind.equals("pad")) {
                budget.charge(4 * Math.max(0, ((Number) values[1]).doubleValue()), this);
            } else if (kind.equals("space")) {
                budget.charge(Math.max(0, ((Number) values[0]).doubleValue()), this);
            } else if (kind.equals("digits")) {
                if (values[1] instanceof Number) {
                    budget.charge(16 * Math.max(0, ((Number) values[1]).doubleValue()), this);
                }
            } else if (kind.equals("array_repeat")) {
                if (values[1] != null) {
                    double element = size(values[0], arguments[0].dataType(), budget.bytesLeft);
                    budget.charge((8 + element) * Math.max(0, ((Number) values[1]).doubleValue()), this);
                }
            } else if (kind.equals("array_insert")) {
                budget.charge(16 * Math.abs(((Number) values[1]).doubleValue()), this);
            } else if (kind.equals("sequence")) {
                if (values[0] != null && values[1] != null) {
                    budget.charge(8 * steps(values), this);
                }
            } else if (kind.equals("replace")) {
                askReplace(values, budget);
            } else if (kind.equals("search") || kind.equals("parts")) {
                budget.compare(length(values[0]) * length(values[1]) / 8, this);
                if (kind.equals("parts")) {
                    askParts(values, budget);
                }
            } else if (kind.equals("translate")) {
                budget.need(6 * length(values[0]) + 50 * length(values[1]), this);
            } else if (kind.equals("pattern")) {
                budget.need(PATTERN_BYTES * length(values[1]), this);
            } else if (kind.equals("json")) {
                askJson(values, budget);
            } else if (kind.equals("variant")) {
                askVariant((VariantVal) values[0], budget);
            } else if (kind.equals("distance")) {
                budget.compare(length(values[0]) * length(values[1]), this);
                budget.charge(8 * Math.max(length(values[0]), length(values[1])), this);
            } else if (kind.equals("pairs")) {
                double first = ((ArrayData) values[0]).numElements();
                budget.need(40 * (first + (values.length > 1 ? count(values[1]) : 0)), this);
                Object other = values.length > 1 && values[1] instanceof ArrayData ? values[1] : values[0];
                double most = size(values[0], arguments[0].dataType(), budget.bytesLeft) / 8;
                budget.compare(most * ((ArrayData) other).numElements(), this);
                budget.compare(first * size(other, arguments[0].dataType(), budget.bytesLeft) / 8, this);
            } else if (kind.equals("map")) {
                askMap(values, budget);
            } else if (kind.equals("url")) {
                budget.need(4 * length(values[1]), this);
                String key = String.valueOf(values[values.length - 1]);
                if (key.indexOf('*') >= 0 || key.indexOf('+') >= 0 || key.indexOf('{') >= 0) {
                    budget.fail(this, "has a key that is a regular expression");
                }
            }
        }

        private void askFormat(Object[] values, SqlBudget budget) {
            if (values[0] == null) {
                return;
            }
            byte[] format = ((UTF8String) values[0]).getBytes();
            double largest = 400;
            for (int index = 1; index < values.length; index++) {
                largest = Math.max(largest, size(values[index], arguments[index].dataType(), budget.bytesLeft));
            }
            double total = format.length;
            double number = 0;
            for (int index = 0; index < format.length; index++) {
                boolean digit = format[index] >= '0' && format[index] <= '9';
                number = digit ? number * 10 + format[index] - '0' : 0;
                if (digit && (index + 1 == format.length || format[index + 1] < '0' || format[index + 1] > '9')) {
                    total += number;
                } else if (format[index] == '%') {
                    total += largest;
                }
            }
            budget.need(3 * total, this);
            budget.charge(total, this);
        }

        /** The texts, and between them the first argument, or after an array the second, and the third for null. */
        private void askJoin(Object[] values, SqlBudget budget) {
            boolean array = function instanceof ArrayJoin;
            double between = array ? length(values[1]) + (values.length > 2 ? length(values[2]) : 0) : length(values[0]);
            double total = 0;
            for (int index = array ? 0 : 1; index < (array ? 1 : values.length); index++) {
                total += size(values[index], arguments[index].dataType(), budget.bytesLeft);
                total += between * (values[index] instanceof ArrayData ? count(values[index]) : 1);
            }
            budget.need(total, this);
        }

        /** The parts of a text between delimiters. */
        private void askParts(Object[] values, SqlBudget budget) {
            double text = length(values[0]);
            double delimiter = isBinary() ? Math.max(1, length(values[1])) : 1;
            double most = text / delimiter + 1;
            if (most * TEXT_BYTES > budget.bytesLeft / 8 && isBinary() && length(values[1]) > 0) {
                most = times(values[0].toString(), values[1].toString()) + 1;
            }
            budget.need(text + most * TEXT_BYTES, this);
        }

        private static double times(String text, String sought) {
            double times = 0;
            for (int at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + sought.length())) {
                times++;
            }
            return times;
        }

        /** Whether texts are equal only where their bytes are. */
        private boolean isBinary() {
            return ((StringType) arguments[0].dataType()).supportsBinaryEquality();
        }

        /** Objects that Spark makes of JSON, by the characters before them. */
        private void askJson(Object[] values, SqlBudget budget) {
            if (!(values[0] instanceof UTF8String)) {
                return;
            }
            UTF8String text = (UTF8String) values[0];
            DataType type = function instanceof JsonToStructs ? function.dataType() : VariantType$.MODULE$;
            double object = Math.max(perObject(type), 200);
            double item = type.existsRecursively(new HasVariant()) ? 160 : type.catalogString().contains("decimal(") ? 128 : TEXT_BYTES;
            int bytes = text.numBytes();
            if (bytes * object <= budget.bytesLeft / 8) {
                return;
            }
            double total = 3.0 * bytes + item;
            for (int index = 0; index < bytes; index++) {
                byte read = text.getByte(index);
                if (read == ',') {
                    total += item;
                } else if (read == '{' || read == '[') {
                    total += object;
                }
            }
            budget.need(total, this);
        }

        /** Bytes of an empty object of a type, at most. */
        private static double perObject(DataType type) {
            if (type instanceof ArrayType) {
                return Math.max(200, perObject(((ArrayType) type).elementType()));
            }
            if (type instanceof MapType) {
                return Math.max(ENTRY_BYTES, perObject(((MapType) type).valueType()));
            }
            double most = 0;
            if (type instanceof StructType) {
                StructField[] fields = ((StructType) type).fields();
                most = 64 + 8.0 * fields.length;
                for (int index = 0; index < fields.length; index++) {
                    most = Math.max(most, perObject(fields[index].dataType()));
                }
            }
            return most;
        }

        /** An object in an array takes four bytes of a variant or more, a value two. */
        private void askVariant(VariantVal value, SqlBudget budget) {
            double bytes = value.getValue().length;
            DataType type = function.dataType();
            if (type instanceof StringType) {
                budget.need(8 * (bytes + value.getMetadata().length), this);
            } else if (isNested(type)) {
                budget.need(bytes * Math.max(16, perObject(type) / 4), this);
            }
        }

        private void askReplace(Object[] values, SqlBudget budget) {
            double text = length(values[0]);
            double search = length(values[1]);
            double replacement = length(values[2]);
            budget.compare(text * search / 8, this);
            if (search == 0 || text / (isBinary() ? search : 1) * replacement < 65536) {
                return;
            }
            if (!isBinary()) {
                budget.need(text + text * replacement, this);
                return;
            }
            double times = times(values[0].toString(), values[1].toString());
            budget.charge(text + times * replacement, this);
        }

        /** Count the pairs, and split them as the function is about to, where that may take long or many objects. */
        private void askMap(Object[] values, SqlBudget budget) {
            budget.need(REGEX_BYTES * (length(values[1]) + length(values[2])), this);
            boolean plain = isPlain(values[1].toString()) && isPlain(values[2].toString());
            if (plain && (length(values[0]) + 1) * ENTRY_BYTES <= budget.bytesLeft / 8) {
                return;
            }
            String read = values[0].toString();
            Matcher pairs = splitter(values[1]).matcher(new Text(read, budget, this));
            Pattern key = splitter(values[2]);
            double count = 0;
            int start = 0;
            boolean more = true;
            while (more) {
                more = pairs.find();
                budget.tick(this);
                count++;
                budget.need(count * ENTRY_BYTES, this);
                if (!plain) {
                    key.split(new Text(read.substring(start, more ? pairs.start() : read.length()), budget, this), 2);
                    start = more ? pairs.end() : start;
                }
            }
        }

        /** The regular expression of a delimiter, as Spark reads it. */
        private Pattern splitter(Object delimiter) {
            return Pattern.compile(org.apache.spark.sql.catalyst.util.CollationSupport.collationAwareRegex(
                (UTF8String) delimiter, ((StringType) arguments[0].dataType()).collationId(), false).toString());
        }

        private static boolean isPlain(String regex) {
            for (int index = 0; index < regex.length(); index++) {
                if ("*+?{".indexOf(regex.charAt(index)) >= 0) {
                    return false;
                }
            }
            return true;
        }

        /** The elements of a sequence, at most. */
        private double steps(Object[] values) {
            DataType type = arguments[0].dataType();
            double span = Math.abs(((Number) values[1]).doubleValue() - ((Number) values[0]).doubleValue());
            Object step = values.length > 2 ? values[2] : null;
            double day = type instanceof DateType ? 1 : 86400e6;
            double width = SqlBudget.isTime(type) ? day : 1;
            if (step instanceof CalendarInterval) {
                CalendarInterval interval = (CalendarInterval) step;
                width = Math.abs(interval.months * 28.0 + interval.days + interval.microseconds / 86400e6) * day;
            } else if (step instanceof Number) {
                width = Math.abs(((Number) step).doubleValue());
                DataType kind = arguments[2].dataType();
                if (SqlBudget.isTime(type) && kind instanceof YearMonthIntervalType) {
                    width *= 28 * day;
                } else if (SqlBudget.isTime(type)) {
                    width *= day / 86400e6;
                }
            }
            return width == 0 ? 1 : 1 + span / width;
        }

        private static double length(Object value) {
            if (value instanceof UTF8String) {
                return ((UTF8String) value).numBytes();
            }
            return value instanceof byte[] ? ((byte[]) value).length : 8;
        }

        private Pattern pattern(Object regex) {
            if (!regex.equals(lastRegex)) {
                scala.Tuple2 compiled = RegExpUtils.getPatternAndLastRegex(
                    regex, function.prettyName(), ((StringType) arguments[0].dataType()).collationId());
                lastPattern = (Pattern) compiled._1();
                lastRegex = (UTF8String) compiled._2();
            }
            return lastPattern;
        }

        private Object regex(Object[] values, SqlBudget budget) {
            Text text = new Text(values[0].toString(), budget, this);
            if (kind.equals("regex_like")) {
                if (!values[1].equals(lastRegex)) {
                    lastPattern = ((StringRegexExpression) function).compile(values[1].toString());
                    lastRegex = ((UTF8String) values[1]).clone();
                }
                Matcher matcher = lastPattern.matcher(text);
                return Boolean.valueOf(function instanceof RLike ? matcher.find(0) : matcher.matches());
            }
            if (kind.equals("regex_likes")) {
                return likes((MultiLikeBase) function, text);
            }
            if (kind.equals("regex_replace")) {
                return replaced(values, text, budget);
            }
            if (kind.equals("regex_extract")) {
                Matcher matcher = pattern(values[1]).matcher(text);
                return matcher.find() ? group(matcher, values[2]) : UTF8String.EMPTY_UTF8;
            }
            if (kind.equals("regex_extract_all")) {
                Matcher matcher = pattern(values[1]).matcher(text);
                java.util.List groups = new java.util.ArrayList();
                while (matcher.find()) {
                    Object group = group(matcher, values[2]);
                    budget.charge(TEXT_BYTES + length(group), this);
                    groups.add(group);
                }
                return new GenericArrayData(groups.toArray());
            }
            if (kind.equals("regex_instr")) {
                Matcher matcher = pattern(values[1]).matcher(text);
                return Integer.valueOf(matcher.find() ? matcher.start() + 1 : 0);
            }
            return split(values, text, budget);
        }

        private Object likes(MultiLikeBase like, Text text) {
            boolean all = like instanceof LikeAllBase;
            for (int index = 0; index < like.cache().size(); index++) {
                boolean matches = ((Pattern) like.cache().apply(index)).matcher(text).matches();
                if (like.isNotSpecified()) {
                    matches = !matches;
                }
                if (matches != all) {
                    return Boolean.valueOf(!all);
                }
            }
            return like.hasNull() ? null : Boolean.valueOf(all);
        }

        private Object replaced(Object[] values, Text text, SqlBudget budget) {
            int position = ((Integer) values[3]).intValue() - 1;
            if (position != 0 && position >= text.length()) {
                return values[0];
            }
            String replacement = values[2].toString();
            Matcher matcher = pattern(values[1]).matcher(text);
            matcher.region(position, text.length());
            StringBuffer written = new StringBuffer();
            double groups = 0;
            for (int at = replacement.indexOf('$'); at >= 0; at = replacement.indexOf('$', at + 1)) {
                groups++;
            }
            int end = 0;
            double uncounted = 0;
            while (matcher.find()) {
                uncounted += matcher.start() - end + replacement.length() + groups * (matcher.end() - matcher.start());
                end = matcher.end();
                if (uncounted > 65536) {
                    budget.need(3 * (written.length() + uncounted), this);
                    budget.charge(uncounted, this);
                    budget.check(this);
                    uncounted = 0;
                }
                matcher.appendReplacement(written, replacement);
            }
            matcher.appendTail(written);
            return UTF8String.fromString(written.toString());
        }

        private Object group(Matcher matcher, Object number) {
            int index = ((Integer) number).intValue();
            RegExpExtractBase.checkGroupIndex(function.prettyName(), matcher.groupCount(), index);
            String group = matcher.group(index);
            return group == null ? UTF8String.EMPTY_UTF8 : UTF8String.fromString(group);
        }

        /** As Spark splits; a short text with a delimiter without a special character takes nothing worth counting. */
        private Object split(Object[] values, Text text, SqlBudget budget) {
            int limit = ((Integer) values[2]).intValue();
            double most = (length(values[0]) + 1) * TEXT_BYTES;
            boolean empty = length(values[1]) == 0;
            if (isPlain(values[1].toString()) && (empty || most <= budget.bytesLeft / 8)) {
                budget.need(most, this);
                return called.eval(new GenericInternalRow(values));
            }
            java.util.List parts = new java.util.ArrayList();
            Matcher matcher = splitter(values[1]).matcher(text);
            int start = 0;
            while ((limit <= 0 || parts.size() < limit - 1) && matcher.find()) {
                if (matcher.end() > 0) {
                    parts.add(part(text, start, matcher.start(), budget));
                    start = matcher.end();
                }
            }
            parts.add(part(text, start, text.length(), budget));
            return new GenericArrayData(parts.toArray());
        }

        private UTF8String part(Text text, int start, int end, SqlBudget budget) {
            budget.charge(TEXT_BYTES + end - start, this);
            return UTF8String.fromString(text.text.substring(start, end));
        }
    }

    /** Whether a type has a variant in it. */
    public static class HasVariant extends scala.runtime.AbstractFunction1 {
        public Object apply(Object type) {
            return Boolean.valueOf(type instanceof VariantType);
        }
    }

    static boolean isTime(DataType type) {
        return type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType;
    }

    /**
     * The text of a number that Spark can read as a decimal in time, with the same value to 38 digits; null: it fits no
     * decimal. Java takes minutes for a million digits, and for 1e-1000000000.
     */
    static UTF8String shortened(UTF8String value) {
        int size = value.numBytes();
        if (size < 8) {
            return value;
        }
        int exponentAt = -1;
        for (int index = size - 1; index > 0 && exponentAt < 0; index--) {
            byte read = value.getByte(index);
            if (read == 'e' || read == 'E') {
                exponentAt = index;
            }
        }
        if (size <= LONGEST_NUMBER && (exponentAt < 0 || size - exponentAt < 4)) {
            return value;
        }
        String text = value.toString().trim();
        if (!text.matches("[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d+)?")) {
            return value;
        }
        int split = Math.max(text.indexOf('e'), text.indexOf('E'));
        String number = split < 0 ? text : text.substring(0, split);
        String sign = number.startsWith("-") ? "-" : "";
        number = number.startsWith("-") || number.startsWith("+") ? number.substring(1) : number;
        int point = number.indexOf('.') < 0 ? number.length() : number.indexOf('.');
        String digits = number.replace(".", "");
        int first = 0;
        while (first < digits.length() && digits.charAt(first) == '0') {
            first++;
        }
        if (first == digits.length()) {
            return UTF8String.fromString("0");
        }
        String exponent = split < 0 ? "0" : text.substring(split + 1);
        String magnitude = exponent.replaceFirst("^[+-]?0*", "");
        double power = magnitude.isEmpty() ? 0 : Double.parseDouble(magnitude);
        if (exponent.startsWith("-")) {
            power = -power;
        }
        double integral = point - first + power;
        if (integral > 40) {
            return null;
        }
        if (integral < -40) {
            return UTF8String.fromString("0");
        }
        digits = digits.substring(first, Math.min(digits.length(), first + 100));
        return UTF8String.fromString(sign + "0." + digits + "e" + (int) integral);
    }

    /** Whether a value has a text with a number such as 1e-1000000000, of which a decimal takes minutes to make. */
    static boolean hasLongExponent(Object value, DataType type) {
        if (value instanceof UTF8String) {
            return LONG_EXPONENT.matcher(value.toString()).find();
        }
        if (value instanceof VariantVal) {
            byte[] bytes = ((VariantVal) value).getValue();
            return LONG_EXPONENT.matcher(new String(bytes, java.nio.charset.StandardCharsets.ISO_8859_1)).find();
        }
        if (value instanceof ArrayData && type instanceof ArrayType) {
            DataType element = ((ArrayType) type).elementType();
            for (int index = 0; isLarge(element) && index < ((ArrayData) value).numElements(); index++) {
                if (!((ArrayData) value).isNullAt(index)
                        && hasLongExponent(((ArrayData) value).get(index, element), element)) {
                    return true;
                }
            }
        }
        if (value instanceof MapData && type instanceof MapType) {
            MapType map = (MapType) type;
            return hasLongExponent(((MapData) value).keyArray(), new ArrayType(map.keyType(), true))
                || hasLongExponent(((MapData) value).valueArray(), new ArrayType(map.valueType(), true));
        }
        if (value instanceof InternalRow && type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int index = 0; index < fields.length; index++) {
                if (isLarge(fields[index].dataType()) && !((InternalRow) value).isNullAt(index) && hasLongExponent(
                        ((InternalRow) value).get(index, fields[index].dataType()), fields[index].dataType())) {
                    return true;
                }
            }
        }
        return false;
    }

    static scala.collection.immutable.Seq sequence(java.util.List items) {
        return org.apache.spark.api.python.PythonUtils.toSeq(items);
    }

    /** The value of an expression. */
    public static Object evaluate(Expression expression, InternalRow row, long limitNs, long limitBytes) {
        SqlBudget budget = current();
        budget.start(limitNs, limitBytes);
        try {
            return expression.eval(row);
        } catch (VirtualMachineError error) {
            throw new IllegalArgumentException(error.toString());
        } finally {
            budget.stop();
            budget.release();
        }
    }

    /** What Spark's parser may need minutes or all memory for in the text of an expression; null: nothing. */
    public static String refusal(String text) {
        SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
        lexer.removeErrorListeners();
        int levels = 0;
        int types = 0;
        int cases = 0;
        String before = "(";
        for (Token token = lexer.nextToken(); token.getType() != Token.EOF; token = lexer.nextToken()) {
            if (token.getChannel() != Token.DEFAULT_CHANNEL) {
                continue;
            }
            String word = token.getText().toUpperCase(java.util.Locale.ROOT);
            if (word.equals("(") || word.equals("[")) {
                levels++;
            } else if (word.equals(")") || word.equals("]")) {
                levels--;
            } else if (word.equals("<") && NESTED_TYPE.matcher(before).matches()) {
                types++;
            } else if (word.equals("CASE")) {
                cases++;
            } else if (word.equals("END") && !BEFORE_OPERAND.matcher(before).matches()) {
                cases--;
            } else if (before.equals(")") && (word.equals("FILTER") || word.equals("OVER"))) {
                return "aggregates and window functions need several events; an expression gets one";
            } else if (LONG_NUMBER.matcher(word).lookingAt()) {
                return "the number " + word.substring(0, Math.min(word.length(), 20))
                    + " has an exponent of more than 3 digits, or more than " + LARGEST_SCALE + " digits; write a smaller one";
            }
            if (levels > MOST_LEVELS || types > MOST_LEVELS) {
                return "it has more than " + MOST_LEVELS
                    + " levels of parentheses, brackets or types; split it into several fields";
            }
            if (cases > MOST_CASES) {
                return "it has CASE inside CASE on more than " + MOST_CASES + " levels, each of which doubles the time of Spark's"
                    + " parser; write more WHEN in one CASE, use `if`, or split it into several fields";
            }
            before = word;
        }
        return null;
    }

    /** An optimized plan with bounded expressions, in which constants are evaluated. */
    public static LogicalPlan bounded(LogicalPlan plan, long limitNs, long limitBytes) {
        SqlBudget budget = current();
        budget.start(limitNs, limitBytes);
        try {
            return (LogicalPlan) plan.transformUp(new Plans());
        } catch (Exceeded error) {
            throw new IllegalArgumentException(error.getMessage());
        } finally {
            budget.stop();
            budget.release();
        }
    }

    public static class Plans extends scala.runtime.AbstractPartialFunction {
        private final Rule rule = new Rule();

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return ((LogicalPlan) node).transformExpressionsUp(rule);
        }
    }

    /** Replaces the expressions that can take long or make something large, and those that are constant. */
    public static class Rule extends scala.runtime.AbstractPartialFunction {
        private static final java.util.Map KINDS = kinds();
        private static final java.util.Set FREE = new java.util.HashSet(java.util.Arrays.asList(new Object[] {
            "If", "CaseWhen", "Coalesce", "GetStructField", "GetArrayItem", "ElementAt", "GetMapValue", "Alias",
            "AttributeReference", "BoundReference", "NamedLambdaVariable", "LambdaFunction", "TryEval", "Literal",
            "KnownNotNull", "KnownNullable", "With", "CommonExpressionDef", "CommonExpressionRef", "CreateNamedStruct", "Counted", "Asked", "Sized"}));

        private static final java.util.Set DECODERS =
            new java.util.HashSet(java.util.Arrays.asList(new Object[] {"JsonToStructs", "CsvToStructs", "VariantGet"}));

        private static final java.util.Map CALLS = calls();
        private static final java.util.Map LOOPS = loops();

        /** Kinds of what is called by the name of a method. */
        private static java.util.Map calls() {
            java.util.Map calls = new java.util.HashMap();
            calls.put("lpad", "pad");
            calls.put("rpad", "pad");
            calls.put("quote", "times4");
            calls.put("makeValid", "times4");
            calls.put("aesDecrypt", "times4");
            calls.put("encode", "times9");
            calls.put("decode", "times6");
            calls.put("getSentences", "times32");
            calls.put("schemaOfVariant", "times32");
            calls.put("parseJson", "json");
            calls.put("jsonObjectKeys", "json");
            return calls;
        }

        /** Bytes that functions which call a lambda function need for each element, besides those of its value. */
        private static java.util.Map loops() {
            java.util.Map loops = new java.util.HashMap();
            loops.put("ArrayTransform", Integer.valueOf(16));
            loops.put("ZipWith", Integer.valueOf(16));
            loops.put("ArrayFilter", Integer.valueOf(32));
            loops.put("ArraySort", Integer.valueOf(16));
            loops.put("TransformKeys", Integer.valueOf(100));
            loops.put("TransformValues", Integer.valueOf(100));
            loops.put("MapFilter", Integer.valueOf(100));
            loops.put("MapZipWith", Integer.valueOf(100));
            return loops;
        }

        private static java.util.Map kinds() {
            java.util.Map kinds = new java.util.HashMap();
            String[] listed = new String[] {
                "repeat:StringRepeat", "pad:StringLPad,StringRPad", "space:StringSpace", "digits:FormatNumber",
                "array_repeat:ArrayRepeat", "array_insert:ArrayInsert", "sequence:Sequence", "format:FormatString",
                "replace:StringReplace", "search:Contains,StringInstr,StringLocate,SubstringIndex",
                "parts:StringSplitSQL", "translate:StringTranslate",
                "pattern:DateFormatClass,FromUnixTime,GetTimestamp,UnixTimestamp,ToUnixTimestamp",
                "distance:Levenshtein",
                "pairs:ArrayDistinct,ArrayUnion,ArrayIntersect,ArrayExcept,ArraysOverlap",
                "deep:Murmur3Hash,XxHash64", "join:ConcatWs,ArrayJoin", "json:JsonToStructs",
                "times1:Concat,Overlay", "times2:Hex", "times4:Upper,Lower,GetJsonObject,ToPrettyString",
                "times6:InitCap,Mask,StructsToJson,StructsToCsv,CsvToStructs,ToVariantObject",
                "each40:SortArray", "each72:ArraysZip", "each100:MapEntries,MapConcat,MapFromArrays,MapFromEntries",
                "regex_like:RLike,Like", "regex_likes:LikeAll,NotLikeAll,LikeAny,NotLikeAny",
                "regex_replace:RegExpReplace", "regex_extract:RegExpExtract",
                "regex_extract_all:RegExpExtractAll", "regex_instr:RegExpInStr", "regex_split:StringSplit",
                "map:StringToMap", "variant:VariantGet"};
            for (int index = 0; index < listed.length; index++) {
                String[] parts = listed[index].split("[:,]");
                for (int name = 1; name < parts.length; name++) {
                    kinds.put(parts[name], parts[0]);
                }
            }
            return kinds;
        }

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            Expression expression = bounded((Expression) node);
            return constant(expression);
        }

        private static Expression bounded(Expression node) {
            if (node instanceof LambdaFunction) {
                LambdaFunction function = (LambdaFunction) node;
                Expression body = (Expression) function.function();
                if (function.hidden() || body instanceof Described) {
                    return node;
                }
                return new LambdaFunction(new Counted(body, Described.textOf(body)), function.arguments(), function.hidden());
            }
            if (node.dataType() instanceof ObjectType) {
                return node;
            }
            if (node instanceof HigherOrderFunction) {
                node = sized(node);
            }
            refuseScale(node);
            String kind = kind(node);
            if (kind != null) {
                return new Asked(node, kind, Described.textOf(node));
            }
            boolean free = FREE.contains(node.getClass().getSimpleName());
            if (node instanceof CreateNamedStruct) {
                StructField[] fields = ((StructType) node.dataType()).fields();
                for (int index = 0; index < fields.length; index++) {
                    free = free && !isNested(fields[index].dataType());
                }
            }
            return free || !isLarge(node.dataType()) ? node
                : new Counted(node, Described.textOf(node));
        }

        /** A function that calls a lambda function, with arrays and maps that are asked for the memory it needs. */
        private static Expression sized(Expression node) {
            Integer bytes = (Integer) LOOPS.get(node.getClass().getSimpleName());
            if (bytes == null) {
                return node;
            }
            DataType type = node.dataType();
            int each = bytes.intValue() + (type instanceof ArrayType ? weight(((ArrayType) type).elementType()) : 8);
            String text = Described.textOf(node);
            java.util.List children = new java.util.ArrayList();
            for (int index = 0; index < node.children().size(); index++) {
                Expression child = (Expression) node.children().apply(index);
                boolean many = isNested(child.dataType()) && !(child instanceof LambdaFunction) && !(child instanceof Sized);
                children.add(many ? new Sized(child, each, text) : child);
            }
            return (Expression) node.withNewChildren(sequence(children));
        }

        private static String kind(Expression node) {
            String name = node.getClass().getSimpleName();
            if (node instanceof Cast) {
                Expression child = (Expression) ((Cast) node).child();
                if (child.dataType() instanceof StringType && node.dataType() instanceof DecimalType) {
                    return "decimal";
                }
                boolean variant = child.dataType() instanceof VariantType;
                String asked = variant ? "variant" : !isNested(child.dataType()) ? ""
                    : node.dataType() instanceof StringType ? "times4" : "times8";
                if (isLarge(child.dataType()) && isDecimal(node.dataType())) {
                    return "decimals" + asked;
                }
                return asked.isEmpty() ? null : asked;
            }
            if (DECODERS.contains(name) && isDecimal(node.dataType())) {
                return "decimals" + KINDS.get(name);
            }
            if (node instanceof StaticInvoke) {
                return (String) CALLS.get(((StaticInvoke) node).functionName());
            }
            if (node instanceof Invoke) {
                Expression target = (Expression) ((Invoke) node).targetObject();
                DataType type = target.dataType();
                String called = type instanceof ObjectType ? ((ObjectType) type).cls().getSimpleName() : "";
                if (called.equals("ParseUrlEvaluator")) {
                    return node.children().size() == 4 ? "url" : "times4";
                }
                return called.equals("StructsToJsonEvaluator") ? "times6" : (String) CALLS.get(((Invoke) node).functionName());
            }
            String kind = (String) KINDS.get(name);
            if ("pairs".equals(kind)) {
                DataType type = ((Expression) node.children().apply(0)).dataType();
                return type instanceof ArrayType && isLarge(((ArrayType) type).elementType()) ? kind : "each40";
            }
            if ("pattern".equals(kind) && node.children().apply(1) instanceof Literal) {
                return null;
            }
            return kind;
        }

        private static boolean isDecimal(DataType type) {
            return type.catalogString().contains("decimal(");
        }

        /** A scale of millions of digits, which Java would count out. */
        private static void refuseScale(Expression node) {
            String name = node.getClass().getSimpleName();
            if (name.equals("Round") || name.equals("BRound") || name.equals("RoundCeil") || name.equals("RoundFloor")) {
                Object scale = ((Expression) node.children().apply(1)).foldable()
                    ? ((Expression) node.children().apply(1)).eval(null) : null;
                if (scale instanceof Number && Math.abs(((Number) scale).doubleValue()) > LARGEST_SCALE) {
                    throw new Exceeded(node.sql() + " rounds to more than " + LARGEST_SCALE + " digits");
                }
            }
        }

        private static Expression constant(Expression node) {
            if (node instanceof Literal || node instanceof LambdaFunction || node instanceof CommonExpressionDef
                    || !node.foldable()
                    || !node.deterministic() || node.dataType() instanceof ObjectType) {
                return node;
            }
            try {
                return new Literal(node.eval(null), node.dataType());
            } catch (RuntimeException error) {
                return node;
            }
        }
    }
}
