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
 * Listings of folders, and renames and deletes of plain files and folders.
 *
 * <p>A call that would change a segment is refused before anything is touched. The rest of deleted segments
 * (tombstones, chunks) stays. On a disk, a removed folder that holds such a rest gets a hidden file as a mark.
 */
final class Folders {
    private static final int READS_AT_ONCE = 16;
    /** Maximum number of headers on a disk that one thread reads alone. */
    private static final int READS_ALONE_MAX = 64;
    private static final ThreadFactory DAEMONS = work -> {
        Thread thread = new Thread(work, "rollingfs-headers");
        thread.setDaemon(true);
        return thread;
    };
    private static final ExecutorService READERS = Executors.newFixedThreadPool(READS_AT_ONCE, DAEMONS);
    private final Store store;
    private final Function<String, Path> pathOf;
    final Scratch scratch;

    Folders(Store store, Function<String, Path> pathOf) {
        this.store = store;
        this.pathOf = pathOf;
        scratch = new Scratch(store, pathOf, this);
    }

    private Path below(String path) {
        return store.hadoopPath(path);
    }

    // -- listing ---------------------------------------------------------------------------------------------

    /** A header that was read for a listing, or why it cannot be read; neither for an interrupted create. */
    private record Found(Header header, RollingException.Corrupt error) {
        boolean isLive() {
            return error != null || (header != null && !header.deleted());
        }
    }

    /** The status of a segment, plain file or folder; the size of a segment is that of its retained bytes. */
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
     * <p>Its size is that of the header file, because Spark would silently skip an empty file. The error comes when a
     * caller asks for the status by name, or reads the segment.
     */
    private FileStatus unreadable(String own) throws IOException {
        FileInfo header = store.stat(Names.headerPath(own));
        long size = header == null ? 1 : header.size();
        long date = header == null ? 0 : header.modifiedMs();
        return new FileStatus(size, false, 1, store.fs.getDefaultBlockSize(below(own)), date, pathOf.apply(own));
    }

    /**
     * The statuses of the segments, plain files and folders in a folder.
     *
     * <p>On an object store, folders that hold nothing but tombstones are among them, because a look into each folder
     * would double the requests for a table with many partitions. They list as empty.
     */
    FileStatus[] list(String folder, Listing listing) throws IOException {
        Map<String, Found> headers = read(listing.headers());
        List<FileStatus> found = new ArrayList<>();
        for (String path : listing.headers().keySet()) {
            Found header = headers.get(path);
            if (header.isLive() && !Names.isHiddenSegment(path)) {
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
            throw new FileNotFoundException("no folder is at " + Refusal.url(pathOf.apply(folder)));
        }
        return found.toArray(FileStatus[]::new);
    }

    /** The statuses of a segment, or of what is in a folder of an object store; null for anything else. */
    FileStatus[] listAtOnce(String path) throws IOException {
        Header header = Names.isTop(path) || scratch.holds(path) ? null : Snapshot.header(store, path, null);
        if (header != null && !header.deleted()) {
            return new FileStatus[] {status(path, Snapshot.of(header))};
        }
        Listing listing = listing(path);
        return listing == null ? null : list(path, listing);
    }

    /** The content of a folder of an object store that is not empty; null for anything else. */
    Listing listing(String path) throws IOException {
        try {
            Listing found = store.list(path); // it shows a file as a folder that holds itself
            boolean isFile = found.visible().size() == 1 && found.visible().get(0).path().equals(path);
            return found.isEmpty() || isFile ? null : found;
        } catch (FileNotFoundException nothing) {
            return null;
        }
    }

    private boolean isHidden(FileInfo info, Map<String, Found> headers) throws IOException {
        Found header = headers.get(info.path());
        return header != null && (header.isLive() || Snapshot.isHidden(store, header.header(), info));
    }

    /** Read the headers of a listing; many headers, or those of an object store, several at a time. */
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

    /** Whether a folder that the store shows exists for users: not if it holds nothing but tombstones. */
    boolean isAlive(String folder) throws IOException {
        if (Names.isTop(folder) || scratch.holds(folder) || (store.hasFolders() && !isMarked(folder))) {
            return true;
        }
        Listing listing = store.list(folder);
        return listing.isEmpty() || listing.isKept() || hasContent(listing);
    }

    boolean hasContent(Listing listing) throws IOException {
        Map<String, Found> headers = read(listing.headers());
        for (FileInfo info : listing.visible()) {
            if (info.isFolder() ? isAlive(info.path()) : !isHidden(info, headers)) {
                return true;
            }
        }
        return headers.entrySet().stream()
                .anyMatch(entry -> !Names.isHiddenSegment(entry.getKey()) && entry.getValue().isLive());
    }

    private static String removedPath(String folder) {
        return (folder.endsWith("/") ? folder : folder + "/") + Names.REMOVED_NAME;
    }

    private static String keptPath(String folder) {
        return folder + "/" + Names.KEPT_NAME;
    }

    private boolean isMarked(String folder) throws IOException {
        return store.hasFolders() && store.stat(removedPath(folder)) != null;
    }

    /** Let a folder and those above it exist, also if they are marked as removed. */
    void unmark(String folder) throws IOException {
        for (; store.hasFolders() && !folder.equals("/"); folder = Names.parent(folder)) {
            if (isMarked(folder)) {
                store.fs.delete(below(removedPath(folder)), false);
            }
        }
    }

    // -- refusing --------------------------------------------------------------------------------------------

    /** Refuse a call that would change segments below a folder; the ledger of a stream is a segment, too. */
    Tree checkTree(String folder, String advice) throws IOException {
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

    /** Refuse a rename that would change a segment, before a caller deletes the target. */
    void checkRename(String source, String target) throws IOException {
        checkRename(source, Snapshot.takeLikelyPlain(store, source), target,
                Snapshot.takeLikelyPlain(store, target));
    }

    // -- deleting --------------------------------------------------------------------------------------------

    /** Delete a plain file or a folder without segments; false if nothing is there. */
    boolean delete(String path, boolean isRecursive) throws IOException {
        if (scratch.holds(path)) {
            return scratch.delete(path, isRecursive);
        }
        Snapshot found = Snapshot.takeLikelyPlain(store, path);
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
        if (!isRecursive) {
            checkEmpty(path);
        }
        Tree tree = checkTree(path, Refusal.command("rm -r", pathOf.apply(path)));
        unmark(Names.parent(path));
        if (tree.isPlain() && isRecursive) {
            return store.fs.delete(below(path), true);
        }
        deleteFolder(path, isRecursive);
        return true;
    }

    private void checkEmpty(String folder) throws IOException {
        if (hasContent(store.list(folder))) {
            throw new PathIsNotEmptyDirectoryException(Refusal.url(pathOf.apply(folder)));
        }
    }

    /** Delete a plain file, and fail if another program has made a segment of it meanwhile. */
    private void deletePlain(String path) throws IOException {
        store.fs.delete(below(path), false);
        Header now = Snapshot.header(store, path, null);
        if (now != null && !now.deleted()) {
            Path shown = pathOf.apply(path);
            throw new RollingException(Refusal.url(shown) + ": the plain file is deleted, but another program made a "
                    + "segment of its bytes meanwhile, and the segment is there: use " + Refusal.command("rm", shown));
        }
    }

    /**
     * Delete a folder, but for the rest of deleted segments, which stays.
     *
     * @param isRecursive whether the plain files below it go; else it is empty, and what comes into it meanwhile stays
     */
    void deleteFolder(String folder, boolean isRecursive) throws IOException {
        if (isRecursive) {
            deletePlainFiles(folder);
            return;
        }
        checkEmpty(folder);
        if (store.hasFolders()) {
            removeIfEmpty(folder);
        } else if (store.list(folder).isKept()) {
            store.fs.delete(below(keptPath(folder)), false);
        } else {
            store.removeFolder(folder); // its marker
        }
        if (store.stat(folder) != null) {
            checkEmpty(folder); // another program may have put something there
        }
    }

    private void deletePlainFiles(String folder) throws IOException {
        Listing listing = store.list(folder);
        Map<String, Found> headers = read(listing.headers());
        for (FileInfo info : listing.visible()) {
            if (info.isFolder()) {
                deletePlainFiles(info.path());
            } else if (!isHidden(info, headers)) {
                store.fs.delete(below(info.path()), false);
            }
        }
        if (listing.isKept()) {
            store.fs.delete(below(keptPath(folder)), false);
        }
        removeIfEmpty(folder);
    }

    /** Remove a folder whose content is deleted, or mark it as removed. */
    private void removeIfEmpty(String folder) throws IOException {
        if (!store.hasFolders()) {
            return; // such a folder exists as long as something is in it
        }
        boolean isGone = store.list(folder).isEmpty() && store.removeFolder(folder);
        if (!isGone && !isMarked(folder)) {
            store.fs.create(below(removedPath(folder)), false).close();
        }
    }

    // -- renaming --------------------------------------------------------------------------------------------

    /** Rename a plain file or a folder without segments; false if it is missing, or if the name is taken. */
    boolean rename(String source, String target) throws IOException {
        Boolean done = scratch.holds(source) ? scratch.rename(source, target) : null;
        if (done != null) {
            return done;
        }
        Snapshot from = Snapshot.takeLikelyPlain(store, source);
        if (from.isNothing() || (from.isFolder() && !isAlive(source))) {
            return false;
        }
        Snapshot to = Snapshot.takeLikelyPlain(store, target);
        if (to.isFolder() && isAlive(target)) {
            target = target + (target.endsWith("/") ? "" : "/") + Names.baseName(source);
            to = Snapshot.takeLikelyPlain(store, target);
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

    /** Rename the plain files of a folder one by one, because the rest of deleted segments stays; safe to repeat. */
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
                throw new IOException("cannot rename " + Refusal.url(pathOf.apply(info.path())) + " to "
                        + Refusal.url(pathOf.apply(to)) + "; the files before it are renamed: rename the folder again");
            }
        }
        if (listing.isKept()) { // last, so that the source stays a folder until all else is there
            store.fs.rename(below(keptPath(source)), below(keptPath(target)));
        }
        removeIfEmpty(source);
    }
}
