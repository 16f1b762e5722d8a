package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.fs.FileStatus;
import rollingfs.hadoop.Backoff.Moment;
import rollingfs.hadoop.Committer.Attempt;
import rollingfs.hadoop.Committer.Loaded;
import rollingfs.hadoop.Header.Adopted;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Page;
import rollingfs.hadoop.Store.FileInfo;
import rollingfs.hadoop.Uploads.Stored;

/** What paths are, and the operations on one segment: append, overwrite, delete, adopt. */
final class Segments {
    private static final int ADOPTIONS_MAX = 8;
    private static final int COMPARED_BYTES = 1024 * 1024;
    final Store store;
    final Committer committer;

    Segments(Store store) {
        this.store = store;
        this.committer = new Committer(this);
    }

    /** What is at a path: a live header, else a plain file or a folder, else nothing. */
    record View(Header header, FileInfo plain) {
        static final View NOTHING = new View(null, null);

        boolean isNothing() {
            return header == null && plain == null;
        }

        boolean isFile() {
            return header != null || (plain != null && !plain.isFolder());
        }

        boolean isFolder() {
            return header == null && plain != null && plain.isFolder();
        }
    }

    /** A segment's header for a reader; null if there is none. {@code known} may say what a listing knows of it. */
    Header header(String path, FileStatus known) throws IOException {
        String file = Names.headerPath(path);
        byte[] data = store.readWhole(file, known);
        return data == null ? null : Codec.parse(data, file);
    }

    /** What is to be read at a path: the header, else the plain file, else the header once more. */
    View view(String path) throws IOException {
        if (Names.isReserved(path)) {
            return View.NOTHING;
        }
        if (Names.isTop(path)) {
            FileInfo top = store.stat(path);
            return top == null ? View.NOTHING : new View(null, top);
        }
        View found = look(path);
        if (!found.isNothing()) {
            return found;
        }
        Header again = header(path, null); // adopted between the two looks
        return again != null && !again.deleted() ? new View(again, null) : found;
    }

    private View look(String path) throws IOException {
        Header header = header(path, null);
        if (header != null && !header.deleted()) {
            return new View(header, null);
        }
        FileInfo plain = store.stat(path);
        return plain == null || isShadowed(header, plain) ? View.NOTHING : new View(null, plain);
    }

    /** Whether a plain file is hidden by a header: by any live one, by a tombstone only if it names this content. */
    boolean isShadowed(Header header, FileInfo plain) throws IOException {
        if (header == null || plain.isFolder()) {
            return false;
        }
        return !header.deleted() || (header.adopted != null && store.isNamed(header.adopted, plain));
    }

    /** The plain file at a path, unless the header says that it is dead; null if there is none. */
    private FileInfo plain(String path, Header header) throws IOException {
        FileInfo found = store.stat(path);
        return found == null || found.isFolder() || isShadowed(header, found) ? null : found;
    }

    /** The line by which a header hides this content of the plain file at its path; null if there is no such file. */
    Adopted shadow(String path, Header base) throws IOException {
        FileInfo plain = plain(path, base);
        return plain == null ? null : new Adopted(store.token(plain), plain.modifiedMs());
    }

    /** The line that hides what is left of the plain copy under way; null if that is nothing, or somebody else's. */
    Adopted leftCopy(String path, Header header) throws IOException {
        FileInfo file = plain(path, null);
        if (file == null) {
            return null;
        }
        String token = store.token(file);
        boolean isCopy = isCopy(path, header, file) && token.equals(store.token(file));
        return isCopy ? new Adopted(token, file.modifiedMs()) : null;
    }

    /** Whether a file has the very bytes that the plain copy under way must have, as far as they are retained. */
    private boolean isCopy(String path, Header header, FileInfo file) throws IOException {
        long start = Long.parseLong(Transitions.copyUnderWay(header).split(" ")[2]);
        if (file.size() != header.length() - start || start > header.start || header.size() == 0) {
            return false;
        }
        try (InputStream found = store.openPlain(file, null);
                InputStream own = new SegmentInput(this, path, header, null)) {
            found.skipNBytes(header.start - start);
            for (byte[] some; (some = own.readNBytes(COMPARED_BYTES)).length > 0;) {
                if (!Arrays.equals(some, found.readNBytes(some.length))) {
                    return false;
                }
            }
            return true;
        }
    }

    // -- content ---------------------------------------------------------------------------------------------

    /** The header of a segment that may be appended to: a plain file is adopted first. */
    Header openForAppend(String path) throws IOException {
        for (int count = 0; count < ADOPTIONS_MAX; count++) {
            Loaded loaded = committer.load(path);
            if (loaded.isLive()) {
                Transitions.checkOpen(loaded.header(), path);
                return loaded.header();
            }
            FileInfo plain = plain(path, loaded.header());
            if (plain == null) {
                throw Transitions.missing(path);
            }
            adopt(path, plain);
        }
        throw new RollingException.Conflict(path + ": the plain file changes too often to be adopted");
    }

    /** Append chunks that are written and bytes, in one commit, to this incarnation and no other. */
    void append(String path, String incarnation, List<Stored> chunks, byte[] bytes, Uploads source, Set<String> named)
            throws IOException {
        committer.commit(path, named, (base, attempt) -> {
            Header found = Transitions.check(base.header(), path);
            if (!found.segment.equals(incarnation)) {
                throw new RollingException(path + ": the segment that was opened is gone; another has its name");
            }
            Transitions.checkOpen(found, path);
            return chunks.isEmpty() && bytes.length == 0 ? null : grow(found, chunks, bytes, source, attempt);
        });
    }

    /** Replace the content by a new incarnation, in one commit; without a segment, one is made. */
    void overwrite(String path, List<Stored> chunks, byte[] bytes, Uploads source, Set<String> named)
            throws IOException {
        Header now = committer.commit(path, named, (base, attempt) -> {
            Header.Policy policy = Header.Policy.DEFAULT;
            Adopted adopted = null;
            if (base.isLive()) {
                policy = Transitions.check(base.header(), path).policy;
            } else {
                adopted = shadow(path, base.header());
            }
            long nowMs = System.currentTimeMillis();
            Header next = Transitions.create(base.header(), UUID.randomUUID().toString(), policy, nowMs, adopted);
            if (base.header() != null) {
                next = Transitions.withHints(next, committer.pages.hints(path, base.header().entries, path), nowMs);
            }
            return grow(next, chunks, bytes, source, attempt);
        });
        committer.finishDrops(path, now);
    }

    /** Put chunks and bytes behind a header's content, writing as chunks what does not stay inline. */
    private static Header grow(Header header, List<Stored> chunks, byte[] bytes, Uploads source, Attempt attempt)
            throws IOException {
        long nowMs = System.currentTimeMillis();
        Header.Policy policy = header.policy;
        List<Entry> entries = new ArrayList<>();
        byte[] pending = header.tail;
        Map<String, Integer> seen = new HashMap<>();
        long start = header.tailStart();
        if (!chunks.isEmpty()) {
            for (byte[] piece : Layout.split(pending, policy.maxBytes())) {
                entries.add(written(piece, seen, start, attempt));
                start += piece.length;
            }
            for (Stored stored : chunks) {
                entries.add(source.young(stored).chunk(start));
                start += stored.size();
            }
            pending = new byte[0];
        }
        pending = concat(pending, bytes);
        boolean isAged = policy.maxAgeMs() != 0 && header.tail.length > 0
                && nowMs - header.tailAtMs > policy.maxAgeMs();
        if (pending.length > policy.tailBytesMax() || (isAged && pending.length > 0)) {
            List<byte[]> pieces = Layout.split(pending, policy.maxBytes());
            byte[] last = pieces.get(pieces.size() - 1);
            boolean keepsLast = pieces.size() > 1 && last.length <= policy.tailBytesMax() && !isAged;
            for (byte[] piece : keepsLast ? pieces.subList(0, pieces.size() - 1) : pieces) {
                entries.add(written(piece, seen, start, attempt));
                start += piece.length;
            }
            pending = keepsLast ? last : new byte[0];
        }
        return Transitions.extend(header, entries, pending, nowMs);
    }

    private static Entry written(byte[] piece, Map<String, Integer> seen, long start, Attempt attempt)
            throws IOException {
        int nth = seen.merge(Words.hex(Words.crc32c(piece)) + piece.length, 1, Integer::sum);
        return attempt.uploads.write(piece, nth, start).chunk(start);
    }

    private static byte[] concat(byte[] one, byte[] two) {
        byte[] both = java.util.Arrays.copyOf(one, one.length + two.length);
        System.arraycopy(two, 0, both, one.length, two.length);
        return both;
    }

    // -- existence -------------------------------------------------------------------------------------------

    /** Leave a tombstone, and delete the own files that the replaced header named. */
    void delete(String path) throws IOException {
        List<String> own = new ArrayList<>();
        Header grave = committer.commit(path, (base, attempt) -> {
            Header found = Transitions.check(base.header(), path);
            own.clear();
            committer.pages.unfold(path, found.entries).stream().map(Entry::file).filter(Committer::isOwn)
                    .forEach(own::add);
            found.entries.stream().filter(Page.class::isInstance).map(Entry::file).filter(Committer::isOwn)
                    .forEach(own::add);
            Adopted adopted = found.adopted == null ? null : shadow(path, null);
            long nowMs = System.currentTimeMillis();
            Header next = Transitions.tombstone(found, null);
            next.adopted = adopted != null ? adopted : found.adopted;
            next.drops = Transitions.dropAll(found, nowMs);
            return Transitions.withHints(next, committer.pages.hints(path, found.entries, path), nowMs);
        });
        try {
            committer.deleteOwn(path, own);
        } catch (IOException error) {
            Log.warn(path + " is deleted; removing its chunks failed, collection will", error);
        }
        committer.finishDrops(path, grave);
    }

    /**
     * Delete a plain file, and the segment that somebody else made of it meanwhile.
     *
     * <p>Whoever is about to has claimed the name by a tombstone: committed anew, it is not the one any more that an
     * adoption replaces.
     */
    void deletePlain(String path) throws IOException {
        store.fs.delete(store.hadoopPath(path), false);
        try {
            if (header(path, null) == null) {
                return;
            }
            Header now = committer.commit(path, (base, attempt) -> base.header() == null || base.isLive() ? null
                    : base.header().copy());
            if (now != null && !now.deleted()) {
                delete(path);
            }
        } catch (FileNotFoundException error) {
            Log.warn(path + " was deleted by another at the same time", error);
        } catch (IOException error) {
            throw new RollingException.OutcomeUnknown(path + ": the file is deleted, but whether somebody has made a "
                    + "segment of it meanwhile is unknown (" + error + "); delete it again", error);
        }
    }

    /** The header at a path; a tombstone is made where there is none. */
    private Header claim(String path) throws IOException {
        return committer.commit(path, (base, attempt) -> base.header() != null ? null : Transitions.tombstone(
                Transitions.create(null, UUID.randomUUID().toString(), Header.Policy.DEFAULT,
                        System.currentTimeMillis(), null), null));
    }

    /**
     * Give a plain file a header over a copy of its bytes, if it still is what was seen when they are copied.
     *
     * <p>The copy is made after the claim, and the header replaces this claim only; if anything else is there, nothing
     * is done, and the caller looks again.
     */
    private void adopt(String path, FileInfo plain) throws IOException {
        String token = store.token(plain);
        Header claim = claim(path);
        if (isShadowed(claim, plain)) {
            return;
        }
        Set<String> named = new HashSet<>();
        Uploads uploads = new Uploads(store, path);
        try {
            Stored stored = plain.size() == 0 ? null : copied(path, plain, uploads);
            FileInfo now = store.stat(path);
            if (now == null || !store.token(now).equals(token)) {
                return; // it was overwritten or deleted while it was copied
            }
            committer.commit(path, named, (base, attempt) -> {
                if (base.header() == null || base.header().version != claim.version
                        || !base.header().commits.equals(claim.commits)) {
                    return null;
                }
                Header next = Transitions.create(base.header(), UUID.randomUUID().toString(), Header.Policy.DEFAULT,
                        System.currentTimeMillis(), new Adopted(token, plain.modifiedMs()));
                next.entries = stored == null ? List.of() : List.of(uploads.young(stored).chunk(0));
                next.unknown = List.of("origin " + next.segment + " " + Words.formatTime(plain.modifiedMs()));
                return next;
            });
        } finally {
            uploads.discard(named);
        }
    }

    private Stored copied(String path, FileInfo plain, Uploads uploads) throws IOException {
        Moment began = Moment.now();
        String name = Names.newChunkName(0);
        long size;
        try (InputStream source = store.openPlain(plain, null); OutputStream target = uploads.open(name)) {
            size = source.transferTo(target);
        }
        return uploads.keep(new Stored(name, size, null, plain.modifiedMs(), began));
    }
}
