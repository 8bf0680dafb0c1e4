package hifi;

import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.PartialFunction;

/** Makes arithmetic and casts give null where they would give another number. Compiled by Janino, which has no generics. */
public class ExactArithmetic {
    private static final double LARGEST_SECONDS = 9.2e12;
    private static final int LARGEST_DAYS = 4000000;
    /** A time without a date, for which a cast takes the day on which it is read. */
    private static final UTF8String TIME_ALONE = UTF8String.fromString("^\\s*(T|[+-]?\\d{1,2}:)");

    /** An analysed plan with exact expressions. */
    public LogicalPlan exact(LogicalPlan plan) {
        return (LogicalPlan) plan.transformUp(new Plans());
    }

    /** The SQL of arithmetic in a plan whose result may not fit its type: one in int, or a product in bigint. */
    public java.util.List overflowing(LogicalPlan plan) {
        Overflows overflows = new Overflows();
        plan.transformUp(new Plans(overflows));
        return overflows.texts;
    }

    public static class Plans extends scala.runtime.AbstractPartialFunction {
        private final PartialFunction rule;

        public Plans() {
            this.rule = new Rule();
        }

        public Plans(PartialFunction rule) {
            this.rule = rule;
        }

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            return ((LogicalPlan) node).transformExpressionsUp(rule);
        }
    }

    public static class Overflows extends scala.runtime.AbstractPartialFunction {
        public final java.util.List texts = new java.util.ArrayList();

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            Expression expression = (Expression) node;
            boolean product = node instanceof Multiply;
            boolean sum = node instanceof Add || node instanceof Subtract;
            if ((product || sum) && isIntegral(expression.dataType()) && !expression.foldable()) {
                if (product || !(expression.dataType() instanceof LongType)) {
                    texts.add(new String[] {expression.sql(), expression.dataType().sql().toLowerCase()});
                }
            }
            return node;
        }
    }

    public static class Rule extends scala.runtime.AbstractPartialFunction {
        private final NumericEvalContext exact = new NumericEvalContext(EvalMode.TRY(), true);
        private final NumericEvalContext raising = new NumericEvalContext(EvalMode.ANSI(), true);

        public boolean isDefinedAt(Object node) {
            return true;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (node instanceof BinaryArithmetic && isIntegral(((Expression) node).dataType())) {
                return arithmetic((BinaryArithmetic) node);
            }
            if (node instanceof UnaryMinus && isIntegral(((Expression) node).dataType())) {
                return new TryEval(new UnaryMinus((Expression) ((UnaryMinus) node).child(), true));
            }
            if (node instanceof Abs && isIntegral(((Expression) node).dataType())) {
                return new TryEval(new Abs((Expression) ((Abs) node).child(), true));
            }
            if (node instanceof Round && isIntegral(((Expression) node).dataType())) {
                return new TryEval(new Round((Expression) ((Round) node).child(), (Expression) ((Round) node).scale(), true));
            }
            if (node instanceof BRound && isIntegral(((Expression) node).dataType())) {
                return new TryEval(new BRound((Expression) ((BRound) node).child(), (Expression) ((BRound) node).scale(), true));
            }
            if (node instanceof Ceil && ((Expression) node).dataType() instanceof LongType) {
                return within((Expression) node, (Expression) ((Ceil) node).child(), 9223372036854774784.0);
            }
            if (node instanceof Floor && ((Expression) node).dataType() instanceof LongType) {
                return within((Expression) node, (Expression) ((Floor) node).child(), 9223372036854774784.0);
            }
            if (node instanceof DateAdd) {
                return within((Expression) node, (Expression) ((DateAdd) node).days(), LARGEST_DAYS);
            }
            if (node instanceof DateSub) {
                return within((Expression) node, (Expression) ((DateSub) node).days(), LARGEST_DAYS);
            }
            if (node instanceof Cast) {
                return cast((Cast) node);
            }
            if (node instanceof ParseToTimestamp) {
                return ((Expression) ((ParseToTimestamp) node).replacement()).transformUp(this);
            }
            if (node instanceof StructsToJson && ((Object) ((StructsToJson) node).child()) instanceof CreateNamedStruct) {
                return ((Expression) node).transformUp(new Finite((Expression) ((StructsToJson) node).child()));
            }
            return node;
        }

        private Expression arithmetic(BinaryArithmetic node) {
            if (node instanceof Add) {
                return new Add((Expression) node.left(), (Expression) node.right(), exact);
            }
            if (node instanceof Subtract) {
                return new Subtract((Expression) node.left(), (Expression) node.right(), exact);
            }
            if (node instanceof Multiply) {
                return new Multiply((Expression) node.left(), (Expression) node.right(), exact);
            }
            if (node instanceof IntegralDivide) {
                return new TryEval(new IntegralDivide((Expression) node.left(), (Expression) node.right(), raising));
            }
            return node;
        }

        private Expression cast(Cast node) {
            DataType from = ((Expression) node.child()).dataType();
            DataType to = node.dataType();
            if (isIntegral(to)
                    && (from instanceof NumericType || from instanceof TimestampType || from instanceof StringType)) {
                if (isIntegral(from) && from.defaultSize() <= to.defaultSize()) {
                    return node;
                }
                return new Cast((Expression) node.child(), to, node.timeZoneId(), EvalMode.TRY());
            }
            if (to instanceof TimestampType && from instanceof NumericType) {
                return within(node, (Expression) node.child(), LARGEST_SECONDS);
            }
            if (to instanceof TimestampType && from instanceof StringType) {
                Expression timeAlone = new RLike((Expression) node.child(), new Literal(TIME_ALONE, StringType$.MODULE$));
                return new If(timeAlone, new Literal(null, to), node);
            }
            return node;
        }
    }

    /** Makes values of an object in JSON null that are infinite or no number. */
    public static class Finite extends scala.runtime.AbstractPartialFunction {
        private final Expression struct;

        public Finite(Expression struct) {
            this.struct = struct;
        }

        public boolean isDefinedAt(Object node) {
            return node == struct;
        }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (node != struct) {
                return otherwise.apply(node);
            }
            java.util.List children = new java.util.ArrayList();
            for (int index = 0; index < struct.children().size(); index++) {
                Expression child = (Expression) struct.children().apply(index);
                children.add(index % 2 == 1 ? finite(child) : child);
            }
            return struct.withNewChildren(org.apache.spark.api.python.PythonUtils.toSeq(children));
        }

        private Expression finite(Expression value) {
            return SqlBudget.Finite.holdsFloats(value.dataType()) ? new SqlBudget.Finite(value) : value;
        }
    }

    static boolean isIntegral(DataType type) {
        return type instanceof LongType || type instanceof IntegerType || type instanceof ShortType
            || type instanceof ByteType;
    }

    static Expression cast(Expression value, DataType type) {
        return new Cast(value, type, scala.Option.apply("UTC"), EvalMode.LEGACY());
    }

    /** An expression where a number is within a bound; null elsewhere. */
    static Expression within(Expression expression, Expression number, double bound) {
        Expression distance = new Abs(cast(number, DoubleType$.MODULE$), false);
        Expression limit = new Literal(Double.valueOf(bound), DoubleType$.MODULE$);
        Expression nothing = new Literal(null, expression.dataType());
        return new If(new LessThanOrEqual(distance, limit), expression, nothing);
    }
}
