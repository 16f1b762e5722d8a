package rollingfs.hadoop.format;

import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Drop;
import rollingfs.hadoop.format.Header.Merge;
import rollingfs.hadoop.format.Header.Moved;
import rollingfs.hadoop.format.Header.Page;
import rollingfs.hadoop.format.Header.Phase;
import rollingfs.hadoop.format.Header.Policy;
import rollingfs.hadoop.format.Header.Tier;

/** Header lines with structure: chunk, page, drop, state, policy. Pure. */
final class LineCodec {
    private static final int PIECES_MAX = 16;

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
        String crc = fields.get("crc32c");
        return new Chunk(Tokens.number(words.get(0)), length, Tokens.reference(Tokens.word(words, 2)),
                crc == null ? null : Integer.valueOf(Tokens.crc(crc)), Tokens.parseTime(at),
                number(fields, "from", 0), number(fields, "size", length), tier(fields),
                new Moved(fields.get("moved"), fields.get("pieces")));
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

    static Drop parseDrop(List<String> words) {
        Map<String, String> fields =
                Tokens.fields(words, 1, Set.of("from", "to", "whole", "bytes", "at", "after", "tier"), true);
        String after = fields.get("after");
        Drop drop = new Drop(Tokens.dropTarget(words.get(0)), Tokens.parseTime(Tokens.need(fields, "at")),
                number(fields, "from", -1), number(fields, "to", -1), number(fields, "whole", 0) != 0,
                number(fields, "bytes", 0), after == null ? 0 : Tokens.parseTime(after), tier(fields));
        boolean isMixed = (drop.isHint() && drop.isPage()) || (drop.whole() && !drop.isPage())
                || (drop.size() != 0 && !drop.isHint())
                || (!drop.tier().isEmpty() && (drop.isHint() || drop.isPage()));
        if ((drop.start() >= 0) != (drop.end() >= 0) || isMixed || drop.end() < drop.start()) {
            throw new Malformed("is neither a file, nor part of a page, nor a folder");
        }
        return drop;
    }

    static void parseState(List<String> words, Header header) {
        header.phase = Tokens.phase(words.get(0));
        if (header.phase == Phase.MERGING) {
            Tokens.exactly(words, 6);
            header.merge = new Merge(Tokens.uuid(words.get(1)), Tokens.segmentPath(words.get(2)), Tokens.uuid(words.get(3)),
                    Tokens.phase(words.get(4)), Tokens.parseTime(words.get(5)));
        } else if (header.phase == Phase.DELETED && words.size() > 1) {
            Tokens.exactly(words, 3);
            if (!words.get(1).equals("merged")) {
                throw new Malformed("'" + words.get(1) + "' is not 'merged'");
            }
            header.merged = Tokens.uuid(words.get(2));
        } else {
            Tokens.exactly(words, 1);
        }
    }

    static Policy parsePolicy(List<String> words) {
        Set<String> known = Set.of("max_bytes", "inline_bytes", "max_age_ms", "consolidate");
        Map<String, String> fields = Tokens.fields(words, 0, known, false);
        if ("0".equals(fields.get("max_age_ms"))) {
            throw new Malformed("a policy's max_age is out of range");
        }
        return new Policy(Tokens.number(Tokens.need(fields, "max_bytes")),
                Tokens.number(Tokens.need(fields, "inline_bytes")), number(fields, "max_age_ms", 0),
                number(fields, "consolidate", 1) != 0);
    }

    static Tier parseTier(List<String> words) {
        Tokens.exactly(words, 3);
        return new Tier(Tokens.alias(words.get(0)), Tokens.key(words.get(1)), Tokens.parseTime(words.get(2)));
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
