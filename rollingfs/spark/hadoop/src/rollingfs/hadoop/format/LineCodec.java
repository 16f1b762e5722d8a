package rollingfs.hadoop.format;

import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Page;
import rollingfs.hadoop.format.Header.Phase;

/** Header lines with structure: chunk, page, drop, state, policy. Pure. */
final class LineCodec {
    private static final int PIECES_MAX = 16;
    private static final int INLINE_BYTES_MAX = 1024 * 1024;
    private static final long MAX_AGE_MS_MAX = 100L * 366 * 86400 * 1000;

    private LineCodec() {}

    static Chunk parseChunk(List<String> words) {
        Set<String> known = Set.of("crc32c", "at", "from", "size", "tier", "moved", "pieces");
        Map<String, String> fields = Tokens.fields(words, 3, known, true);
        String at = Tokens.need(fields, "at");
        if (fields.containsKey("from") != fields.containsKey("size")) {
            throw new Malformed("has only one of from= and size=");
        }
        if (!fields.containsKey("tier") && (fields.containsKey("moved") || fields.containsKey("pieces"))) {
            throw new Malformed("has moved= or pieces= without tier=");
        }
        long length = Tokens.number(Tokens.word(words, 1));
        checkMoved(fields, number(fields, "size", length));
        if (fields.containsKey("crc32c")) {
            Tokens.crc(fields.get("crc32c"));
        }
        return new Chunk(Tokens.number(words.get(0)), length, Tokens.reference(Tokens.word(words, 2)),
                Tokens.parseTime(at), number(fields, "from", 0), number(fields, "size", length), tier(fields));
    }

    /** Refuses what no writer writes; this reader uses neither. */
    private static void checkMoved(Map<String, String> fields, long size) {
        if (fields.containsKey("moved")) {
            Tokens.parseTime(fields.get("moved"));
        }
        if (!fields.containsKey("pieces")) {
            return;
        }
        String[] pieces = fields.get("pieces").split(",", -1);
        long sum = 0;
        boolean hasEmpty = false;
        for (String piece : pieces) {
            String[] pair = piece.split(":", -1);
            Tokens.crc(Tokens.exactly(List.of(pair), 2).get(1));
            long length = Tokens.number(pair[0]);
            hasEmpty |= length == 0;
            sum = Math.addExact(sum, length);
        }
        if (pieces.length > PIECES_MAX || hasEmpty || sum != size) {
            throw new Malformed("a chunk's pieces are too many, or are not the file");
        }
    }

    static Page parsePage(List<String> words) {
        Map<String, String> fields =
                Tokens.fields(words, 3, Set.of("count", "size", "from", "foreign", "crc32c"), true);
        int crc = Tokens.crc(Tokens.need(fields, "crc32c"));
        return new Page(Tokens.number(words.get(0)), Tokens.number(Tokens.word(words, 1)),
                Tokens.reference(Tokens.word(words, 2)), count(Tokens.need(fields, "count")), crc,
                Tokens.number(Tokens.need(fields, "size")), number(fields, "from", 0),
                count(fields.getOrDefault("foreign", "0")));
    }

    /** The tier of a drop line; "" for the hot store. */
    static String tierOfDrop(List<String> words) {
        Map<String, String> fields =
                Tokens.fields(words, 1, Set.of("from", "to", "whole", "bytes", "at", "after", "tier"), true);
        Tokens.parseTime(Tokens.need(fields, "at"));
        if (fields.containsKey("after")) {
            Tokens.parseTime(fields.get("after"));
        }
        String tier = tier(fields);
        long start = number(fields, "from", -1);
        long end = number(fields, "to", -1);
        boolean isHint = Tokens.dropTarget(words.get(0)).endsWith("/");
        boolean isPage = end >= 0;
        boolean isMixed = (isHint && isPage) || (number(fields, "whole", 0) != 0 && !isPage)
                || (number(fields, "bytes", 0) != 0 && !isHint) || (!tier.isEmpty() && (isHint || isPage));
        if ((start >= 0) != isPage || isMixed || end < start) {
            throw new Malformed("is neither a file, nor part of a page, nor a folder");
        }
        return tier;
    }

    static void parseState(List<String> words, Header header) {
        header.phase = Tokens.phase(words.get(0));
        if (header.phase == Phase.MERGING) {
            Tokens.exactly(words, 6);
            Tokens.uuid(words.get(1));
            Tokens.segmentPath(words.get(2));
            Tokens.uuid(words.get(3));
            if (!Set.of(Phase.OPEN, Phase.SEALED).contains(Tokens.phase(words.get(4)))) {
                throw new Malformed("the state before a merge must be open or sealed");
            }
            Tokens.parseTime(words.get(5));
        } else if (header.phase == Phase.DELETED && words.size() > 1) {
            Tokens.exactly(words, 3);
            if (!words.get(1).equals("merged")) {
                throw new Malformed("'" + words.get(1) + "' is not 'merged'");
            }
            Tokens.uuid(words.get(2));
        } else {
            Tokens.exactly(words, 1);
        }
    }

    /** Refuses what no writer writes; this reader uses no policy. */
    static void checkPolicy(List<String> words) {
        Set<String> known = Set.of("max_bytes", "inline_bytes", "max_age_ms", "consolidate");
        Map<String, String> fields = Tokens.fields(words, 0, known, false);
        number(fields, "consolidate", 1);
        long maxAgeMs = number(fields, "max_age_ms", 1);
        if (maxAgeMs < 1 || maxAgeMs > MAX_AGE_MS_MAX) {
            throw new Malformed("a policy's max_age is out of range");
        }
        if (Tokens.number(Tokens.need(fields, "max_bytes")) < 1
                || Tokens.number(Tokens.need(fields, "inline_bytes")) > INLINE_BYTES_MAX) {
            throw new Malformed("a policy's max_bytes or inline_bytes is out of range");
        }
    }

    /** The alias of a tier line. */
    static String parseTier(List<String> words) {
        Tokens.exactly(words.subList(0, Math.min(words.size(), 3)), 3);
        Tokens.key(words.get(1));
        Tokens.parseTime(words.get(2));
        Map<String, String> fields = Tokens.fields(words, 3, Set.of("id", "path"), true);
        if (fields.containsKey("id")) {
            Tokens.uuid(fields.get("id"));
        }
        if (fields.containsKey("path")) {
            Tokens.checkTierPath(fields.get("path"));
        }
        return Tokens.alias(words.get(0));
    }

    private static String tier(Map<String, String> fields) {
        String found = fields.get("tier");
        return found == null ? "" : Tokens.alias(found);
    }

    private static long number(Map<String, String> fields, String key, long otherwise) {
        String found = fields.get(key);
        return found == null ? otherwise : Tokens.number(found);
    }

    private static int count(String word) {
        return (int) Math.min(Tokens.number(word), Integer.MAX_VALUE);
    }
}
