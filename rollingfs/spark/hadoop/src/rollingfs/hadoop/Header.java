package rollingfs.hadoop;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The header of a segment: everything that its file says, the inline tail included, and what must hold of it.
 *
 * <p>A value: it is changed only in a {@link #copy} that nobody else has seen. The format is specified in
 * {@code docs/protocol.md}.
 */
final class Header implements Cloneable {
    static final int TEXT_BYTES_MAX = 64 * 1024;
    static final int TAIL_BYTES_MAX = 1024 * 1024;
    static final int LOOSE_CHUNKS_MAX = 128;
    static final int DROPS_MAX = 128;
    static final int ATTRS_MAX = 64;
    static final int ATTRS_BYTES_MAX = 4096;
    static final int COMMITS_MAX = 64;
    static final int MARKS_MAX = 128;
    static final int LARGE_PAGE_CHUNKS = 128 * 32;
    /** D: a chunk whose upload began longer ago is not committed any more but written again. */
    static final long AGE_MS_MAX = 3600_000;
    private static final int INLINE_BYTES_MAX = 1024 * 1024;
    private static final long MAX_AGE_MS_MAX = 100L * 366 * 86400 * 1000;

    /** What may be done with a segment. */
    enum Phase {
        OPEN, SEALED, MERGING, DELETED;

        String word() {
            return name().toLowerCase(java.util.Locale.ROOT);
        }
    }

    /** A run of the segment's bytes: a chunk, or a page that lists chunks. */
    sealed interface Entry permits Chunk, Page {
        /** Segment offset of the first byte used (in an index page: offset within the page). */
        long start();

        /** Bytes used. */
        long length();

        /** Reference, relative to the header's folder. */
        String file();

        /** Where in the file (of a page: in what it lists) the used part begins. */
        long offset();

        /** The same entry at another place. */
        Entry with(long start, long length, long offset, String file);

        default long end() {
            return Math.addExact(start(), length());
        }

        default int count() {
            return this instanceof Page page ? page.chunks() : 1;
        }
    }

    /** Bytes that lie in one chunk file; {@code crc32c} (of the whole file) is null if nobody has read it. */
    record Chunk(long start, long length, String file, Integer crc32c, long atMs, long offset, long size)
            implements Entry {
        Chunk {
            if (start < 0 || length < 1 || offset < 0 || offset > size || length > size - offset) {
                throw new Malformed("a chunk's range lies outside its file, or is empty");
            }
        }

        @Override
        public Chunk with(long newStart, long newLength, long newOffset, String newFile) {
            return new Chunk(newStart, newLength, newFile, crc32c, atMs, newOffset, size);
        }
    }

    /** Bytes whose chunks are listed in an index page of {@code size} bytes. */
    record Page(long start, long length, String file, int chunks, int crc32c, long size, long offset, int foreign)
            implements Entry {
        Page {
            if (start < 0 || length < 1 || offset < 0 || chunks < 1 || chunks > LARGE_PAGE_CHUNKS) {
                throw new Malformed("a page's range is empty or negative, or its count is out of range");
            }
            if (foreign < 0 || foreign > chunks || size < 1) {
                throw new Malformed("a page's size or its count of foreign chunks is out of range");
            }
        }

        @Override
        public Page with(long newStart, long newLength, long newOffset, String newFile) {
            return new Page(newStart, newLength, newFile, chunks, crc32c, size, newOffset, foreign);
        }
    }

    /** Something that is no longer part of the segment and is still to be deleted: a file, (part of) a page, a hint. */
    record Drop(String file, long atMs, long start, long end, boolean whole, long size, long afterMs) {
        static Drop ofFile(String file, long atMs) {
            return new Drop(file, atMs, -1, -1, false, 0, 0);
        }

        static Drop hint(String folder, long atMs, long size) {
            return new Drop(folder, atMs, -1, -1, false, size, 0);
        }

        boolean isHint() {
            return file.endsWith("/");
        }

        boolean isPage() {
            return end >= 0;
        }
    }

    /** A writer's last operation: how a writer recognises its own commit. */
    record Commit(String writer, long number, long version) {}

    /** The plain file that this header shadows. */
    record Adopted(String token, long modifiedMs) {}

    /** The mark of a source whose entries are on their way into a target. */
    record Merge(String txn, String target, String targetSegment, Phase prior, long atMs) {}

    /** In a target: a transaction that took place (merged) or never will (aborted). */
    record Mark(String txn, String source) {}

    /** When bytes leave the header, and when a chunk is full; {@code maxAgeMs} 0 for never by age. */
    record Policy(long maxBytes, long inlineBytes, long maxAgeMs) {
        static final Policy DEFAULT = new Policy(64 * 1024 * 1024, 256 * 1024, 0);

        Policy {
            if (maxBytes < 1 || inlineBytes < 0 || inlineBytes > INLINE_BYTES_MAX) {
                throw new Malformed("a policy's max_bytes or inline_bytes is out of range");
            }
            if (maxAgeMs < 0 || maxAgeMs > MAX_AGE_MS_MAX) {
                throw new Malformed("a policy's max_age is out of range");
            }
        }

        /** How long the inline tail may grow: a tail that becomes a chunk must not exceed {@code maxBytes}. */
        long tailBytesMax() {
            return Math.min(inlineBytes, maxBytes);
        }
    }

    String segment;
    long version = 1;
    Phase phase = Phase.OPEN;
    Merge merge;
    /** In a tombstone: the transaction that took the content away. */
    String merged;
    long epoch;
    String owner;
    Policy policy = Policy.DEFAULT;
    long start;
    List<Entry> entries = List.of();
    byte[] tail = new byte[0];
    long tailAtMs;
    Map<String, String> attrs = new LinkedHashMap<>();
    List<Commit> commits = List.of();
    long evicted;
    List<Drop> drops = List.of();
    Adopted adopted;
    List<Mark> merges = List.of();
    List<Mark> aborts = List.of();
    long createdMs;
    long modifiedMs;
    /** Lower-case lines of a newer release, kept as they are. */
    List<String> unknown = List.of();

    Header(String segment) {
        this.segment = segment;
    }

    /** One that may be changed; its lists are replaced, never changed in place. */
    Header copy() {
        try {
            return (Header) super.clone();
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }

    /** Segment offset of the inline tail's first byte. */
    long tailStart() {
        return entries.isEmpty() ? start : entries.get(entries.size() - 1).end();
    }

    /** End offset. */
    long length() {
        return Math.addExact(tailStart(), tail.length);
    }

    /** Bytes retained. */
    long size() {
        return length() - start;
    }

    boolean deleted() {
        return phase == Phase.DELETED;
    }

    boolean isMerging(String txn) {
        return merge != null && merge.txn().equals(txn);
    }

    boolean hasMerged(String txn) {
        return merges.stream().anyMatch(mark -> mark.txn().equals(txn));
    }

    boolean hasAborted(String txn) {
        return aborts.stream().anyMatch(mark -> mark.txn().equals(txn));
    }

    long looseCount() {
        return entries.stream().filter(Chunk.class::isInstance).count();
    }

    /** Check what must hold of every header, before it is written and after it is read. */
    void check() {
        require(version >= 1 && epoch >= 0 && evicted >= 0 && start >= 0, "a number is below its least value");
        require((phase == Phase.MERGING) == (merge != null), "the state 'merging' and its mark do not go together");
        require(merge == null || merge.prior() == Phase.OPEN || merge.prior() == Phase.SEALED,
                "the state before a merge must be open or sealed");
        require(merged == null || deleted(), "only a tombstone can have been merged");
        require(!deleted() || (entries.isEmpty() && tail.length == 0 && attrs.isEmpty() && owner == null),
                "a tombstone has no content");
        checkMap();
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

    private void checkLimits() {
        long attrsBytes = attrs.entrySet().stream().mapToLong(attr -> utf8(attr.getKey()) + utf8(attr.getValue())).sum();
        limit("loose chunks", looseCount(), LOOSE_CHUNKS_MAX);
        limit("bytes of inline tail", tail.length, TAIL_BYTES_MAX);
        limit("drop lines", drops.size(), DROPS_MAX);
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
