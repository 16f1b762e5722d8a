package rollingfs.hadoop.read;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Page;
import rollingfs.hadoop.format.IndexCodec;
import rollingfs.hadoop.format.Names;
import rollingfs.hadoop.format.Placement;

/** Index pages, read through a cache, because they never change. */
public final class IndexPages {
    private static final int PAGES_CACHED_MAX = 64;
    private final Store store;
    private final Map<String, List<Chunk>> cache =
            Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
                private static final long serialVersionUID = 1L;

                @Override
                protected boolean removeEldestEntry(Map.Entry<String, List<Chunk>> eldest) {
                    return size() > PAGES_CACHED_MAX;
                }
            });

    public IndexPages(Store store) {
        this.store = store;
    }

    /** The chunks that a page line in the map of a segment means; their references are relative to {@link #home}. */
    List<Chunk> chunks(String segment, Page page) throws IOException {
        String path = Names.resolve(segment, page.file());
        List<Chunk> found = cache.get(path);
        if (found == null) {
            byte[] data = store.readWhole(path, null);
            if (data == null) {
                throw new FileNotFoundException("no index page is at " + path);
            }
            found = IndexCodec.parse(data, page, path);
            cache.put(path, found);
        }
        return Placement.unfold(page, found);
    }

    /** The segment in whose chunk folder a page lies: references in the page are relative to it. */
    static String home(String segment, Page page) throws IOException {
        return Names.segmentOfFolder(Names.parent(Names.resolve(segment, page.file())));
    }
}
