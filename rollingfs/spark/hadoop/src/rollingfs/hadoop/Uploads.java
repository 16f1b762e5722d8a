package rollingfs.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rollingfs.hadoop.Backoff.Moment;
import rollingfs.hadoop.Header.Chunk;

/** The chunk files of one operation on one segment: written under names never used before, and the age rule. */
final class Uploads {
    private final Store store;
    private final String folder;
    private final List<Stored> all = new ArrayList<>();
    private final Map<Key, Stored> pieces = new HashMap<>();
    private final Map<Stored, Stored> renewed = new HashMap<>();

    Uploads(Store store, String segment) {
        this.store = store;
        this.folder = Names.chunksFolder(segment);
    }

    /** A chunk file that is written and not (known to be) committed; the checksum is null if nobody read it. */
    record Stored(String name, long size, Integer crc32c, long atMs, Moment began) {
        Chunk chunk(long start) {
            return new Chunk(start, size, name, crc32c, atMs, 0, size);
        }
    }

    private record Key(ByteBuffer data, int nth) {}

    /** A new chunk file, to be written and closed by the caller and then {@link #keep kept}. */
    OutputStream open(String name) throws IOException {
        return store.newFile(folder + "/" + name);
    }

    Stored keep(Stored stored) {
        all.add(stored);
        return stored;
    }

    /**
     * Write bytes as a chunk, once for all attempts of a commit (but again when they have grown too old).
     *
     * @param nth which of several equal pieces: one file must not be named by two entries
     */
    Stored write(byte[] data, int nth, long start) throws IOException {
        Key key = new Key(ByteBuffer.wrap(data), nth);
        Stored stored = pieces.get(key);
        if (stored == null) {
            Moment began = Moment.now();
            String name = Names.newChunkName(start);
            try (OutputStream stream = open(name)) {
                stream.write(data);
            }
            stored = keep(new Stored(name, data.length, Words.crc32c(data), began.wallMs(), began));
        }
        pieces.put(key, young(stored));
        return pieces.get(key);
    }

    /** The chunk itself, or, if its upload began more than D ago, a new copy of it. */
    Stored young(Stored stored) throws IOException {
        Stored newest = renewed.getOrDefault(stored, stored);
        if (newest.began().ageMs() <= Header.AGE_MS_MAX) {
            return newest;
        }
        Moment began = Moment.now();
        String name = Names.newChunkName(Long.parseLong(stored.name().split("-")[0]));
        try (InputStream source = store.openChunk(folder + "/" + newest.name(), null, newest.size()); OutputStream target = open(name)) {
            source.transferTo(target);
        }
        Stored again = keep(new Stored(name, stored.size(), stored.crc32c(), stored.atMs(), began));
        renewed.put(stored, again);
        return again;
    }

    /** Delete what was written, except what an attempt that was sent has named. */
    void discard(Set<String> named) {
        List<String> gone = all.stream().map(Stored::name).filter(name -> !named.contains(name))
                .map(name -> folder + "/" + name).toList();
        all.clear();
        if (gone.isEmpty()) {
            return;
        }
        try {
            store.delete(folder, gone);
        } catch (IOException error) {
            Log.warn(folder + ": removing what was uploaded failed, collection will", error);
        }
    }
}
