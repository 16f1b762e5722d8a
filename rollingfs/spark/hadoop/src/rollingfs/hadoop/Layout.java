package rollingfs.hadoop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Page;

/** Where bytes and chunks go: pieces, index pages, other segments. Pure plans, no I/O. */
final class Layout {
    private static final int PAGE_CHUNKS = 128;
    private static final int PAGES_JOINED = 32;
    /** Of the line of an index page in the own folder, whatever its numbers. */
    private static final int PAGE_LINE_BYTES_MAX = 128;

    private Layout() {}

    /** A plan: the entries {@code [first, last)} of a header become one index page. */
    record Fold(int first, int last) {}

    /** Bytes in pieces of at most {@code most}. */
    static List<byte[]> split(byte[] data, long most) {
        List<byte[]> pieces = new ArrayList<>();
        for (int start = 0; start < data.length; start += (int) Math.min(most, data.length - start)) {
            pieces.add(Arrays.copyOfRange(data, start, start + (int) Math.min(most, data.length - start)));
        }
        return pieces;
    }

    /** The part of an entry within {@code [start, end)}, which must not be empty. */
    static Entry clip(Entry entry, long start, long end) {
        long first = Math.max(start, entry.start());
        long last = Math.min(end, entry.end());
        return entry.with(first, last - first, entry.offset() + first - entry.start(), entry.file());
    }

    /** The index of the entry (of a contiguous list) that holds an offset, or the list's size. */
    static <E extends Entry> int find(List<E> entries, long offset) {
        int low = 0;
        int high = entries.size();
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (entries.get(middle).end() <= offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    /** A source's retained entries as a target's: clipped to its start, references seen from the target. */
    static List<Entry> transplant(Header source, String sourcePath, String target) {
        List<Entry> moved = new ArrayList<>();
        for (Entry entry : source.entries) {
            Entry part = clip(entry, source.start, entry.end());
            String file = Names.relate(target, Names.resolve(sourcePath, entry.file()));
            moved.add(part.with(part.start(), part.length(), part.offset(), file));
        }
        return List.copyOf(moved);
    }

    /** A page's chunks as loose chunks of the header of {@code segment}: clipped, shifted, references resolved. */
    static List<Chunk> unfold(Page page, List<Chunk> chunks, String segment) {
        String home = Names.segmentOfFolder(Names.parent(Names.resolve(segment, page.file())));
        long first = page.offset();
        long last = Math.addExact(first, page.length());
        List<Chunk> found = new ArrayList<>();
        for (int index = find(chunks, first); index < chunks.size() && chunks.get(index).start() < last; index++) {
            Chunk chunk = (Chunk) clip(chunks.get(index), first, last);
            String file = home.equals(segment) ? chunk.file()
                    : Names.relate(segment, Names.resolve(home, chunk.file()));
            found.add(chunk.with(chunk.start() - first + page.start(), chunk.length(), chunk.offset(), file));
        }
        return found;
    }

    /** What to move into an index page next, or null: loose chunks beyond the limit, else 32 small neighbours. */
    static Fold planFold(List<Entry> entries) {
        long loose = entries.stream().filter(Chunk.class::isInstance).count();
        return loose > Header.LOOSE_CHUNKS_MAX ? looseRun(entries) : smallPages(entries);
    }

    /** The longest run of loose chunks, or its oldest part. */
    private static Fold looseRun(List<Entry> entries) {
        int bestFirst = 0;
        int bestCount = 0;
        int first = 0;
        for (int index = 0; index <= entries.size(); index++) {
            if (index == entries.size() || entries.get(index) instanceof Page) {
                if (Math.min(index - first, PAGE_CHUNKS) > Math.min(bestCount, PAGE_CHUNKS)) {
                    bestFirst = first;
                    bestCount = index - first;
                }
                first = index + 1;
            }
        }
        int size = bestCount > Header.LARGE_PAGE_CHUNKS ? Header.LARGE_PAGE_CHUNKS : Math.min(bestCount, PAGE_CHUNKS);
        return new Fold(bestFirst, bestFirst + size);
    }

    private static Fold smallPages(List<Entry> entries) {
        int first = 0;
        while (first < entries.size()) {
            int last = first;
            int count = 0;
            while (last < entries.size() && isSmall(entries.get(last))
                    && count + entries.get(last).count() <= Header.LARGE_PAGE_CHUNKS) {
                count += entries.get(last).count();
                last++;
            }
            if (last - first >= PAGES_JOINED) {
                return new Fold(first, last);
            }
            first = Math.max(last, first + 1);
        }
        return null;
    }

    private static boolean isSmall(Entry entry) {
        return entry instanceof Page page && page.chunks() <= PAGE_CHUNKS;
    }

    /** The neighbours whose lines one page saves most of: for a text too long although nothing is over a limit. */
    static Fold planSqueeze(List<Entry> entries) {
        Fold best = null;
        int savedMost = 0;
        int first = 0;
        int count = 0;
        int size = 0;
        for (int last = 0; last < entries.size(); last++) {
            count += entries.get(last).count();
            size += lineBytes(entries.get(last));
            for (; count > Header.LARGE_PAGE_CHUNKS; first++) {
                count -= entries.get(first).count();
                size -= lineBytes(entries.get(first));
            }
            if (size - PAGE_LINE_BYTES_MAX > savedMost) {
                best = new Fold(first, last + 1);
                savedMost = size - PAGE_LINE_BYTES_MAX;
            }
        }
        return best;
    }

    private static int lineBytes(Entry entry) {
        return Lines.format(entry).getBytes(StandardCharsets.UTF_8).length + 1;
    }
}
