package hifi;

import java.util.HashSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An expression of a pipe, evaluated within a budget. What exceeds it fails alone; three such events quarantine the
 * pipe's revision in this process, and events that each take more than a tenth of the budget fail while they exceed
 * three budgets together, of which a tenth of a core is given back. An event that comes again, since its batch failed,
 * is counted once. What made-up events exceed, with which Spark is warmed up, is counted apart.
 */
public class BoundedExpression implements java.io.Serializable {
    /** Property of the thread that starts a query: its events are made up. */
    public static final String MADE_UP = "hifi.made-up";
    private static final int MOST = 3;
    private static final ConcurrentHashMap STATES = new ConcurrentHashMap();

    private final Expression expression;
    private final String revision;
    private final long limitNs;
    private final long limitBytes;
    private final boolean result;
    private transient State ofEvents;
    private transient State ofMadeUp;

    /** What this process knows of a revision of a pipe. */
    static class State {
        final HashSet exceeded = new HashSet();
        volatile boolean quarantined;
        double slowNs;
        long sinceNs = System.nanoTime();
    }

    /**
     * An expression of a revision.
     *
     * @param revision key and offset of the pipe's revision.
     * @param result whether it makes the result, in which the reason is told; the others are null then.
     */
    public BoundedExpression(
            Expression expression, String revision, long limitNs, long limitBytes, boolean result) {
        this.expression = expression;
        this.revision = revision;
        this.limitNs = limitNs;
        this.limitBytes = limitBytes;
        this.result = result;
    }

    /** The value of a record with these headers, which say which event it is. */
    public Object eval(InternalRow row, ArrayData headers) {
        State state = isMadeUp() ? ofMadeUp : ofEvents;
        if (state == null) {
            STATES.putIfAbsent(revision, new State());
            ofEvents = (State) STATES.get(revision);
            STATES.putIfAbsent(revision + MADE_UP, new State());
            ofMadeUp = (State) STATES.get(revision + MADE_UP);
            state = isMadeUp() ? ofMadeUp : ofEvents;
        }
        String refusal = refusal(state);
        if (refusal != null) {
            return failed(refusal);
        }
        SqlBudget budget = SqlBudget.current();
        budget.start(limitNs, limitBytes);
        try {
            Object value = expression.eval(row);
            if (budget.exceeded() == null) {
                return value;
            }
        } catch (SqlBudget.Exceeded error) {
            // told below
        } catch (StackOverflowError error) {
            return result ? failure("sql-failed", "an expression of the pipe is nested too deeply for this event") : null;
        } catch (Exception error) {
            if (budget.exceeded() == null) {
                return result ? failure("sql-failed", "an expression of the pipe failed on this event") : null;
            }
        } finally {
            long usedNs = budget.stop();
            budget.forget(expression);
            if (usedNs > limitNs / 10 && budget.exceeded() == null) {
                slow(state, usedNs);
            }
        }
        if (result) {
            synchronized (state) {
                state.exceeded.add(Integer.valueOf(headers.hashCode()));
                state.quarantined = state.exceeded.size() >= MOST;
            }
        }
        return failed(budget.exceeded());
    }

    private static boolean isMadeUp() {
        TaskContext task = TaskContext.get();
        return task == null || task.getLocalProperty(MADE_UP) != null;
    }

    private String refusal(State state) {
        if (state.quarantined) {
            return "quarantined: " + MOST + " events exceeded the budget of SQL; publish the pipe again to release it";
        }
        if (state.slowNs == 0) {
            return null;
        }
        synchronized (state) {
            long nowNs = System.nanoTime();
            state.slowNs = Math.max(0, state.slowNs - (nowNs - state.sinceNs) / 10.0);
            state.sinceNs = nowNs;
            return state.slowNs < MOST * limitNs ? null
                : "the pipe's slow events took more CPU time than " + MOST + " of them may";
        }
    }

    private static void slow(State state, long usedNs) {
        synchronized (state) {
            if (state.slowNs == 0) {
                state.sinceNs = System.nanoTime();
            }
            state.slowNs += usedNs;
        }
    }

    private Object failed(String reason) {
        return result ? failure("sql-budget", reason) : null;
    }

    private static Object failure(String reason, String detail) {
        return new GenericInternalRow(new Object[] {null, null, UTF8String.fromString(reason + ": " + detail)});
    }
}
