package hifi;

import com.fasterxml.jackson.core.JsonEncoding;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads members of a JSON object as text, numbers as they are written: Spark's from_json makes doubles of those with a
 * fraction or an exponent, refuses numbers of more than 1,000 digits, and ignores text after the object.
 * Compiled by Janino, which has no generics.
 */
public class JsonFields implements java.io.Serializable {
    private static final JsonFactory FACTORY = factory();

    private final String[] names;
    private transient HashMap positions;

    /** The SQL function: its arguments are the text and the names. */
    public static class Function extends scala.runtime.AbstractFunction1 {
        public Object apply(Object given) {
            scala.collection.immutable.Seq arguments = (scala.collection.immutable.Seq) given;
            String[] names = new String[arguments.size() - 1];
            for (int index = 0; index < names.length; index++) {
                names[index] = ((Expression) arguments.apply(index + 1)).eval(null).toString();
            }
            java.util.List text = java.util.Arrays.asList(new Object[] {arguments.apply(0)});
            return new Invoke(
                new Literal(new JsonFields(names), new ObjectType(JsonFields.class)), "read",
                new ArrayType(StringType$.MODULE$, true), SqlBudget.sequence(text),
                SqlBudget.sequence(new java.util.ArrayList()), true, true, true);
        }
    }

    public JsonFields(String[] names) {
        this.names = names;
    }

    private static JsonFactory factory() {
        StreamReadConstraints sizes = StreamReadConstraints.builder()
            .maxNumberLength(Integer.MAX_VALUE).maxNameLength(Integer.MAX_VALUE).maxStringLength(Integer.MAX_VALUE)
            .build();
        JsonFactory factory = new JsonFactory();
        factory.setStreamReadConstraints(sizes);
        factory.disable(JsonFactory.Feature.INTERN_FIELD_NAMES);
        factory.disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW);
        return factory;
    }

    /** The members by position, the last of equal names; null: the text is not one JSON object in UTF-8. */
    public ArrayData read(UTF8String text) {
        byte[] json = text.getBytes();
        if (!isObject(text, json)) {
            return null;
        }
        if (positions == null) {
            HashMap made = new HashMap();
            for (int index = 0; index < names.length; index++) {
                made.put(names[index], Integer.valueOf(index));
            }
            positions = made;
        }
        Object[] values = new Object[names.length];
        try {
            JsonParser parser = parser(json);
            try {
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    Integer position = (Integer) positions.get(parser.currentName());
                    JsonToken token = parser.nextToken();
                    if (position == null) {
                        parser.skipChildren();
                    } else {
                        values[position.intValue()] = textOf(parser, token);
                    }
                }
                return parser.nextToken() == null ? new GenericArrayData(values) : null;
            } finally {
                parser.close();
            }
        } catch (IOException error) {
            return null;
        }
    }

    /** A parser without limits of the sizes of numbers, names and texts. */
    public static JsonParser parser(byte[] json) throws IOException {
        return FACTORY.createParser(json);
    }

    /** Whether a text begins as a JSON object, and is UTF-8 with all escaped characters whole. */
    public static boolean isObject(UTF8String text, byte[] json) {
        return beginsAsObject(json) && text.isValid() && !hasHalfPair(json);
    }

    private static UTF8String textOf(JsonParser parser, JsonToken token) throws IOException {
        if (token == JsonToken.VALUE_NULL) {
            return null;
        }
        if (token != JsonToken.START_OBJECT && token != JsonToken.START_ARRAY) {
            return UTF8String.fromString(parser.getText());
        }
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        JsonGenerator generator = FACTORY.createGenerator(written, JsonEncoding.UTF8);
        int depth = 0;
        do {
            if (token == JsonToken.VALUE_NUMBER_INT || token == JsonToken.VALUE_NUMBER_FLOAT) {
                generator.writeNumber(parser.getText());
            } else {
                generator.copyCurrentEvent(parser);
                depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
            }
            token = depth == 0 ? null : parser.nextToken();
        } while (token != null);
        generator.close();
        return UTF8String.fromBytes(written.toByteArray());
    }

    /** Whether the first value is an object of a text in UTF-8: Jackson reads UTF-16 and skips byte order marks, too. */
    private static boolean beginsAsObject(byte[] json) {
        for (int index = 0; index < Math.min(4, json.length); index++) {
            if (json[index] == 0) {
                return false;
            }
        }
        int at = 0;
        while (at < json.length && (json[at] == ' ' || json[at] == '\t' || json[at] == '\r' || json[at] == '\n')) {
            at++;
        }
        return at < json.length && json[at] == '{';
    }

    /** Whether an escaped code unit is half of a surrogate pair, which is no character. */
    private static boolean hasHalfPair(byte[] json) {
        for (int at = 0; at < json.length - 1; at++) {
            if (json[at] != '\\') {
                continue;
            }
            at++;
            int unit = json[at] == 'u' ? codeUnit(json, at + 1) : -1;
            if (unit < 0xD800 || unit > 0xDFFF) {
                continue;
            }
            boolean escaped = at + 6 < json.length && json[at + 5] == '\\' && json[at + 6] == 'u';
            int next = escaped ? codeUnit(json, at + 7) : -1;
            if (unit > 0xDBFF || next < 0xDC00 || next > 0xDFFF) {
                return true;
            }
            at += 10;
        }
        return false;
    }

    private static int codeUnit(byte[] json, int at) {
        int unit = 0;
        for (int index = at; index < at + 4; index++) {
            int digit = index < json.length ? Character.digit((char) (json[index] & 0xFF), 16) : -1;
            if (digit < 0) {
                return -1;
            }
            unit = unit * 16 + digit;
        }
        return unit;
    }
}
