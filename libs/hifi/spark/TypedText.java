package hifi;

import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;

/**
 * Reads texts as Spark's cast does, but none that have another form: the cast reads `yes`, `5d`, `2026` and `12:30`, too,
 * the last one as a time of the day on which it is read. Takes linear time. Compiled by Janino.
 */
public class TypedText {
    private static final long FIRST_DAY = -719162L;
    private static final long LAST_DAY = 2932896L;
    private static final long DAY_US = 86400000000L;

    /** The SQL function: its arguments are the text and the name of the type, a constant. */
    public static class Function extends scala.runtime.AbstractFunction1 {
        public Object apply(Object arguments) {
            scala.collection.immutable.Seq given = (scala.collection.immutable.Seq) arguments;
            String type = ((Literal) given.apply(1)).value().toString();
            return new StaticInvoke(
                TypedText.class, DataType.fromDDL(type), type + "Of",
                SqlBudget.sequence(java.util.Collections.singletonList(given.apply(0))),
                SqlBudget.sequence(new java.util.ArrayList()), true, true, true, Option.apply(null));
        }
    }

    /** The value of `true` or `false`; else null, as in the other methods. */
    public static Boolean booleanOf(UTF8String text) {
        String value = text.toString().trim();
        return value.equalsIgnoreCase("true") ? Boolean.TRUE : value.equalsIgnoreCase("false") ? Boolean.FALSE : null;
    }

    /** A number as JSON has it, or with `+`, or with digits on one side of the point only; `NaN` and `Infinity`. */
    public static Double doubleOf(UTF8String text) {
        String value = text.toString().trim();
        int last = value.length() - 1;
        boolean hasSuffix = last > 0 && "dDfF".indexOf(value.charAt(last)) >= 0
            && "0123456789.".indexOf(value.charAt(last - 1)) >= 0;
        if (hasSuffix || value.indexOf('x') >= 0 || value.indexOf('X') >= 0) {
            return null;
        }
        try {
            return Double.valueOf(value);
        } catch (NumberFormatException error) {
            return (Double) Cast.processFloatingPointSpecialLiterals(value, false);
        }
    }

    /** Days since 1970 of a date, such as `2026-07-01`, or of a time with its date, in the years 1 to 9999. */
    public static Integer dateOf(UTF8String text) {
        Integer day = isDayOrTime(text) ? (Integer) valueOf(DateTimeUtils.stringToDate(text)) : null;
        return day != null && isKnownDay(day.longValue()) ? day : null;
    }

    /**
     * Microseconds since 1970 of a time with its date in RFC 3339, also without its offset, or of a date, in the years 1
     * to 9999 in UTC: Python and many readers of tables know no others.
     */
    public static Long timestampOf(UTF8String text) {
        Long timeUs = isDayOrTime(text)
            ? (Long) valueOf(DateTimeUtils.stringToTimestamp(text, java.time.ZoneOffset.UTC)) : null;
        return timeUs != null && isKnownDay(Math.floorDiv(timeUs.longValue(), DAY_US)) ? timeUs : null;
    }

    private static boolean isKnownDay(long day) {
        return day >= FIRST_DAY && day <= LAST_DAY;
    }

    private static Object valueOf(Option option) {
        return option.isDefined() ? option.get() : null;
    }

    private static boolean isDayOrTime(UTF8String text) {
        String value = text.toString().trim();
        int at = after(value, 0, "0000-00-00");
        if (at == value.length()) {
            return true;
        }
        at = after(value, at, value.startsWith("T", at) ? "T00:00" : " 00:00");
        if (value.startsWith(":", at)) {
            at = after(value, at, ":00");
            if (value.startsWith(".", at)) {
                at = after(value, at, ".0");
                while (at > 0 && at < value.length() && isDigit(value.charAt(at))) {
                    at++;
                }
            }
        }
        if (value.startsWith("Z", at) || value.startsWith("z", at)) {
            at++;
        } else if (at < value.length()) {
            at = after(value, at, value.startsWith("-", at) ? "-00" : "+00");
            if (at < value.length()) {
                at = after(value, at, value.startsWith(":", at) ? ":00" : "00");
            }
        }
        return at == value.length();
    }

    /** The place behind a form, in which 0 stands for any digit; -1: the text does not have it there, or that is -1. */
    private static int after(String text, int at, String form) {
        if (at < 0 || at + form.length() > text.length()) {
            return -1;
        }
        for (int index = 0; index < form.length(); index++) {
            char character = text.charAt(at + index);
            if (form.charAt(index) == '0' ? !isDigit(character) : form.charAt(index) != character) {
                return -1;
            }
        }
        return at + form.length();
    }

    private static boolean isDigit(char character) {
        return character >= '0' && character <= '9';
    }
}
