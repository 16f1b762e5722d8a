package rollingfs.hadoop.format;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The header of a segment: all that its file says, with the inline tail, and the checks that every header must pass.
 *
 * <p>It is a value: after it is read it does not change. {@code docs/protocol.md} specifies the format.
 */
public final class Header {
    static final int TEXT_BYTES_MAX = 64 * 1024;
    static final int TAIL_BYTES_MAX = 1024 * 1024;
    private static final int LOOSE_CHUNKS_MAX = 128;
    private static final int DROPS_MAX = 128;
    private static final int TIERS_MAX = 8;
    private static final int ATTRS_MAX = 64;
    private static final int ATTRS_BYTES_MAX = 4096;
    private static final int COMMITS_MAX = 64 + 256;
    private static final int MARKS_MAX = 128;
    private static final int LARGE_PAGE_CHUNKS = 128 * 32;
    private static final int INLINE_BYTES_MAX = 1024 * 1024;
    private static final long MAX_AGE_MS_MAX = 100L * 366 * 86400 * 1000;

    /** The state of a segment. */
    public enum Phase {
        OPEN, SEALED, MERGING, DELETED;

        public String word() {
            return name().toLowerCase(java.util.Locale.ROOT);
        }
    }

    /** A run of the segment's bytes: a chunk, or an index page, which lists chunks. */
    public sealed interface Entry permits Chunk, Page {
        /** Segment offset of the first byte used; in an index page, its offset in the bytes that the page lists. */
        long start();

        /** Bytes used. */
        long length();

        /** Reference, relative to the header's folder. */
        String file();

        /** Where the used part begins in the file; of a page, in the bytes that it lists. */
        long offset();

        default long end() {
            return Math.addExact(start(), length());
        }
    }

    /** Bytes in one chunk file. {@code crc32c} is the checksum of the whole file; null if nobody has computed it. */
    public record Chunk(long start, long length, String file, Integer crc32c, long atMs, long offset, long size,
            String tier, Moved moved) implements Entry {
        public Chunk {
            if (start < 0 || length < 1 || offset < 0 || offset > size || length > size - offset) {
                throw new Malformed("a chunk's range lies outside its file, or is empty");
            }
        }
    }

    /** When a file came to its tier, as it is written, and the checksums of its pieces; either may be null. */
    public record Moved(String at, String pieces) {}

    /** Bytes whose chunks an index page of {@code size} bytes lists. */
    public record Page(long start, long length, String file, int chunks, int crc32c, long size, long offset,
            int foreign) implements Entry {
        public Page {
            if (start < 0 || length < 1 || offset < 0 || chunks < 1 || chunks > LARGE_PAGE_CHUNKS) {
                throw new Malformed("a page's range is empty or negative, or its count is out of range");
            }
            if (foreign < 0 || foreign > chunks || size < 1) {
                throw new Malformed("a page's size or its count of foreign chunks is out of range");
            }
        }
    }

    /** What the segment no longer uses and collection deletes: a file, an index page or part of it, a folder. */
    record Drop(String file, long atMs, long start, long end, boolean whole, long size, long afterMs,
            String tier) {
        boolean isHint() {
            return file.endsWith("/");
        }

        boolean isPage() {
            return end >= 0;
        }
    }

    /** A tier in which the segment may have files; their names have the key. */
    record Tier(String alias, String key, long atMs) {}

    /** The last operation of a writer. {@code offset} is where its data begins if another writer committed it. */
    record Commit(String writer, long number, long version, Long offset) {}

    /** The plain file that this header hides. */
    public record Adopted(String token, long modifiedMs) {}

    /** The mark of a source whose entries move into a target. */
    record Merge(String txn, String target, String targetSegment, Phase prior, long atMs) {}

    /** In a target: a transaction that took place (Merged) or never will (Aborted). */
    record Mark(String txn, String source) {}

    /** When bytes leave the header, and when a chunk is full. {@code maxAgeMs} is 0 if age does not count. */
    record Policy(long maxBytes, long inlineBytes, long maxAgeMs, boolean consolidate) {
        Policy {
            if (maxBytes < 1 || inlineBytes < 0 || inlineBytes > INLINE_BYTES_MAX) {
                throw new Malformed("a policy's max_bytes or inline_bytes is out of range");
            }
            if (maxAgeMs < 0 || maxAgeMs > MAX_AGE_MS_MAX) {
                throw new Malformed("a policy's max_age is out of range");
            }
        }
    }

    public String segment;
    public long version = 1;
    public Phase phase = Phase.OPEN;
    Merge merge;
    /** In a tombstone: the transaction that moved the content into a target. */
    String merged;
    long epoch;
    String owner;
    Policy policy;
    public long start;
    public List<Entry> entries = List.of();
    public byte[] tail = new byte[0];
    long tailAtMs;
    Long tailUntilMs;
    Map<String, String> attrs = new LinkedHashMap<>();
    List<Commit> commits = List.of();
    long evicted;
    List<Drop> drops = List.of();
    List<Tier> tiers = List.of();
    public Adopted adopted;
    List<Mark> merges = List.of();
    List<Mark> aborts = List.of();
    public long createdMs;
    public long modifiedMs;
    /** Lower-case lines that a reader need not know: those of writers, and those of newer releases. */
    List<String> unknown = List.of();

    Header() {}

    /** Segment offset of the inline tail's first byte. */
    public long tailStart() {
        return entries.isEmpty() ? start : entries.get(entries.size() - 1).end();
    }

    /** End offset. */
    public long length() {
        return Math.addExact(tailStart(), tail.length);
    }

    /** Bytes retained. */
    public long size() {
        return length() - start;
    }

    /** Whether a plain file became this segment, which may so be older than its creation. */
    public boolean wasPlain() {
        return adopted != null || unknown.stream().anyMatch(line -> line.startsWith("origin "));
    }

    public boolean deleted() {
        return phase == Phase.DELETED;
    }

    long looseCount() {
        return entries.stream().filter(Chunk.class::isInstance).count();
    }

    /** Check what must be true of every header. */
    void check() {
        require(version >= 1 && epoch >= 0 && evicted >= 0 && start >= 0, "a number is below its least value");
        require((phase == Phase.MERGING) == (merge != null), "the state 'merging' and its mark do not go together");
        require(merge == null || merge.prior() == Phase.OPEN || merge.prior() == Phase.SEALED,
                "the state before a merge must be open or sealed");
        require(merged == null || deleted(), "only a tombstone can have been merged");
        require(!deleted() || (entries.isEmpty() && tail.length == 0 && attrs.isEmpty() && owner == null),
                "a tombstone has no content");
        checkMap();
        checkTiers();
        checkLimits();
    }

    private void checkMap() {
        require(entries.isEmpty() || (entries.get(0).start() <= start && start < entries.get(0).end()),
                "the start offset lies outside the first entry");
        for (int index = 1; index < entries.size(); index++) {
            long before = entries.get(index - 1).end();
            long after = entries.get(index).start();
            require(before == after, "entries " + (before > after ? "overlap" : "leave a gap") + " at offset "
                    + Math.min(before, after));
        }
        length(); // throws if it is longer than the largest number
        Set<String> writers = new HashSet<>();
        for (Commit line : commits) {
            require(line.version() <= version, "a commit line is newer than the header");
            require(writers.add(line.writer()), "a writer has two commit lines");
        }
        require(evicted <= version, "a commit line is newer than the header");
    }

    private void checkTiers() {
        Set<String> known = new HashSet<>(Set.of(""));
        tiers.forEach(tier -> require(known.add(tier.alias()), "a tier has two lines"));
        entries.forEach(entry -> require(!(entry instanceof Chunk chunk) || known.contains(chunk.tier()),
                "a line names a tier which has no line of its own"));
        drops.forEach(drop -> require(known.contains(drop.tier()), "a line names a tier which has no line of its own"));
    }

    private void checkLimits() {
        long attrsBytes = attrs.entrySet().stream().mapToLong(attr -> utf8(attr.getKey()) + utf8(attr.getValue())).sum();
        limit("loose chunks", looseCount(), LOOSE_CHUNKS_MAX);
        limit("bytes of inline tail", tail.length, TAIL_BYTES_MAX);
        limit("drop lines", drops.size(), DROPS_MAX);
        limit("tiers", tiers.size(), TIERS_MAX);
        limit("attributes", attrs.size(), ATTRS_MAX);
        limit("bytes of attributes", attrsBytes, ATTRS_BYTES_MAX);
        limit("commit lines", commits.size(), COMMITS_MAX);
        limit("merge marks", merges.size() + aborts.size(), MARKS_MAX);
    }

    private static long utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    private static void limit(String what, long count, long most) {
        require(count <= most, count + " " + what + ", but at most " + most + " are allowed");
    }

    private static void require(boolean holds, String problem) {
        if (!holds) {
            throw new Malformed(problem);
        }
    }
}
