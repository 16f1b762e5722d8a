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

/** Index pages on the store, read through a cache: they never change. */
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

    /** The chunks that stand for a page's line in the map of a segment; {@link #home} resolves their references. */
    List<Chunk> chunks(String segment, Page page) throws IOException {
        String path = Names.resolve(segment, page.file());
        List<Chunk> found = cache.get(path);
        if (found == null) {
            byte[] data = store.readWhole(path, null);
            if (data == null) {
                throw new FileNotFoundException("No such index page: " + path);
            }
            found = IndexCodec.parse(data, page, path);
            cache.put(path, found);
        }
        return Ranges.unfold(page, found);
    }

    /** The segment in whose chunk folder a page lies, to which the references in the page are relative. */
    static String home(String segment, Page page) {
        return Names.segmentOfFolder(Names.parent(Names.resolve(segment, page.file())));
    }
}
