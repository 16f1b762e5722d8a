package rollingfs.hadoop.format;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.List;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Drop;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Merge;
import rollingfs.hadoop.format.Header.Page;
import rollingfs.hadoop.format.Header.Policy;

/**
 * Reads header files and index pages, and writes each again as it was understood, or why it was refused.
 *
 * <p>The Hadoop filesystem writes none: that it understood every line is seen by writing them here.
 */
public final class Rewrite {
    private static final DateTimeFormatter TIME_FORMAT = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSS'Z'");

    private Rewrite() {}

    /** Two folders: from, to. */
    public static void main(String[] folders) throws Exception {
        try (var files = Files.newDirectoryStream(Path.of(folders[0]))) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                Path to = Path.of(folders[1], name);
                try {
                    byte[] data = Files.readAllBytes(file);
                    Files.write(to, name.endsWith(".page") ? formatPage(IndexCodec.parse(data, null, name))
                            : format(Codec.parse(data, name)));
                } catch (RollingException.Corrupt error) {
                    Files.writeString(Path.of(to + ".refused"), error.getMessage());
                }
            }
        }
    }

    /** The header's text, without the inline tail; of any length. */
    static byte[] formatText(Header header) {
        StringBuilder text = new StringBuilder(4096).append("rollingfs 1").append('\n');
        line(text, "segment " + header.segment);
        line(text, "version " + header.version);
        line(text, formatState(header));
        line(text, "epoch " + header.epoch + (header.owner != null ? " " + quote(header.owner) : ""));
        line(text, formatPolicy(header.policy));
        line(text, "time created=" + formatTime(header.createdMs) + " modified="
                + formatTime(header.modifiedMs));
        line(text, "start " + header.start);
        if (header.adopted != null) {
            line(text, "Adopted " + quote(header.adopted.token()) + " "
                    + formatTime(header.adopted.modifiedMs()));
        }
        header.tiers.forEach(tier -> line(text,
                "Tier " + tier.alias() + " " + tier.key() + " " + formatTime(tier.atMs())));
        header.entries.forEach(entry -> line(text, format(entry)));
        if (header.tail.length > 0) {
            line(text, "Inline " + header.tailStart() + " " + header.tail.length + " crc32c="
                    + hex(Tokens.crc32c(header.tail)) + " at=" + formatTime(header.tailAtMs)
                    + (header.tailUntilMs != null ? " until=" + formatTime(header.tailUntilMs) : ""));
        }
        header.attrs.forEach((key, value) -> line(text, "attr " + quote(key) + " " + quote(value)));
        header.commits.forEach(commit -> line(text,
                "commit " + quote(commit.writer()) + " " + commit.number() + " " + commit.version()
                        + (commit.offset() == null ? "" : " " + commit.offset())));
        if (header.evicted != 0) {
            line(text, "evicted " + header.evicted);
        }
        header.merges.forEach(mark -> line(text, "Merged " + mark.txn() + " " + quote(mark.source())));
        header.aborts.forEach(mark -> line(text, "Aborted " + mark.txn() + " " + quote(mark.source())));
        header.drops.forEach(drop -> line(text, format(drop)));
        header.unknown.forEach(unknown -> line(text, unknown));
        return sealText(text.toString());
    }

    private static void line(StringBuilder text, String line) {
        text.append(line).append('\n');
    }

    static byte[] format(Header header) {
        byte[] text = formatText(header);
        byte[] data = Arrays.copyOf(text, text.length + header.tail.length);
        System.arraycopy(header.tail, 0, data, text.length, header.tail.length);
        return data;
    }

    /** An index page's content. Its chunks' offsets begin at 0; references are relative to the page's folder. */
    static byte[] formatPage(List<Chunk> chunks) {
        StringBuilder text = new StringBuilder("rollingfs-index 1").append('\n');
        chunks.forEach(chunk -> line(text, format(chunk)));
        return sealText(text.toString());
    }

    static String format(Entry entry) {
        return entry instanceof Chunk chunk ? formatChunk(chunk) : formatPageLine((Page) entry);
    }

    private static String formatChunk(Chunk chunk) {
        StringBuilder line = new StringBuilder("Chunk ").append(chunk.start()).append(' ').append(chunk.length())
                .append(' ').append(quote(chunk.file()));
        if (chunk.crc32c() != null) {
            line.append(" crc32c=").append(hex(chunk.crc32c()));
        }
        line.append(" at=").append(formatTime(chunk.atMs()));
        if (chunk.offset() != 0 || chunk.size() != chunk.length()) {
            line.append(" from=").append(chunk.offset()).append(" size=").append(chunk.size());
        }
        if (!chunk.tier().isEmpty()) {
            line.append(" tier=").append(chunk.tier());
        }
        if (chunk.moved().at() != null) {
            line.append(" moved=").append(chunk.moved().at());
        }
        if (chunk.moved().pieces() != null) {
            line.append(" pieces=").append(chunk.moved().pieces());
        }
        return line.toString();
    }

    private static String formatPageLine(Page page) {
        return "Page " + page.start() + " " + page.length() + " " + quote(page.file())
                + " crc32c=" + hex(page.crc32c()) + " count=" + page.chunks() + " size=" + page.size()
                + (page.offset() != 0 ? " from=" + page.offset() : "")
                + (page.foreign() != 0 ? " foreign=" + page.foreign() : "");
    }

    static String format(Drop drop) {
        String target = drop.file().equals("./") ? drop.file() : quote(drop.file());
        StringBuilder line = new StringBuilder("Drop ").append(target).append(" at=")
                .append(formatTime(drop.atMs()));
        if (drop.isPage()) {
            line.append(" from=").append(drop.start()).append(" to=").append(drop.end());
            line.append(drop.whole() ? " whole=1" : "");
        }
        if (drop.isHint()) {
            line.append(" bytes=").append(drop.size());
        }
        if (drop.afterMs() != 0) {
            line.append(" after=").append(formatTime(drop.afterMs()));
        }
        if (!drop.tier().isEmpty()) {
            line.append(" tier=").append(drop.tier());
        }
        return line.toString();
    }

    static String formatState(Header header) {
        Merge merge = header.merge;
        if (merge != null) {
            return "state merging " + merge.txn() + " " + quote(merge.target()) + " " + merge.targetSegment()
                    + " " + merge.prior().word() + " " + formatTime(merge.atMs());
        }
        return "state " + header.phase.word() + (header.merged != null ? " merged " + header.merged : "");
    }

    static String formatPolicy(Policy policy) {
        return "policy max_bytes=" + policy.maxBytes() + " inline_bytes=" + policy.inlineBytes()
                + (policy.maxAgeMs() != 0 ? " max_age_ms=" + policy.maxAgeMs() : "")
                + (policy.consolidate() ? "" : " consolidate=0");
    }

    static String hex(int crc) {
        return String.format("%08x", crc);
    }

    /** Escape what would end a word or a line: percent signs, blanks and control characters. */
    static String quote(String text) {
        StringBuilder quoted = null;
        for (int index = 0; index < text.length(); index++) {
            char found = text.charAt(index);
            if (found == '%' || found <= 0x20 || found == 0x7f) {
                if (quoted == null) {
                    quoted = new StringBuilder(text.length() + 8).append(text, 0, index);
                }
                quoted.append(String.format("%%%02x", (int) found));
            } else if (quoted != null) {
                quoted.append(found);
            }
        }
        return quoted == null ? text : quoted.toString();
    }

    /** Milliseconds since 1970 as ISO 8601 in UTC. */
    static String formatTime(long atMs) {
        LocalDateTime moment = LocalDateTime.ofInstant(Instant.ofEpochMilli(atMs), ZoneOffset.UTC);
        return TIME_FORMAT.format(moment);
    }

    /** Add the end line, whose checksum covers everything before it. */
    static byte[] sealText(String text) {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        byte[] end = ("end crc32c=" + hex(Tokens.crc32c(body)) + "\n\n").getBytes(StandardCharsets.US_ASCII);
        byte[] sealed = Arrays.copyOf(body, body.length + end.length);
        System.arraycopy(end, 0, sealed, body.length, end.length);
        return sealed;
    }
}
