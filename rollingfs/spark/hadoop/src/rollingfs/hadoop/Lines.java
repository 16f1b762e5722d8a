package rollingfs.hadoop;

import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Drop;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Merge;
import rollingfs.hadoop.Header.Page;
import rollingfs.hadoop.Header.Phase;
import rollingfs.hadoop.Header.Policy;

/** The lines of a header that have structure: chunk, page, drop, state, policy. Pure. */
final class Lines {
    private Lines() {}

    static String format(Entry entry) {
        return entry instanceof Chunk chunk ? formatChunk(chunk) : formatPage((Page) entry);
    }

    private static String formatChunk(Chunk chunk) {
        StringBuilder line = new StringBuilder("Chunk ").append(chunk.start()).append(' ').append(chunk.length())
                .append(' ').append(Words.quoteReference(chunk.file()));
        if (chunk.crc32c() != null) {
            line.append(" crc32c=").append(Words.hex(chunk.crc32c()));
        }
        line.append(" at=").append(Words.formatTime(chunk.atMs()));
        if (chunk.offset() != 0 || chunk.size() != chunk.length()) {
            line.append(" from=").append(chunk.offset()).append(" size=").append(chunk.size());
        }
        return line.toString();
    }

    static Chunk parseChunk(List<String> words) {
        Map<String, String> fields = Words.fields(words, 3, Set.of("crc32c", "at", "from", "size"), true);
        String at = Words.need(fields, "at");
        if (fields.containsKey("from") != fields.containsKey("size")) {
            throw new Malformed("has only one of from= and size=");
        }
        long length = Words.number(Words.word(words, 1));
        String crc = fields.get("crc32c");
        return new Chunk(Words.number(words.get(0)), length, Words.reference(Words.word(words, 2)),
                crc == null ? null : Integer.valueOf(Words.crc(crc)), Words.parseTime(at),
                number(fields, "from", 0), number(fields, "size", length));
    }

    private static String formatPage(Page page) {
        return "Page " + page.start() + " " + page.length() + " " + Words.quoteReference(page.file())
                + " crc32c=" + Words.hex(page.crc32c()) + " count=" + page.chunks() + " size=" + page.size()
                + (page.offset() != 0 ? " from=" + page.offset() : "")
                + (page.foreign() != 0 ? " foreign=" + page.foreign() : "");
    }

    static Page parsePage(List<String> words) {
        Map<String, String> fields =
                Words.fields(words, 3, Set.of("count", "size", "from", "foreign", "crc32c"), true);
        int crc = Words.crc(Words.need(fields, "crc32c"));
        return new Page(Words.number(words.get(0)), Words.number(Words.word(words, 1)),
                Words.reference(Words.word(words, 2)), count(Words.need(fields, "count")), crc,
                Words.number(Words.need(fields, "size")), number(fields, "from", 0),
                count(fields.getOrDefault("foreign", "0")));
    }

    static String format(Drop drop) {
        String target = drop.file().equals("./") ? drop.file() : Words.quoteReference(drop.file());
        StringBuilder line = new StringBuilder("Drop ").append(target).append(" at=")
                .append(Words.formatTime(drop.atMs()));
        if (drop.isPage()) {
            line.append(" from=").append(drop.start()).append(" to=").append(drop.end());
            line.append(drop.whole() ? " whole=1" : "");
        }
        if (drop.isHint()) {
            line.append(" bytes=").append(drop.size());
        }
        if (drop.afterMs() != 0) {
            line.append(" after=").append(Words.formatTime(drop.afterMs()));
        }
        return line.toString();
    }

    static Drop parseDrop(List<String> words) {
        Map<String, String> fields =
                Words.fields(words, 1, Set.of("from", "to", "whole", "bytes", "at", "after"), true);
        String after = fields.get("after");
        Drop drop = new Drop(dropTarget(words.get(0)), Words.parseTime(Words.need(fields, "at")),
                number(fields, "from", -1), number(fields, "to", -1), number(fields, "whole", 0) != 0,
                number(fields, "bytes", 0), after == null ? 0 : Words.parseTime(after));
        boolean isMixed = (drop.isHint() && drop.isPage()) || (drop.whole() && !drop.isPage())
                || (drop.size() != 0 && !drop.isHint());
        if ((drop.start() >= 0) != (drop.end() >= 0) || isMixed || drop.end() < drop.start()) {
            throw new Malformed("is neither a file, nor part of a page, nor a folder");
        }
        return drop;
    }

    private static String dropTarget(String word) {
        if (word.equals("./")) {
            return word;
        }
        if (!word.endsWith("/")) {
            return Words.reference(word);
        }
        if (!word.endsWith(Names.CHUNKS_SUFFIX + "/")) {
            throw new Malformed("'" + word + "' is no chunk folder");
        }
        String found = Words.reference(word + "x");
        return found.substring(0, found.length() - 1);
    }

    static String formatState(Header header) {
        Merge merge = header.merge;
        if (merge != null) {
            return "state merging " + merge.txn() + " " + Words.quote(merge.target()) + " " + merge.targetSegment()
                    + " " + merge.prior().word() + " " + Words.formatTime(merge.atMs());
        }
        return "state " + header.phase.word() + (header.merged != null ? " merged " + header.merged : "");
    }

    static void parseState(List<String> words, Header header) {
        header.phase = phase(words.get(0));
        if (header.phase == Phase.MERGING) {
            Words.exactly(words, 6);
            header.merge = new Merge(Words.uuid(words.get(1)), Words.unquote(words.get(2)), Words.uuid(words.get(3)),
                    phase(words.get(4)), Words.parseTime(words.get(5)));
        } else if (header.phase == Phase.DELETED && words.size() > 1) {
            Words.exactly(words, 3);
            if (!words.get(1).equals("merged")) {
                throw new Malformed("'" + words.get(1) + "' is not 'merged'");
            }
            header.merged = Words.uuid(words.get(2));
        } else {
            Words.exactly(words, 1);
        }
    }

    private static Phase phase(String word) {
        for (Phase phase : Phase.values()) {
            if (phase.word().equals(word)) {
                return phase;
            }
        }
        throw new Malformed("state '" + word + "' is unknown: written by a newer rollingfs? upgrade to read it");
    }

    static String formatPolicy(Policy policy) {
        return "policy max_bytes=" + policy.maxBytes() + " inline_bytes=" + policy.inlineBytes()
                + (policy.maxAgeMs() != 0 ? " max_age_ms=" + policy.maxAgeMs() : "");
    }

    static Policy parsePolicy(List<String> words) {
        Map<String, String> fields = Words.fields(words, 0, Set.of("max_bytes", "inline_bytes", "max_age_ms"), false);
        if ("0".equals(fields.get("max_age_ms"))) {
            throw new Malformed("a policy's max_age is out of range");
        }
        return new Policy(Words.number(Words.need(fields, "max_bytes")), Words.number(Words.need(fields, "inline_bytes")),
                number(fields, "max_age_ms", 0));
    }

    private static long number(Map<String, String> fields, String key, long otherwise) {
        String found = fields.get(key);
        return found == null ? otherwise : Words.number(found);
    }

    private static int count(String word) {
        return (int) Math.min(Words.number(word), Integer.MAX_VALUE);
    }
}
