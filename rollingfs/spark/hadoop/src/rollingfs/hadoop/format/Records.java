package rollingfs.hadoop.format;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import rollingfs.hadoop.format.Header.Phase;

/**
 * Appends that a disk has put behind the inline tail of a header file. Pure.
 *
 * <p>The first record that is not whole ends the file: what follows is left of a write that was never acknowledged.
 */
final class Records {
    static final int RECORDS_MAX = 128;
    static final int LINE_BYTES_MAX = 256;
    private static final Pattern LINE = Pattern.compile("Record ([1-9][0-9]{0,18}) ([^ \n]{0,128}) "
            + "(0|[1-9][0-9]{0,18}) ([1-9][0-9]{0,6}) ([0-9TZ:.-]{24}) ([0-9a-f]{8}) ([0-9a-f]{8})\n");

    private Records() {}

    /** Fold the whole records from a position of the file on into the header of what is before them. */
    static void fold(Header header, byte[] data, int start) {
        int count = 0;
        int at = start;
        List<byte[]> tails = new ArrayList<>(List.of(header.tail));
        long lastMs = writtenMs(header);
        while (at < data.length) {
            Matcher line = LINE.matcher(
                    new String(data, at, Math.min(LINE_BYTES_MAX, data.length - at), StandardCharsets.ISO_8859_1));
            int first = line.lookingAt() ? at + line.end() : -1;
            if (first < 0 || !isWhole(header, data, at, first, line)) {
                break;
            }
            at = first + (int) Tokens.number(line.group(4));
            require(++count <= RECORDS_MAX, "it has more than " + RECORDS_MAX + " records");
            require(header.phase == Phase.OPEN, "a record follows on a header that is not open");
            require(Tokens.number(line.group(1)) == header.version + 1, "a record follows on another version");
            header.version++;
            Tokens.unquote(Tokens.decode(line.group(2).getBytes(StandardCharsets.ISO_8859_1)));
            Tokens.number(line.group(3));
            lastMs = Math.max(Tokens.parseTime(line.group(5)), lastMs);
            tails.add(Arrays.copyOfRange(data, first, at));
        }
        if (count > 0) {
            finish(header, tails, lastMs);
        }
    }

    /** When the newest byte was written, as far as the header says it. */
    private static long writtenMs(Header header) {
        if (header.tail.length > 0) {
            return header.tailMs;
        }
        boolean isKnown = !header.entries.isEmpty()
                && header.entries.get(header.entries.size() - 1) instanceof Header.Chunk;
        return isKnown ? ((Header.Chunk) header.entries.get(header.entries.size() - 1)).atMs() : Long.MIN_VALUE;
    }

    private static boolean isWhole(Header header, byte[] data, int at, int first, Matcher line) {
        byte[] seed = header.segment.getBytes(StandardCharsets.US_ASCII);
        int covered = line.start(7);
        byte[] sealed = Arrays.copyOf(seed, seed.length + covered);
        System.arraycopy(data, at, sealed, seed.length, covered);
        int length = Integer.parseInt(line.group(4));
        return Tokens.crc(line.group(7)) == Tokens.crc32c(sealed) && length <= data.length - first
                && Tokens.crc(line.group(6)) == Tokens.crc32c(Arrays.copyOfRange(data, first, first + length));
    }

    private static void finish(Header header, List<byte[]> tails, long lastMs) {
        int size = tails.stream().mapToInt(one -> one.length).sum();
        require(size <= Codec.TAIL_BYTES_MAX, "with its records it has " + size + " bytes of inline tail");
        byte[] tail = new byte[size];
        int at = 0;
        for (byte[] one : tails) {
            System.arraycopy(one, 0, tail, at, one.length);
            at += one.length;
        }
        header.tail = tail;
        header.modifiedMs = Math.max(header.modifiedMs, lastMs);
        header.length(); // throws if it is longer than the largest number
    }

    private static void require(boolean holds, String problem) {
        if (!holds) {
            throw new Malformed(problem);
        }
    }
}
