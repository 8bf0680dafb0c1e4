package hifi;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.types.BooleanType$;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Whether values at paths of a JSON object are others' equals: numbers by what they are, however they are written, and
 * objects by their members, in any order. A value that is not there is null. Compiled by Janino, which has no generics.
 */
public class JsonMatch implements java.io.Serializable {
    private static final String NULL = "null";
    private static final int LONGEST_EXPONENT = 17;

    private final String[] paths;
    private final String[] values;
    private transient String[][] segments;
    private transient Object[] expected;

    /** The SQL function: its arguments are the text, and a path and a value in JSON for each condition. */
    public static class Function extends scala.runtime.AbstractFunction1 {
        public Object apply(Object given) {
            scala.collection.immutable.Seq arguments = (scala.collection.immutable.Seq) given;
            String[] paths = new String[arguments.size() / 2];
            String[] values = new String[paths.length];
            for (int index = 0; index < paths.length; index++) {
                paths[index] = ((Expression) arguments.apply(2 * index + 1)).eval(null).toString();
                values[index] = ((Expression) arguments.apply(2 * index + 2)).eval(null).toString();
            }
            java.util.List text = java.util.Arrays.asList(new Object[] {arguments.apply(0)});
            return new Invoke(
                new Literal(new JsonMatch(paths, values), new ObjectType(JsonMatch.class)), "matches",
                BooleanType$.MODULE$, SqlBudget.sequence(text), SqlBudget.sequence(new ArrayList()), true, true, true);
        }
    }

    public JsonMatch(String[] paths, String[] values) {
        this.paths = paths;
        this.values = values;
    }

    /** Whether all values are equal; null: the text is not one JSON object in UTF-8. Takes linear time. */
    public Boolean matches(UTF8String text) {
        byte[] json = text.getBytes();
        if (!JsonFields.isObject(text, json)) {
            return null;
        }
        try {
            if (expected == null) {
                prepare();
            }
            Map members = new HashMap();
            JsonParser parser = JsonFields.parser(json);
            try {
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String name = parser.currentName();
                    JsonToken token = parser.nextToken();
                    if (isFirst(name)) {
                        members.put(name, valueOf(parser, token));
                    } else {
                        parser.skipChildren();
                    }
                }
                if (parser.nextToken() != null) {
                    return null;
                }
            } finally {
                parser.close();
            }
            for (int index = 0; index < expected.length; index++) {
                if (!expected[index].equals(at(members, segments[index]))) {
                    return Boolean.FALSE;
                }
            }
            return Boolean.TRUE;
        } catch (IOException error) {
            return null;
        }
    }

    private void prepare() throws IOException {
        String[][] split = new String[paths.length][];
        Object[] read = new Object[paths.length];
        for (int index = 0; index < paths.length; index++) {
            split[index] = paths[index].split("\\.");
            JsonParser parser = JsonFields.parser(values[index].getBytes("UTF-8"));
            read[index] = valueOf(parser, parser.nextToken());
            parser.close();
        }
        segments = split;
        expected = read;
    }

    private boolean isFirst(String name) {
        for (int index = 0; index < segments.length; index++) {
            if (segments[index][0].equals(name)) {
                return true;
            }
        }
        return false;
    }

    private static Object at(Map members, String[] path) {
        Object value = members;
        for (int index = 0; index < path.length; index++) {
            value = value instanceof Map ? ((Map) value).get(path[index]) : null;
        }
        return value == null ? NULL : value;
    }

    /** A value whose equals are equal: a map, a list, or a text that begins with the kind of the value. */
    private static Object valueOf(JsonParser parser, JsonToken token) throws IOException {
        if (token == JsonToken.START_OBJECT) {
            Map members = new HashMap();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                members.put(name, valueOf(parser, parser.nextToken()));
            }
            return members;
        }
        if (token == JsonToken.START_ARRAY) {
            ArrayList elements = new ArrayList();
            JsonToken next = parser.nextToken();
            while (next != JsonToken.END_ARRAY) {
                elements.add(valueOf(parser, next));
                next = parser.nextToken();
            }
            return elements;
        }
        if (token == JsonToken.VALUE_STRING) {
            return "text " + parser.getText();
        }
        if (token == JsonToken.VALUE_NUMBER_INT || token == JsonToken.VALUE_NUMBER_FLOAT) {
            return "number " + numberOf(parser.getText());
        }
        return token == JsonToken.VALUE_NULL ? NULL : parser.getText();
    }

    /** A number in one form: sign, digits without zeros at both ends, and exponent. Without arithmetic on its digits. */
    private static String numberOf(String text) {
        int exponentAt = Math.max(text.indexOf('e'), text.indexOf('E'));
        String mantissa = exponentAt < 0 ? text : text.substring(0, exponentAt);
        String sign = mantissa.startsWith("-") ? "-" : "";
        int point = mantissa.indexOf('.');
        String digits = mantissa.substring(sign.length());
        if (point >= 0) {
            digits = mantissa.substring(sign.length(), point) + mantissa.substring(point + 1);
        }
        int first = 0;
        while (first < digits.length() && digits.charAt(first) == '0') {
            first++;
        }
        if (first == digits.length()) {
            return "0";
        }
        int end = digits.length();
        while (digits.charAt(end - 1) == '0') {
            end--;
        }
        String exponent = exponentAt < 0 ? "0" : text.substring(exponentAt + 1);
        if (exponent.length() > LONGEST_EXPONENT) {  // equal to no number that can be declared, but for zeros in front
            exponent = exponent.replaceFirst("^([+-]?)0+(?=[0-9])", "$1");
        }
        if (exponent.length() > LONGEST_EXPONENT) {
            return text;
        }
        long shift = Long.parseLong(exponent) + digits.length() - end;
        shift -= point < 0 ? 0 : mantissa.length() - point - 1;
        return sign + digits.substring(first, end) + "e" + shift;
    }
}
