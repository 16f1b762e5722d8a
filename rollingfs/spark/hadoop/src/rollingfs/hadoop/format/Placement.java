package rollingfs.hadoop.format;

import java.util.ArrayList;
import java.util.List;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Page;

/** The places of bytes in a map of entries. Pure. */
public final class Placement {
    private Placement() {}

    /** The index of the entry that holds an offset, in a list without gaps; the size of the list if none does. */
    public static <E extends Entry> int find(List<E> entries, long offset) {
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

    /** The chunks of an index page that a page line means: clipped and shifted, with unchanged references. */
    public static List<Chunk> unfold(Page page, List<Chunk> chunks) {
        long first = page.offset();
        long last = Math.addExact(first, page.length());
        List<Chunk> found = new ArrayList<>();
        for (int index = find(chunks, first); index < chunks.size() && chunks.get(index).start() < last; index++) {
            Chunk chunk = chunks.get(index);
            long start = Math.max(first, chunk.start());
            long length = Math.min(last, chunk.end()) - start;
            found.add(new Chunk(start - first + page.start(), length, chunk.file(), chunk.atMs(),
                    chunk.offset() + start - chunk.start(), chunk.size(), chunk.tier()));
        }
        return found;
    }
}
