package rollingfs.hadoop.read;

import java.io.IOException;
import org.apache.hadoop.fs.FileStatus;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.backend.Store.FileInfo;
import rollingfs.hadoop.format.Codec;
import rollingfs.hadoop.format.Header;
import rollingfs.hadoop.format.Names;

/**
 * What is at a path: a segment, else a plain file or a folder, else nothing.
 *
 * @param isDead whether a tombstone hides a plain file that still lies at the path, so that nothing is there
 */
public record Snapshot(Header header, FileInfo plain, boolean isDead) {
    private static final Snapshot NOTHING = new Snapshot(null, null, false);

    public static Snapshot of(Header header) {
        return new Snapshot(header, null, false);
    }

    public static Snapshot of(FileInfo plain) {
        return new Snapshot(null, plain, false);
    }

    public boolean isNothing() {
        return header == null && plain == null;
    }

    public boolean isFile() {
        return header != null || (plain != null && !plain.isFolder());
    }

    public boolean isFolder() {
        return header == null && plain != null && plain.isFolder();
    }

    /** The header at a path, also a tombstone; null if there is none. {@code known} is its listed status, or null. */
    public static Header header(Store store, String path, FileStatus known) throws IOException {
        String file = Names.headerPath(path);
        byte[] data = store.readWhole(file, known);
        return data == null ? null : Codec.parse(data, file);
    }

    /** Look at a path: the header, else the plain file or folder, else the header once more. */
    public static Snapshot take(Store store, String path) throws IOException {
        if (Names.isReserved(path)) {
            return NOTHING;
        }
        if (Names.isTop(path)) {
            FileInfo top = store.stat(path);
            return top == null ? NOTHING : of(top);
        }
        Header header = header(store, path, null);
        if (header != null && !header.deleted()) {
            return of(header);
        }
        FileInfo plain = store.stat(path);
        boolean isDead = plain != null && isHidden(store, header, plain);
        if (plain != null && !isDead) {
            return of(plain);
        }
        Header again = header(store, path, null); // another program adopted the file between the two looks
        return again != null && !again.deleted() ? of(again) : new Snapshot(null, null, isDead);
    }

    /**
     * The same for a path at which a segment is not likely: a request less if nothing is there, more for a segment.
     *
     * <p>The plain file first, then the header: who adopts a file makes the header before the file goes.
     */
    public static Snapshot takeLikelyPlain(Store store, String path) throws IOException {
        if (store.hasFolders() || Names.isReserved(path) || Names.isTop(path)) {
            return take(store, path);
        }
        FileInfo plain = store.stat(path);
        Header header = header(store, path, null);
        if (header != null && !header.deleted()) {
            return of(header);
        }
        boolean isDead = plain != null && isHidden(store, header, plain);
        return plain == null || isDead ? new Snapshot(null, null, isDead) : of(plain);
    }

    /** Whether a header hides a plain file: a live one hides any; a tombstone that of its token and date. */
    public static boolean isHidden(Store store, Header header, FileInfo plain) throws IOException {
        if (header == null || plain.isFolder()) {
            return false;
        }
        return !header.deleted() || (header.adopted != null && store.isNamed(header.adopted, plain));
    }
}
