package rollingfs.hadoop.format;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header.Adopted;
import rollingfs.hadoop.format.Header.Commit;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Mark;
import rollingfs.hadoop.format.Header.Page;

/** Reads header files, and refuses one that is damaged, too new or over a limit. Pure. */
public final class Codec {
    private static final String FORMAT = "rollingfs 1";
    static final int BYTES_MAX =
            Header.TEXT_BYTES_MAX + Header.TAIL_BYTES_MAX + Records.RECORDS_MAX * Records.LINE_BYTES_MAX;

    private Codec() {}

    /** Read the content of a header file; null for an empty file, which an interrupted create leaves. */
    public static Header parse(byte[] data, String name) throws RollingException.Corrupt {
        return data.length == 0 ? null : new Parser(name).parse(data);
    }

    /** Collects the fields of a header, line by line. */
    private static final class Parser {
        private final String name;
        private final Header header = new Header();
        private final Set<String> seen = new HashSet<>();
        private final List<Entry> entries = new ArrayList<>();
        private final Map<String, String> attrs = new LinkedHashMap<>();
        private final List<Commit> commits = new ArrayList<>();
        private final List<Header.Drop> drops = new ArrayList<>();
        private final List<Header.Tier> tiers = new ArrayList<>();
        private final List<Mark> merges = new ArrayList<>();
        private final List<Mark> aborts = new ArrayList<>();
        private final List<String> unknown = new ArrayList<>();
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
                if (text.bytes() > Header.TEXT_BYTES_MAX) {
                    throw new Malformed("its text has " + text.bytes() + " bytes, but at most "
                            + Header.TEXT_BYTES_MAX + " are allowed");
                }
                position = 1;
                for (String found : text.lines()) {
                    position++;
                    line = found;
                    line(found);
                }
                position = 0;
                long wanted = inline == null ? 0 : inline[1];
                int end = (int) Math.min(data.length, text.bytes() + Math.min(wanted, Header.TAIL_BYTES_MAX + 1L));
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
                unknown.add(line);
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
                    header.epoch = Tokens.number(Tokens.word(parts, 0));
                    header.owner = parts.size() > 1 ? Tokens.unquote(Tokens.exactly(parts, 2).get(1)) : null;
                }
                case "policy" -> header.policy = LineCodec.parsePolicy(parts);
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
                case "evicted" -> header.evicted = Tokens.number(Tokens.exactly(parts, 1).get(0));
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
                    drops.add(LineCodec.parseDrop(parts));
                }
                case "Tier" -> tiers.add(LineCodec.parseTier(parts));
                case "Merged" -> merges.add(mark(parts));
                case "Aborted" -> aborts.add(mark(parts));
                case "attr" -> {
                    Tokens.exactly(parts, 2);
                    if (attrs.put(Tokens.unquote(parts.get(0)), Tokens.unquote(parts.get(1))) != null) {
                        throw new Malformed("comes twice");
                    }
                }
                case "commit" -> {
                    Tokens.exactly(parts, parts.size() > 3 ? 4 : 3);
                    commits.add(new Commit(Tokens.unquote(parts.get(0)), Tokens.number(parts.get(1)),
                            Tokens.number(parts.get(2)), parts.size() > 3 ? Tokens.number(parts.get(3)) : null));
                }
                default -> {
                    return false;
                }
            }
            return true;
        }

        private static Mark mark(List<String> parts) {
            Tokens.exactly(parts, 2);
            return new Mark(Tokens.uuid(parts.get(0)), Tokens.segmentPath(parts.get(1)));
        }

        private void inline(List<String> parts) {
            Map<String, String> fields = Tokens.fields(parts, 2, Set.of("crc32c", "at", "until"), true);
            int crc = Tokens.crc(Tokens.need(fields, "crc32c"));
            header.tailAtMs = Tokens.parseTime(Tokens.need(fields, "at"));
            if (fields.containsKey("until")) {
                header.tailUntilMs = Tokens.parseTime(fields.get("until"));
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
            header.attrs = attrs;
            header.commits = List.copyOf(commits);
            header.drops = List.copyOf(drops);
            header.tiers = List.copyOf(tiers);
            header.merges = List.copyOf(merges);
            header.aborts = List.copyOf(aborts);
            header.unknown = List.copyOf(unknown);
            if ((inline != null) != (tail.length > 0)) {
                throw new Malformed("the inline tail and its line do not go together");
            }
            long[] found = {header.tailStart(), tail.length, Tokens.crc32c(tail)};
            if (inline != null && !Arrays.equals(inline, found)) {
                throw new Malformed(
                        "the inline tail has not the offset, the length or the checksum that its line says");
            }
            header.check();
            checkPages();
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
