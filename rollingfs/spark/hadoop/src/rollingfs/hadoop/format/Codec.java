package rollingfs.hadoop.format;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header.Adopted;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Page;

/** Reads header files, and refuses one that is damaged, too new or over a limit. Pure. */
public final class Codec {
    private static final String FORMAT = "rollingfs 1";
    static final int TAIL_BYTES_MAX = 1024 * 1024;
    private static final int TEXT_BYTES_MAX = 64 * 1024;
    private static final int LOOSE_CHUNKS_MAX = 128;
    private static final int DROPS_MAX = 128;
    private static final int TIERS_MAX = 8;
    private static final int ATTRS_MAX = 64;
    private static final int ATTRS_BYTES_MAX = 4096;
    private static final int COMMITS_MAX = 64 + 256;
    private static final int MARKS_MAX = 128;
    static final int BYTES_MAX = TEXT_BYTES_MAX + TAIL_BYTES_MAX + Records.RECORDS_MAX * Records.LINE_BYTES_MAX;

    private Codec() {}

    /** Read the content of a header file; null for an empty file, which an interrupted create leaves. */
    public static Header parse(byte[] data, String name) throws RollingException.Corrupt {
        return data.length == 0 ? null : new Parser(name).parse(data);
    }

    /** Collects the fields of a header, line by line, and those that only the checks of a header need. */
    private static final class Parser {
        private final String name;
        private final Header header = new Header();
        private final Set<String> seen = new HashSet<>();
        private final List<Entry> entries = new ArrayList<>();
        private final Map<String, String> attrs = new LinkedHashMap<>();
        private final List<String> writers = new ArrayList<>();
        private final List<String> dropTiers = new ArrayList<>();
        private final List<String> tiers = new ArrayList<>();
        private int marks;
        private boolean isOwned;
        /** The newest version of a commit line, or of one that had to go. */
        private long newest;
        private long[] inline;

        Parser(String name) {
            this.name = name;
        }

        Header parse(byte[] data) throws RollingException.Corrupt {
            int position = 0;
            String line = "";
            try {
                Tokens.checkSize(data, BYTES_MAX);
                Tokens.Text text = Tokens.splitText(data, FORMAT);
                limit("bytes of text", text.bytes(), TEXT_BYTES_MAX);
                position = 1;
                for (String found : text.lines()) {
                    position++;
                    line = found;
                    line(found);
                }
                position = 0;
                long wanted = inline == null ? 0 : inline[1];
                int end = (int) Math.min(data.length, text.bytes() + Math.min(wanted, TAIL_BYTES_MAX + 1L));
                finish(Arrays.copyOfRange(data, text.bytes(), end));
                Records.fold(header, data, end);
                return header;
            } catch (Malformed | ArithmeticException error) {
                throw Tokens.corrupt(name, position, line, error);
            }
        }

        private void line(String line) {
            List<String> words = Arrays.asList(line.split(" ", -1));
            String kind = words.get(0);
            List<String> parts = words.subList(1, words.size());
            if (!single(kind, parts) && !repeated(kind, parts)) {
                if (!kind.isEmpty() && Character.isUpperCase(kind.codePointAt(0))) {
                    throw new Malformed("line kind '" + kind
                            + "' is too new for this release: upgrade rollingfs to read it");
                }
                if (kind.isEmpty() || !Character.isLowerCase(kind.codePointAt(0))) {
                    throw new Malformed("begins with no word");
                }
                header.hasOrigin |= line.startsWith("origin ");
            }
        }

        /** Read a line that a header has once; false if it is none. */
        private boolean single(String kind, List<String> parts) {
            switch (kind) {
                case "segment" -> header.segment = Tokens.uuid(Tokens.exactly(parts, 1).get(0));
                case "version" -> header.version = Tokens.number(Tokens.exactly(parts, 1).get(0));
                case "state" -> {
                    Tokens.word(parts, 0);
                    LineCodec.parseState(parts, header);
                }
                case "epoch" -> {
                    Tokens.number(Tokens.word(parts, 0));
                    isOwned = parts.size() > 1;
                    if (isOwned) {
                        Tokens.unquote(Tokens.exactly(parts, 2).get(1));
                    }
                }
                case "policy" -> LineCodec.checkPolicy(parts);
                case "time" -> {
                    Map<String, String> fields = Tokens.fields(parts, 0, Set.of("created", "modified"), false);
                    header.createdMs = fields.containsKey("created") ? Tokens.parseTime(fields.get("created")) : 0;
                    header.modifiedMs = fields.containsKey("modified") ? Tokens.parseTime(fields.get("modified")) : 0;
                }
                case "start" -> header.start = Tokens.number(Tokens.exactly(parts, 1).get(0));
                case "Adopted" -> {
                    Tokens.exactly(parts, 2);
                    header.adopted = new Adopted(Tokens.unquote(parts.get(0)), Tokens.parseTime(parts.get(1)));
                }
                case "Inline" -> inline(parts);
                case "evicted" -> newest = Math.max(newest, Tokens.number(Tokens.exactly(parts, 1).get(0)));
                default -> {
                    return false;
                }
            }
            if (!seen.add(kind)) {
                throw new Malformed("comes twice");
            }
            return true;
        }

        /** Read a line that a header may have many times; false if it is none. */
        private boolean repeated(String kind, List<String> parts) {
            switch (kind) {
                case "Chunk" -> {
                    Tokens.word(parts, 0);
                    entries.add(LineCodec.parseChunk(parts));
                }
                case "Page" -> {
                    Tokens.word(parts, 0);
                    entries.add(LineCodec.parsePage(parts));
                }
                case "Drop" -> {
                    Tokens.word(parts, 0);
                    dropTiers.add(LineCodec.tierOfDrop(parts));
                }
                case "Tier" -> tiers.add(LineCodec.parseTier(parts));
                case "Merged", "Aborted" -> {
                    Tokens.exactly(parts, 2);
                    Tokens.uuid(parts.get(0));
                    Tokens.segmentPath(parts.get(1));
                    marks++;
                }
                case "attr" -> {
                    Tokens.exactly(parts, 2);
                    if (attrs.put(Tokens.unquote(parts.get(0)), Tokens.unquote(parts.get(1))) != null) {
                        throw new Malformed("comes twice");
                    }
                }
                case "commit" -> {
                    Tokens.exactly(parts, parts.size() > 3 ? 4 : 3);
                    writers.add(Tokens.unquote(parts.get(0)));
                    parts.subList(1, parts.size()).forEach(Tokens::number);
                    newest = Math.max(newest, Tokens.number(parts.get(2)));
                }
                default -> {
                    return false;
                }
            }
            return true;
        }

        private void inline(List<String> parts) {
            Map<String, String> fields = Tokens.fields(parts, 2, Set.of("crc32c", "at", "until"), true);
            int crc = Tokens.crc(Tokens.need(fields, "crc32c"));
            header.tailMs = Tokens.parseTime(Tokens.need(fields, "at"));
            if (fields.containsKey("until")) {
                header.tailMs = Tokens.parseTime(fields.get("until"));
            }
            inline = new long[] {Tokens.number(Tokens.word(parts, 0)), Tokens.number(Tokens.word(parts, 1)), crc};
        }

        private void finish(byte[] tail) {
            for (String kind : List.of("segment", "version", "state", "epoch", "policy", "start")) {
                if (!seen.contains(kind)) {
                    throw new Malformed("lacks " + kind);
                }
            }
            header.entries = List.copyOf(entries);
            header.tail = tail;
            if ((inline != null) != (tail.length > 0)) {
                throw new Malformed("the inline tail and its line do not go together");
            }
            long[] found = {header.tailStart(), tail.length, Tokens.crc32c(tail)};
            if (inline != null && !Arrays.equals(inline, found)) {
                throw new Malformed(
                        "the inline tail has not the offset, the length or the checksum that its line says");
            }
            require(header.version >= 1, "a number is below its least value");
            require(!header.deleted() || (entries.isEmpty() && tail.length == 0 && attrs.isEmpty() && !isOwned),
                    "a tombstone has no content");
            checkMap();
            checkTiers();
            checkLimits();
            checkPages();
        }

        private void checkMap() {
            require(entries.isEmpty()
                            || (entries.get(0).start() <= header.start && header.start < entries.get(0).end()),
                    "the start offset lies outside the first entry");
            for (int index = 1; index < entries.size(); index++) {
                long before = entries.get(index - 1).end();
                long after = entries.get(index).start();
                require(before == after, "entries " + (before > after ? "overlap" : "leave a gap") + " at offset "
                        + Math.min(before, after));
            }
            header.length(); // throws if it is longer than the largest number
            require(newest <= header.version, "a commit line is newer than the header");
            require(new HashSet<>(writers).size() == writers.size(), "a writer has two commit lines");
        }

        private void checkTiers() {
            Set<String> known = new HashSet<>(Set.of(""));
            tiers.forEach(tier -> require(known.add(tier), "a tier has two lines"));
            boolean isKnown = known.containsAll(dropTiers)
                    && entries.stream().allMatch(one -> !(one instanceof Chunk chunk) || known.contains(chunk.tier()));
            require(isKnown, "a line names a tier which has no line of its own");
        }

        private void checkLimits() {
            long attrsBytes =
                    attrs.entrySet().stream().mapToLong(attr -> utf8(attr.getKey()) + utf8(attr.getValue())).sum();
            limit("loose chunks", entries.stream().filter(Chunk.class::isInstance).count(), LOOSE_CHUNKS_MAX);
            limit("bytes of inline tail", header.tail.length, TAIL_BYTES_MAX);
            limit("drop lines", dropTiers.size(), DROPS_MAX);
            limit("tiers", tiers.size(), TIERS_MAX);
            limit("attributes", attrs.size(), ATTRS_MAX);
            limit("bytes of attributes", attrsBytes, ATTRS_BYTES_MAX);
            limit("commit lines", writers.size(), COMMITS_MAX);
            limit("merge marks", marks, MARKS_MAX);
        }

        private static long utf8(String text) {
            return text.getBytes(StandardCharsets.UTF_8).length;
        }

        private static void limit(String what, long count, long most) {
            require(count <= most, "it has " + count + " " + what + ", but at most " + most + " are allowed");
        }

        private static void require(boolean holds, String problem) {
            if (!holds) {
                throw new Malformed(problem);
            }
        }

        /** Refuse an index page that is named twice, by two spellings of the reference too. */
        private void checkPages() {
            String segment = name.endsWith(Names.HEADER_SUFFIX)
                    ? name.substring(0, name.length() - Names.HEADER_SUFFIX.length()) : name;
            Set<String> pages = new HashSet<>();
            for (Entry entry : entries) {
                if (entry instanceof Page page && !pages.add(Names.spelled(segment, page.file()))) {
                    throw new Malformed("an index page is named twice");
                }
            }
        }
    }
}
