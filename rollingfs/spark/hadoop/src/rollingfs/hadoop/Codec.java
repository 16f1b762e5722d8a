package rollingfs.hadoop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.Header.Adopted;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Commit;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Mark;
import rollingfs.hadoop.Header.Page;

/** The text forms of headers, index pages and pins: parse and format, each strict in both directions. Pure. */
final class Codec {
    private static final String FORMAT = "rollingfs 1";
    private static final String PAGE_FORMAT = "rollingfs-index 1";
    private static final String PIN_FORMAT = "rollingfs-pin 1";

    private Codec() {}

    // -- headers ---------------------------------------------------------------------------------------------

    /** The header's text, without the inline tail; of any length. */
    static byte[] formatText(Header header) {
        StringBuilder text = new StringBuilder(4096).append(FORMAT).append('\n');
        line(text, "segment " + header.segment);
        line(text, "version " + header.version);
        line(text, Lines.formatState(header));
        line(text, "epoch " + header.epoch + (header.owner != null ? " " + Words.quote(header.owner) : ""));
        line(text, Lines.formatPolicy(header.policy));
        line(text, "time created=" + Words.formatTime(header.createdMs) + " modified="
                + Words.formatTime(header.modifiedMs));
        line(text, "start " + header.start);
        if (header.adopted != null) {
            line(text, "Adopted " + Words.quote(header.adopted.token()) + " "
                    + Words.formatTime(header.adopted.modifiedMs()));
        }
        header.entries.forEach(entry -> line(text, Lines.format(entry)));
        if (header.tail.length > 0) {
            line(text, "Inline " + header.tailStart() + " " + header.tail.length + " crc32c="
                    + Words.hex(Words.crc32c(header.tail)) + " at=" + Words.formatTime(header.tailAtMs));
        }
        header.attrs.forEach((key, value) -> line(text, "attr " + Words.quote(key) + " " + Words.quote(value)));
        header.commits.forEach(commit -> line(text,
                "commit " + Words.quote(commit.writer()) + " " + commit.number() + " " + commit.version()));
        if (header.evicted != 0) {
            line(text, "evicted " + header.evicted);
        }
        header.merges.forEach(mark -> line(text, "Merged " + mark.txn() + " " + Words.quote(mark.source())));
        header.aborts.forEach(mark -> line(text, "Aborted " + mark.txn() + " " + Words.quote(mark.source())));
        header.drops.forEach(drop -> line(text, Lines.format(drop)));
        header.unknown.forEach(unknown -> line(text, unknown));
        return Words.sealText(text.toString());
    }

    private static void line(StringBuilder text, String line) {
        text.append(line).append('\n');
    }

    /** The header file's content: text, blank line, inline tail. */
    static byte[] format(Header header) {
        header.check();
        byte[] text = formatText(header);
        if (text.length > Header.TEXT_BYTES_MAX) {
            throw new Malformed("the header's text would be " + text.length + " bytes, but at most "
                    + Header.TEXT_BYTES_MAX + " are allowed");
        }
        byte[] data = Arrays.copyOf(text, text.length + header.tail.length);
        System.arraycopy(header.tail, 0, data, text.length, header.tail.length);
        return data;
    }

    /** Read a header file's content; null for an empty file, an interrupted create, which is no segment. */
    static Header parse(byte[] data, String name) throws RollingException.Corrupt {
        return data.length == 0 ? null : new Parser(name).parse(data);
    }

    /** Collects the fields of a header, line by line. */
    private static final class Parser {
        private final String name;
        private final Header header = new Header(null);
        private final Set<String> seen = new HashSet<>();
        private final List<Entry> entries = new ArrayList<>();
        private final Map<String, String> attrs = new LinkedHashMap<>();
        private final List<Commit> commits = new ArrayList<>();
        private final List<Header.Drop> drops = new ArrayList<>();
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
                Words.Text text = Words.splitText(data, FORMAT);
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
                return finish(Arrays.copyOfRange(data, text.bytes(), data.length));
            } catch (Malformed | ArithmeticException error) {
                throw corrupt(name, position, line, error);
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

        /** A line of which a header has one. */
        private boolean single(String kind, List<String> parts) {
            switch (kind) {
                case "segment" -> header.segment = Words.uuid(Words.exactly(parts, 1).get(0));
                case "version" -> header.version = Words.number(Words.exactly(parts, 1).get(0));
                case "state" -> {
                    Words.word(parts, 0);
                    Lines.parseState(parts, header);
                }
                case "epoch" -> {
                    header.epoch = Words.number(Words.word(parts, 0));
                    header.owner = parts.size() > 1 ? Words.unquote(Words.exactly(parts, 2).get(1)) : null;
                }
                case "policy" -> header.policy = Lines.parsePolicy(parts);
                case "time" -> {
                    Map<String, String> fields = Words.fields(parts, 0, Set.of("created", "modified"), false);
                    header.createdMs = fields.containsKey("created") ? Words.parseTime(fields.get("created")) : 0;
                    header.modifiedMs = fields.containsKey("modified") ? Words.parseTime(fields.get("modified")) : 0;
                }
                case "start" -> header.start = Words.number(Words.exactly(parts, 1).get(0));
                case "Adopted" -> {
                    Words.exactly(parts, 2);
                    header.adopted = new Adopted(Words.unquote(parts.get(0)), Words.parseTime(parts.get(1)));
                }
                case "Inline" -> inline(parts);
                case "evicted" -> header.evicted = Words.number(Words.exactly(parts, 1).get(0));
                default -> {
                    return false;
                }
            }
            if (!seen.add(kind)) {
                throw new Malformed("comes twice");
            }
            return true;
        }

        /** A line of which a header may have many. */
        private boolean repeated(String kind, List<String> parts) {
            switch (kind) {
                case "Chunk" -> {
                    Words.word(parts, 0);
                    entries.add(Lines.parseChunk(parts));
                }
                case "Page" -> {
                    Words.word(parts, 0);
                    entries.add(Lines.parsePage(parts));
                }
                case "Drop" -> {
                    Words.word(parts, 0);
                    drops.add(Lines.parseDrop(parts));
                }
                case "Merged" -> merges.add(mark(parts));
                case "Aborted" -> aborts.add(mark(parts));
                case "attr" -> {
                    Words.exactly(parts, 2);
                    if (attrs.put(Words.unquote(parts.get(0)), Words.unquote(parts.get(1))) != null) {
                        throw new Malformed("comes twice");
                    }
                }
                case "commit" -> {
                    Words.exactly(parts, 3);
                    commits.add(new Commit(Words.unquote(parts.get(0)), Words.number(parts.get(1)),
                            Words.number(parts.get(2))));
                }
                default -> {
                    return false;
                }
            }
            return true;
        }

        private static Mark mark(List<String> parts) {
            Words.exactly(parts, 2);
            return new Mark(Words.uuid(parts.get(0)), Words.unquote(parts.get(1)));
        }

        private void inline(List<String> parts) {
            Map<String, String> fields = Words.fields(parts, 2, Set.of("crc32c", "at"), true);
            int crc = Words.crc(Words.need(fields, "crc32c"));
            header.tailAtMs = Words.parseTime(Words.need(fields, "at"));
            inline = new long[] {Words.number(Words.word(parts, 0)), Words.number(Words.word(parts, 1)), crc};
        }

        private Header finish(byte[] tail) {
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
            header.merges = List.copyOf(merges);
            header.aborts = List.copyOf(aborts);
            header.unknown = List.copyOf(unknown);
            if ((inline != null) != (tail.length > 0)) {
                throw new Malformed("the inline tail and its line do not go together");
            }
            long[] found = {header.tailStart(), tail.length, Words.crc32c(tail)};
            if (inline != null && !Arrays.equals(inline, found)) {
                throw new Malformed(
                        "the inline tail has not the offset, the length or the checksum that its line says");
            }
            header.check();
            return header;
        }
    }

    // -- index pages -----------------------------------------------------------------------------------------

    /** An index page's content. Its chunks' offsets begin at 0; references are relative to the page's folder. */
    static byte[] formatPage(List<Chunk> chunks) {
        StringBuilder text = new StringBuilder(PAGE_FORMAT).append('\n');
        chunks.forEach(chunk -> line(text, Lines.format(chunk)));
        return Words.sealText(text.toString());
    }

    /** Read an index page and check it, against the header's line where that is known (else null). */
    static List<Chunk> parsePage(byte[] data, Page page, String name) throws RollingException.Corrupt {
        int position = 0;
        String line = "";
        List<Chunk> chunks = new ArrayList<>();
        try {
            if (page != null && (data.length != page.size() || Words.crc32c(data) != page.crc32c())) {
                throw new Malformed("it has not the size or the checksum that the header says");
            }
            Words.Text text = Words.splitText(data, PAGE_FORMAT);
            position = 1;
            for (String found : text.lines()) {
                position++;
                line = found;
                chunks.add(parsePageLine(found));
            }
            position = 0;
            checkPage(chunks, text.bytes() == data.length, page);
        } catch (Malformed | ArithmeticException error) {
            throw corrupt(name, position, line, error);
        }
        return List.copyOf(chunks);
    }

    private static Chunk parsePageLine(String line) {
        List<String> words = Arrays.asList(line.split(" ", -1));
        if (!words.get(0).equals("Chunk")) {
            throw new Malformed("line kind '" + words.get(0)
                    + "' is too new for this release: upgrade rollingfs to read it");
        }
        Words.word(words, 1);
        return Lines.parseChunk(words.subList(1, words.size()));
    }

    private static void checkPage(List<Chunk> chunks, boolean isWhole, Page page) {
        if (!isWhole || chunks.isEmpty() || (page != null && chunks.size() != page.chunks())) {
            throw new Malformed("it has not as many chunks as the header says, or bytes after its end");
        }
        for (int index = 1; index < chunks.size(); index++) {
            if (chunks.get(index - 1).end() != chunks.get(index).start()) {
                throw new Malformed("its chunks leave a gap or overlap");
            }
        }
        long end = chunks.get(chunks.size() - 1).end();
        if (chunks.get(0).start() != 0 || (page != null && end < Math.addExact(page.offset(), page.length()))) {
            throw new Malformed("its chunks do not cover what the header says");
        }
    }

    // -- pins ------------------------------------------------------------------------------------------------

    /** What says, in a chunk folder, that another segment refers to it; paths are relative to where it lies. */
    static byte[] formatPin(String txn, String source, String target, String folder) {
        String home = Names.parent(folder);
        return Words.sealText(PIN_FORMAT + "\ntxn " + txn + "\nsource " + Words.quote(Names.relative(home, source))
                + "\ntarget " + Words.quote(Names.relative(home, target)) + "\n");
    }

    private static RollingException.Corrupt corrupt(String name, int position, String line, RuntimeException error) {
        String where = position > 0 ? ", line " + position + " ('" + line + "')" : "";
        String why = error instanceof ArithmeticException ? "it is longer than " + Long.MAX_VALUE + " bytes"
                : error.getMessage();
        return new RollingException.Corrupt(name + where + ": " + why);
    }
}
