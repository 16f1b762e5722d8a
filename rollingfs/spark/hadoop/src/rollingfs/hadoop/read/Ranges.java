package rollingfs.hadoop.read;

import java.util.ArrayList;
import java.util.List;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Page;

/** Which entries of a map hold which offsets. Pure. */
final class Ranges {
    private Ranges() {}

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

    /** The chunks that stand for a page's line in a map: clipped and shifted; their references stay as they are. */
    static List<Chunk> unfold(Page page, List<Chunk> chunks) {
        long first = page.offset();
        long last = Math.addExact(first, page.length());
        List<Chunk> found = new ArrayList<>();
        for (int index = find(chunks, first); index < chunks.size() && chunks.get(index).start() < last; index++) {
            Chunk chunk = chunks.get(index);
            long start = Math.max(first, chunk.start());
            long length = Math.min(last, chunk.end()) - start;
            found.add(new Chunk(start - first + page.start(), length, chunk.file(), chunk.crc32c(), chunk.atMs(),
                    chunk.offset() + start - chunk.start(), chunk.size()));
        }
        return found;
    }
}
