package rollingfs.hadoop.format;

import java.util.List;

/**
 * The header of a segment: of what its file says, what a reader needs. {@code Codec} has checked all of it.
 *
 * <p>It is a value: after it is read it does not change. {@code docs/protocol/} specifies the format.
 */
public final class Header {
    private static final int LARGE_PAGE_CHUNKS = 128 * 32;

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

    /** Bytes in one chunk file. */
    public record Chunk(long start, long length, String file, long atMs, long offset, long size, String tier)
            implements Entry {
        public Chunk {
            if (start < 0 || length < 1 || offset < 0 || offset > size || length > size - offset) {
                throw new Malformed("a chunk's range lies outside its file, or is empty");
            }
        }
    }

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

    /** The plain file that this header hides. */
    public record Adopted(String token, long modifiedMs) {}

    public String segment;
    public long version = 1;
    public Phase phase = Phase.OPEN;
    public long start;
    public List<Entry> entries = List.of();
    public byte[] tail = new byte[0];
    /** When the newest byte of the tail was written. */
    long tailMs;
    public Adopted adopted;
    public long createdMs;
    public long modifiedMs;
    /** Whether an {@code origin} line says that the segment was a plain file. */
    boolean hasOrigin;

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
        return adopted != null || hasOrigin;
    }

    public boolean deleted() {
        return phase == Phase.DELETED;
    }
}
