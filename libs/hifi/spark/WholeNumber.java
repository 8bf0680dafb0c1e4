package hifi;

import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.LongType$;
import org.apache.spark.unsafe.types.UTF8String;

/** Reads texts of numbers, such as `5`, `5.0` and `1e3`, as whole numbers of 64 bits. Compiled by Janino. */
public class WholeNumber {
    private static final int MOST_DIGITS = 19;
    private static final int LARGEST_EXPONENT = 1000000000;

    /** The SQL function: its argument is the text. */
    public static class Function extends scala.runtime.AbstractFunction1 {
        public Object apply(Object arguments) {
            return new StaticInvoke(
                WholeNumber.class, LongType$.MODULE$, "of", (scala.collection.immutable.Seq) arguments,
                SqlBudget.sequence(new java.util.ArrayList()), true, true, true, scala.Option.apply(null));
        }
    }

    /** The number; null: the text is no number, the number is not whole, or it does not fit. Takes linear time. */
    public static Long of(UTF8String text) {
        byte[] bytes = text.getBytes();
        int at = 0;
        int end = bytes.length;
        while (at < end && isSpace(bytes[at])) {
            at++;
        }
        while (end > at && isSpace(bytes[end - 1])) {
            end--;
        }
        boolean negative = at < end && bytes[at] == '-';
        if (negative || at < end && bytes[at] == '+') {
            at++;
        }
        long value = 0;  // of the digits that count, below zero, where there is one number more
        int counted = 0;  // digits from the first that is not 0 to the last that is not 0
        int zeros = 0;  // behind those
        boolean point = false;
        boolean digits = false;
        long behindPoint = 0;  // digits, with those of `zeros`
        for (; at < end; at++) {
            byte character = bytes[at];
            if (character == '.' && !point) {
                point = true;
                continue;
            }
            if (character < '0' || character > '9') {
                break;
            }
            digits = true;
            behindPoint += point ? 1 : 0;
            if (character == '0') {
                zeros += counted == 0 ? 0 : 1;
                continue;
            }
            if (counted + zeros + 1L > MOST_DIGITS) {
                counted = MOST_DIGITS + 1;
                zeros = 0;
                continue;
            }
            for (; zeros > 0; zeros--, counted++) {
                value *= 10;
            }
            if (value < (Long.MIN_VALUE + (character - '0')) / 10) {
                return null;
            }
            value = value * 10 - (character - '0');
            counted++;
        }
        if (!digits) {
            return null;
        }
        long exponent = 0;
        if (at < end) {
            if (bytes[at] != 'e' && bytes[at] != 'E') {
                return null;
            }
            at++;
            boolean below = at < end && bytes[at] == '-';
            if (below || at < end && bytes[at] == '+') {
                at++;
            }
            if (at == end) {
                return null;
            }
            for (; at < end; at++) {
                if (bytes[at] < '0' || bytes[at] > '9') {
                    return null;
                }
                exponent = Math.min(LARGEST_EXPONENT, exponent * 10 + bytes[at] - '0');
            }
            exponent = below ? -exponent : exponent;
        }
        if (counted == 0) {
            return Long.valueOf(0);
        }
        long shift = exponent - behindPoint + zeros;  // zeros to add behind the digits that count
        if (counted > MOST_DIGITS || shift < 0 || shift > MOST_DIGITS) {
            return null;
        }
        for (; shift > 0; shift--) {
            if (value < Long.MIN_VALUE / 10) {
                return null;
            }
            value *= 10;
        }
        if (!negative && value == Long.MIN_VALUE) {
            return null;
        }
        return Long.valueOf(negative ? value : -value);
    }

    private static boolean isSpace(byte character) {
        return character >= 0 && character <= ' ' || character == 0x7F;
    }
}
