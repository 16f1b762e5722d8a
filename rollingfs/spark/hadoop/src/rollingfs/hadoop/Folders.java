package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.util.functional.FutureIO;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.backend.Store.FileInfo;
import rollingfs.hadoop.backend.Store.Listing;
import rollingfs.hadoop.backend.Store.Tree;
import rollingfs.hadoop.format.Header;
import rollingfs.hadoop.format.Names;
import rollingfs.hadoop.read.Snapshot;

/**
 * What lies in folders, and renames and deletes of plain files and folders.
 *
 * <p>What would change a segment, or the rest of a deleted one, is refused before anything is touched. Tombstones
 * outlive their folder: on a disk, one that cannot go for them gets a hidden file that says that it was removed.
 */
final class Folders {
    private static final int READS_AT_ONCE = 16;
    /** Fewer headers than this are not worth other threads on a disk. */
    private static final int READS_ALONE_MAX = 64;
    private static final ThreadFactory DAEMONS = work -> {
        Thread thread = new Thread(work, "rollingfs-headers");
        thread.setDaemon(true);
        return thread;
    };
    private static final ExecutorService READERS = Executors.newFixedThreadPool(READS_AT_ONCE, DAEMONS);
    private final Store store;
    private final Function<String, Path> pathOf;

    Folders(Store store, Function<String, Path> pathOf) {
        this.store = store;
        this.pathOf = pathOf;
    }

    private Path below(String path) {
        return store.hadoopPath(path);
    }

    // -- what is there ---------------------------------------------------------------------------------------

    /** A header that was read for a listing: none (an interrupted create), a header, or why it cannot be read. */
    private record Found(Header header, RollingException.Corrupt error) {
        boolean isLive() {
            return error != null || (header != null && !header.deleted());
        }
    }

    /** A segment's, plain file's or folder's status; a segment has its retained size. */
    FileStatus status(String own, Snapshot found) {
        Path path = pathOf.apply(own);
        FileInfo plain = found.plain();
        if (found.isFolder()) {
            return new FileStatus(0, true, 1, 0, plain.modifiedMs(), 0, plain.mode(), null, null, path);
        }
        long block = store.fs.getDefaultBlockSize(below(own));
        if (found.header() != null) {
            Header header = found.header();
            return new FileStatus(header.size(), false, 1, block, header.modifiedMs, 0, null, null, null, path);
        }
        return new FileStatus(plain.size(), false, 1, block, plain.modifiedMs(), 0, plain.mode(), null, null, path);
    }

    /**
     * The status of a segment whose header cannot be read, so that its neighbours can be listed.
     *
     * <p>It has the size of the header file: were it empty, Spark would pass over it in silence. To ask for its
     * status by name, or to read it, gives the error.
     */
    private FileStatus unreadable(String own) throws IOException {
        FileInfo header = store.stat(Names.headerPath(own));
        long size = header == null ? 1 : header.size();
        long date = header == null ? 0 : header.modifiedMs();
        return new FileStatus(size, false, 1, store.fs.getDefaultBlockSize(below(own)), date, pathOf.apply(own));
    }

    /**
     * The statuses of what lies in a folder.
     *
     * <p>On an object store it also shows folders with nothing but tombstones in them: they list as empty, and to look
     * into each would double the requests for a table with many partitions.
     */
    FileStatus[] list(String folder) throws IOException {
        Listing listing = store.list(folder);
        Map<String, Found> headers = read(listing.headers());
        List<FileStatus> found = new ArrayList<>();
        for (String path : listing.headers().keySet()) {
            Found header = headers.get(path);
            if (header.isLive() && !Names.isLedger(path)) {
                found.add(header.error() != null ? unreadable(path) : status(path, Snapshot.of(header.header())));
            }
        }
        for (FileInfo info : listing.visible()) {
            boolean isGone = info.isFolder() && isMarked(info.path()) && !isAlive(info.path());
            if (!isHidden(info, headers) && !isGone) {
                found.add(status(info.path(), Snapshot.of(info)));
            }
        }
        if (found.isEmpty() && listing.isRemoved() && store.hasFolders()) {
            throw new FileNotFoundException("No such folder: " + folder);
        }
        return found.toArray(FileStatus[]::new);
    }

    private boolean isHidden(FileInfo info, Map<String, Found> headers) throws IOException {
        Found header = headers.get(info.path());
        return header != null && (header.isLive() || Snapshot.isHidden(store, header.header(), info));
    }

    /** Read the headers of a listing, several at a time. */
    private Map<String, Found> read(Map<String, FileStatus> headers) throws IOException {
        boolean isAlone = store.hasFolders() && headers.size() <= READS_ALONE_MAX;
        Map<String, Found> found = new HashMap<>();
        Map<String, Future<Found>> reads = new HashMap<>();
        for (Map.Entry<String, FileStatus> entry : headers.entrySet()) {
            if (isAlone) {
                found.put(entry.getKey(), read(entry.getKey(), entry.getValue()));
            } else {
                Callable<Found> one = () -> read(entry.getKey(), entry.getValue());
                reads.put(entry.getKey(), READERS.submit(one));
            }
        }
        for (Map.Entry<String, Future<Found>> entry : reads.entrySet()) {
            found.put(entry.getKey(), FutureIO.awaitFuture(entry.getValue()));
        }
        return found;
    }

    private Found read(String path, FileStatus known) throws IOException {
        try {
            return new Found(Snapshot.header(store, path, known), null);
        } catch (RollingException.Corrupt error) {
            return new Found(null, error);
        }
    }

    /** Whether a folder that the store shows exists for users: it may hold nothing but tombstones. */
    boolean isAlive(String folder) throws IOException {
        if (Names.isTop(folder) || (store.hasFolders() && !isMarked(folder))) {
            return true;
        }
        Listing listing = store.list(folder);
        return listing.isEmpty() || hasContent(listing);
    }

    private boolean hasContent(Listing listing) throws IOException {
        Map<String, Found> headers = read(listing.headers());
        for (FileInfo info : listing.visible()) {
            if (info.isFolder() ? isAlive(info.path()) : !isHidden(info, headers)) {
                return true;
            }
        }
        return headers.entrySet().stream()
                .anyMatch(entry -> !Names.isLedger(entry.getKey()) && entry.getValue().isLive());
    }

    private static String removedPath(String folder) {
        return (folder.endsWith("/") ? folder : folder + "/") + Names.REMOVED_NAME;
    }

    private boolean isMarked(String folder) throws IOException {
        return store.hasFolders() && store.stat(removedPath(folder)) != null;
    }

    /** Let a folder and those above it exist, though they may have been removed before. */
    void unmark(String folder) throws IOException {
        for (; store.hasFolders() && !folder.equals("/"); folder = Names.parent(folder)) {
            if (isMarked(folder)) {
                store.fs.delete(below(removedPath(folder)), false);
            }
        }
    }

    // -- refusing --------------------------------------------------------------------------------------------

    /** Refuse what would change the segments below a folder; the ledger of a stream is one. */
    private Tree checkTree(String folder, String advice) throws IOException {
        Tree tree = store.tree(folder);
        Map<String, Found> headers = read(tree.headers());
        List<Path> live = tree.headers().keySet().stream().filter(path -> headers.get(path).isLive()).map(pathOf)
                .toList();
        if (!live.isEmpty()) {
            throw new RollingException.Refused(Refusal.ofFolder(pathOf.apply(folder), live, advice));
        }
        return tree;
    }

    /** Refuse a rename that would change a segment. */
    private Tree checkRename(String source, Snapshot from, String target, Snapshot to) throws IOException {
        String move = Refusal.command("mv", pathOf.apply(source), pathOf.apply(target));
        if (from.header() != null) {
            throw new RollingException.Refused(Refusal.ofSegment(pathOf.apply(source), from.header(), move));
        }
        if (to.header() != null) {
            String advice = Refusal.command("rm", pathOf.apply(target)) + " first";
            throw new RollingException.Refused(Refusal.ofSegment(pathOf.apply(target), to.header(), advice));
        }
        return from.isFolder() ? checkTree(source, move) : null;
    }

    /** Refuse a rename that would change a segment, for who deletes the target before it renames. */
    void checkRename(String source, String target) throws IOException {
        checkRename(source, Snapshot.take(store, source), target, Snapshot.take(store, target));
    }

    // -- deleting --------------------------------------------------------------------------------------------

    /** Delete a plain file or a folder without segments; false if there is nothing. */
    boolean delete(String path, boolean isRecursive) throws IOException {
        Snapshot found = Snapshot.take(store, path);
        if (found.isNothing() || (found.isFolder() && !isAlive(path))) {
            return false;
        }
        if (found.header() != null) {
            throw new RollingException.Refused(Refusal.ofSegment(pathOf.apply(path), found.header(),
                    Refusal.command("rm", pathOf.apply(path))));
        }
        if (found.isFile()) {
            unmark(Names.parent(path));
            deletePlain(path);
            return true;
        }
        if (!isRecursive && hasContent(store.list(path))) {
            throw new PathIsNotEmptyDirectoryException(path);
        }
        Tree tree = checkTree(path, Refusal.command("rm -r", pathOf.apply(path)));
        unmark(Names.parent(path));
        if (tree.isPlain()) {
            return store.fs.delete(below(path), true);
        }
        deleteFolder(path);
        return true;
    }

    /** Delete a plain file, and say so if somebody has made a segment of it meanwhile. */
    private void deletePlain(String path) throws IOException {
        store.fs.delete(below(path), false);
        Header now = Snapshot.header(store, path, null);
        if (now != null && !now.deleted()) {
            Path shown = pathOf.apply(path);
            throw new RollingException(Refusal.url(shown) + ": the plain file is deleted, but another program has made a "
                    + "segment of its bytes meanwhile, which is there: use " + Refusal.command("rm", shown));
        }
    }

    /** Delete the plain files of a folder in which the rest of deleted segments has to stay. */
    private void deleteFolder(String folder) throws IOException {
        Listing listing = store.list(folder);
        Map<String, Found> headers = read(listing.headers());
        for (FileInfo info : listing.visible()) {
            if (info.isFolder()) {
                deleteFolder(info.path());
            } else if (!isHidden(info, headers)) {
                store.fs.delete(below(info.path()), false);
            }
        }
        removeIfEmpty(folder);
    }

    /** Remove a folder whose content is deleted, or mark it as removed. */
    private void removeIfEmpty(String folder) throws IOException {
        if (!store.hasFolders()) {
            return; // it is there as long as something is in it
        }
        if (store.list(folder).isEmpty()) {
            store.fs.delete(below(folder), false);
        } else if (!isMarked(folder)) {
            store.fs.create(below(removedPath(folder)), false).close();
        }
    }

    // -- renaming --------------------------------------------------------------------------------------------

    /** Give a plain file or a folder without segments another name; false if it is missing or the name is taken. */
    boolean rename(String source, String target) throws IOException {
        Snapshot from = Snapshot.take(store, source);
        if (from.isNothing() || (from.isFolder() && !isAlive(source))) {
            return false;
        }
        Snapshot to = Snapshot.take(store, target);
        if (to.isFolder() && isAlive(target)) {
            target = target + (target.endsWith("/") ? "" : "/") + Names.baseName(source);
            to = Snapshot.take(store, target);
        }
        if (source.equals(target)) {
            return from.isFile();
        }
        if ((from.isFolder() && target.startsWith(source + "/"))) {
            return false;
        }
        Tree tree = checkRename(source, from, target, to);
        if (!hasParent(target)) {
            return false;
        }
        if (to.isDead()) {
            store.fs.delete(below(target), false);
        }
        if (tree != null && (!tree.isPlain() || (to.isFolder() && !isAlive(target)))) {
            unmark(Names.parent(source));
            moveFolder(source, target);
            return true;
        }
        return store.fs.rename(below(source), below(target));
    }

    private boolean hasParent(String target) throws IOException {
        String parent = Names.parent(target);
        return !store.hasFolders() || (Snapshot.take(store, parent).isFolder() && isAlive(parent));
    }

    /** File by file, because the rest of deleted segments stays; a move that is broken off may be called again. */
    private void moveFolder(String source, String target) throws IOException {
        store.fs.mkdirs(below(target));
        unmark(target);
        Listing listing = store.list(source);
        Map<String, Found> headers = read(listing.headers());
        for (FileInfo info : listing.visible()) {
            String to = target + info.path().substring(source.length());
            if (info.isFolder() && (store.stat(to) != null || !store.tree(info.path()).isPlain())) {
                moveFolder(info.path(), to);
            } else if ((info.isFolder() || !isHidden(info, headers))
                    && !store.fs.rename(below(info.path()), below(to))) {
                throw new IOException("cannot rename " + info.path() + " to " + to);
            }
        }
        removeIfEmpty(source);
    }
}
