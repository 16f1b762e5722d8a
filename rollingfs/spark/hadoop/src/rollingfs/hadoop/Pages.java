package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Drop;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Page;

/** Index pages on the store: loading them through a cache, and folding what has outgrown the header. */
final class Pages {
    private static final int PAGES_CACHED_MAX = 64;

    /** A page that a header names is gone: the header has been replaced meanwhile. */
    static final class PageGone extends FileNotFoundException {
        private static final long serialVersionUID = 1L;

        PageGone(String path) {
            super("No such index page: " + path);
        }
    }

    private final Store store;
    /** By path: pages never change. */
    private final Map<String, List<Chunk>> cache =
            Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
                private static final long serialVersionUID = 1L;

                @Override
                protected boolean removeEldestEntry(Map.Entry<String, List<Chunk>> eldest) {
                    return size() > PAGES_CACHED_MAX;
                }
            });

    Pages(Store store) {
        this.store = store;
    }

    /** A page's chunks as its file says them; checked against the header's line where it is known (else null). */
    List<Chunk> raw(String path, Page page) throws IOException {
        List<Chunk> found = cache.get(path);
        if (found == null) {
            byte[] data = store.readWhole(path, null);
            if (data == null) {
                throw new PageGone(path);
            }
            found = Codec.parsePage(data, page, path);
            cache.put(path, found);
        }
        return found;
    }

    /** A page's chunks as loose chunks of the header of a segment. */
    List<Chunk> chunks(String segment, Page page) throws IOException {
        return Layout.unfold(page, raw(Names.resolve(segment, page.file()), page), segment);
    }

    /** All chunks of some entries. */
    List<Chunk> unfold(String segment, List<Entry> entries) throws IOException {
        List<Chunk> found = new ArrayList<>();
        for (Entry entry : entries) {
            if (entry instanceof Chunk chunk) {
                found.add(chunk);
            } else {
                found.addAll(chunks(segment, (Page) entry));
            }
        }
        return found;
    }

    /** The chunk folders that entries of a segment name, those inside index pages included. */
    SortedSet<String> folders(String segment, List<Entry> entries) throws IOException {
        SortedSet<String> found = new TreeSet<>();
        for (Entry entry : entries) {
            found.add(Names.parent(Names.resolve(segment, entry.file())));
            if (entry instanceof Page page && (page.foreign() > 0 || page.file().indexOf('/') >= 0)) {
                for (Chunk chunk : chunks(segment, page)) {
                    found.add(Names.parent(Names.resolve(segment, chunk.file())));
                }
            }
        }
        return found;
    }

    /** The foreign chunk folders that entries of a segment name, as drop hints of {@code holder}. */
    List<String> hints(String segment, List<Entry> entries, String holder) throws IOException {
        SortedSet<String> found = folders(segment, entries);
        found.remove(Names.chunksFolder(holder));
        return found.stream().map(folder -> Names.relative(Names.parent(holder), folder) + "/").sorted().toList();
    }

    // -- folding ---------------------------------------------------------------------------------------------

    /** Move entries into index pages until the header keeps the limits of the format. */
    Header fold(String segment, Header header, Map<List<Entry>, Page> memo, long nowMs) throws IOException {
        for (Layout.Fold plan; (plan = Layout.planFold(header.entries)) != null;) {
            header = foldOnce(segment, header, plan, memo, nowMs);
        }
        int most = Header.TEXT_BYTES_MAX - Transitions.STAMP_BYTES_MAX;
        for (int over; (over = Codec.formatText(header).length - most) > 0;) {
            Layout.Fold plan = Layout.planSqueeze(header.entries);
            if (plan == null) {
                return Transitions.shedDrops(header, over);
            }
            header = foldOnce(segment, header, plan, memo, nowMs);
        }
        return header;
    }

    private Header foldOnce(String segment, Header header, Layout.Fold plan, Map<List<Entry>, Page> memo, long nowMs)
            throws IOException {
        List<Entry> folded = header.entries.subList(plan.first(), plan.last());
        Page page = memo.get(folded);
        if (page == null) {
            page = write(segment, unfold(segment, folded));
            memo.put(List.copyOf(folded), page);
        }
        List<Entry> entries = new ArrayList<>(header.entries.subList(0, plan.first()));
        entries.add(page);
        entries.addAll(header.entries.subList(plan.last(), header.entries.size()));
        List<Drop> drops = new ArrayList<>();
        for (Entry entry : folded) {
            if (entry instanceof Page old) {
                String folder = Names.parent(old.file());
                drops.add(folder.isEmpty() ? Drop.ofFile(old.file(), nowMs)
                        : Drop.hint(folder + "/", nowMs, old.size()));
            }
        }
        Header next = header.copy();
        next.entries = List.copyOf(entries);
        next.drops = Transitions.mergeDrops(header.drops, drops);
        return next;
    }

    /** Write consecutive chunks of a segment as an index page; returns the line that stands for them. */
    private Page write(String segment, List<Chunk> chunks) throws IOException {
        long origin = chunks.get(0).start();
        List<Chunk> shifted = chunks.stream()
                .map(chunk -> chunk.with(chunk.start() - origin, chunk.length(), chunk.offset(), chunk.file())).toList();
        byte[] data = Codec.formatPage(shifted);
        String name = Names.newIndexName();
        try (OutputStream stream = store.newFile(Names.chunksFolder(segment) + "/" + name)) {
            stream.write(data);
        }
        long foreign = chunks.stream()
                .filter(chunk -> chunk.file().indexOf('/') >= 0 || Names.isStaged(chunk.file())).count();
        long length = chunks.get(chunks.size() - 1).end() - origin;
        return new Page(origin, length, name, chunks.size(), Words.crc32c(data), data.length, 0, (int) foreign);
    }
}
