package rollingfs.hadoop.format;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.ResolverStyle;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.zip.CRC32C;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header.Phase;

/** The words that header lines are made of: numbers, times, names, {@code key=value} fields. Pure. */
final class Tokens {
    private static final Pattern NUMBER = Pattern.compile("0|[1-9][0-9]{0,18}");
    private static final Pattern HEX8 = Pattern.compile("[0-9a-f]{8}");
    private static final Pattern KEY = Pattern.compile("[0-9a-f]{12}");
    private static final Pattern ALIAS = Pattern.compile("[a-z0-9][a-z0-9_-]{0,31}");
    private static final Pattern UUID = Pattern.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
    private static final Pattern TIME =
            Pattern.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z");
    private static final DateTimeFormatter TIME_FORMAT =
            DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSS'Z'").withResolverStyle(ResolverStyle.STRICT);
    private static final byte[] END = "\nend crc32c=".getBytes(StandardCharsets.US_ASCII);
    private static final int END_BYTES = END.length + 8 + 2;
    private static final int TIER_PATH_BYTES_MAX = 1024;

    private Tokens() {}

    /** The lines between the first and the end line, and how many bytes the text has. */
    record Text(List<String> lines, int bytes) {}

    static int crc32c(byte[] data, int start, int end) {
        CRC32C crc = new CRC32C();
        crc.update(data, start, end - start);
        return (int) crc.getValue();
    }

    static int crc32c(byte[] data) {
        return crc32c(data, 0, data.length);
    }

    /** The text of a word. Only percent signs, blanks and control characters may be escaped in it. */
    static String unquote(String word) {
        if (word.indexOf('%') < 0) {
            return word;
        }
        StringBuilder text = new StringBuilder(word.length());
        for (int index = 0; index < word.length(); index++) {
            char found = word.charAt(index);
            if (found != '%') {
                text.append(found);
                continue;
            }
            String digits = word.substring(index + 1, Math.min(index + 3, word.length()));
            if (!digits.matches("[01][0-9a-f]|20|25|7f")) {
                throw new Malformed("has a '%' that escapes nothing");
            }
            text.append((char) Integer.parseInt(digits, 16));
            index += 2;
        }
        return text.toString();
    }

    /** Milliseconds since 1970 of an ISO 8601 time in UTC. */
    static long parseTime(String word) {
        if (TIME.matcher(word).matches() && !word.startsWith("0000")) {
            try {
                return LocalDateTime.parse(word, TIME_FORMAT).toInstant(ZoneOffset.UTC).toEpochMilli();
            } catch (DateTimeException error) {
                throw new Malformed("'" + word + "' is no time");
            }
        }
        throw new Malformed("'" + word + "' is no time");
    }

    static long number(String word) {
        if (NUMBER.matcher(word).matches()) {
            try {
                return Long.parseLong(word);
            } catch (NumberFormatException error) {
                throw new Malformed("'" + word + "' is no number");
            }
        }
        throw new Malformed("'" + word + "' is no number");
    }

    static int crc(String word) {
        if (!HEX8.matcher(word).matches()) {
            throw new Malformed("'" + word + "' is not a checksum of 8 hexadecimal digits");
        }
        return Integer.parseUnsignedInt(word, 16);
    }

    /** The key in the names of a segment's chunks in a tier. */
    static String key(String word) {
        if (!KEY.matcher(word).matches()) {
            throw new Malformed("'" + word + "' is not a key of 12 hexadecimal digits");
        }
        return word;
    }

    static String alias(String word) {
        if (!ALIAS.matcher(word).matches()) {
            throw new Malformed("'" + word + "' is no alias of a tier");
        }
        return word;
    }

    static String uuid(String word) {
        if (!UUID.matcher(word).matches()) {
            throw new Malformed("'" + word + "' is no uuid");
        }
        return word;
    }

    /** A reference to a chunk file or index page; a reference to anything else is refused. */
    static String reference(String word) {
        String found = unquote(word);
        try {
            Names.checkReference(found);
        } catch (Malformed error) {
            throw new Malformed("reference '" + found + "' " + error.getMessage());
        }
        return found;
    }

    /** The path of another segment, relative to a folder. */
    static String segmentPath(String word) {
        String found = unquote(word);
        Names.checkRelative(found);
        return found;
    }

    /** Refuses what no writer writes as the path by which a tier keeps a segment's files; this reader uses none. */
    static void checkTierPath(String word) {
        String found = unquote(word);
        if (found.isEmpty() || found.getBytes(StandardCharsets.UTF_8).length > TIER_PATH_BYTES_MAX) {
            throw new Malformed("'" + word + "' is no path of a segment with files in a tier");
        }
    }

    /** The file or chunk folder that a drop line names. */
    static String dropTarget(String word) {
        if (word.equals("./")) {
            return word;
        }
        if (!word.endsWith("/")) {
            return reference(word);
        }
        if (!word.endsWith(Names.CHUNKS_SUFFIX + "/")) {
            throw new Malformed("'" + word + "' is not a chunk folder");
        }
        String found = reference(word + "x");
        return found.substring(0, found.length() - 1);
    }

    static Phase phase(String word) {
        for (Phase phase : Phase.values()) {
            if (phase.word().equals(word)) {
                return phase;
            }
        }
        throw new Malformed("state '" + word + "' is unknown: written by a newer rollingfs? upgrade to read it");
    }

    /** The words of a line, which must be {@code count}. */
    static List<String> exactly(List<String> words, int count) {
        if (words.size() != count) {
            throw new Malformed("has " + words.size() + " words where " + count + " belong");
        }
        return words;
    }

    /** A word that must be there. */
    static String word(List<String> words, int index) {
        if (index >= words.size()) {
            throw new Malformed("parts are missing");
        }
        return words.get(index);
    }

    /** The {@code key=value} words of a line from word {@code first} on; a strict line must have no unknown key. */
    static Map<String, String> fields(List<String> words, int first, Set<String> known, boolean strict) {
        Map<String, String> found = new HashMap<>();
        for (String word : words.subList(Math.min(first, words.size()), words.size())) {
            int equals = word.indexOf('=');
            if (equals < 0 || found.containsKey(word.substring(0, equals))) {
                throw new Malformed("word '" + word + "' is not key=value, or comes twice");
            }
            String key = word.substring(0, equals);
            if (known.contains(key)) {
                found.put(key, word.substring(equals + 1));
            } else if (strict) {
                throw new Malformed("field '" + key + "' is unknown: written by a newer rollingfs? upgrade to read it");
            }
        }
        return found;
    }

    static String need(Map<String, String> fields, String key) {
        String found = fields.get(key);
        if (found == null) {
            throw new Malformed("lacks " + key + "=");
        }
        return found;
    }

    /** Refuse a file that is longer than its kind may be, before anything of it is parsed. */
    static void checkSize(byte[] data, int bytesMax) {
        if (data.length > bytesMax) {
            throw new Malformed("it has more than " + bytesMax + " bytes, which are the most that it may have");
        }
    }

    /** The lines of a text that begins with {@code first}; the checksum of its end line must be right. */
    static Text splitText(byte[] data, String first) {
        checkFirst(data, first);
        int end = find(data, END);
        if (end < 0 || data.length < end + END_BYTES) {
            throw new Malformed("it is truncated: the end line is missing");
        }
        String sum = new String(data, end + END.length, 8, StandardCharsets.ISO_8859_1);
        boolean isClosed = data[end + END_BYTES - 2] == '\n' && data[end + END_BYTES - 1] == '\n';
        if (!isClosed || crc(sum) != crc32c(data, 0, end + 1)) {
            throw new Malformed("the text does not have the checksum that its end line says");
        }
        String[] lines = decode(Arrays.copyOf(data, end + 1)).split("\n", -1);
        return new Text(Arrays.asList(lines).subList(1, lines.length - 1), end + END_BYTES);
    }

    private static void checkFirst(byte[] data, String first) {
        String line = new String(data, 0, Math.min(data.length, 40), StandardCharsets.UTF_8).split("\n", -1)[0];
        if (line.equals(first) && data.length > first.length()) {
            return;
        }
        if (line.matches(first.substring(0, first.length() - 1) + "([2-9]|[1-9][0-9]+)")) {
            throw new Malformed("format '" + line + "' is too new for this release, which reads '" + first
                    + "': upgrade rollingfs");
        }
        throw new Malformed("it begins with '" + line + "' where '" + first + "' belongs: restore it as rollingfs wrote it");
    }

    static String decode(byte[] data) {
        try {
            return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(data)).toString();
        } catch (CharacterCodingException error) {
            throw new Malformed("it is not UTF-8");
        }
    }

    private static int find(byte[] data, byte[] wanted) {
        for (int start = 0; start + wanted.length <= data.length; start++) {
            if (data[start] == wanted[0] && Arrays.equals(data, start, start + wanted.length, wanted, 0, wanted.length)) {
                return start;
            }
        }
        return -1;
    }

    /** The error for a file, with the place and the reason. */
    static RollingException.Corrupt corrupt(String name, int position, String line, RuntimeException error) {
        String where = position > 0 ? ", line " + position + " ('" + line + "')" : "";
        String why = error instanceof ArithmeticException ? "it is longer than " + Long.MAX_VALUE + " bytes"
                : error.getMessage();
        return new RollingException.Corrupt(name + where + ": " + why);
    }
}
