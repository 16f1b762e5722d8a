package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.function.BiFunction;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.util.functional.FutureIO;
import rollingfs.hadoop.Segments.View;
import rollingfs.hadoop.Store.FileInfo;
import rollingfs.hadoop.Store.Listing;

/**
 * What lies in folders, and renames and deletes of segments, plain files and folders.
 *
 * <p>Plain files and folders without segments are left to the filesystem below. Tombstones outlive their folder: on a
 * disk, one that cannot go for them gets a hidden file that says that it was removed.
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
    private final Segments segments;
    private final Store store;
    private final Renames renames;
    private final BiFunction<String, View, FileStatus> statusOf;

    Folders(Segments segments, BiFunction<String, View, FileStatus> statusOf) {
        this.segments = segments;
        this.store = segments.store;
        this.renames = new Renames(segments);
        this.statusOf = statusOf;
    }

    private Path below(String path) {
        return store.hadoopPath(path);
    }

    // -- what is there ---------------------------------------------------------------------------------------

    /**
     * The statuses of what lies in a folder.
     *
     * <p>On an object store it also shows folders with nothing but tombstones in them: they list as empty, and to look
     * into each would double the requests for a table with many partitions.
     */
    FileStatus[] list(String folder) throws IOException {
        Listing listing = store.list(folder);
        List<View> headers = headersOf(listing);
        List<FileStatus> found = new ArrayList<>();
        int index = 0;
        for (String path : listing.headers().keySet()) {
            View view = headers.get(index++);
            if (view.header() != null && !view.header().deleted() && !Names.isLedger(path)) {
                found.add(statusOf.apply(path, view));
            }
        }
        Map<String, View> byPath = zip(listing, headers);
        for (FileInfo info : listing.visible()) {
            View view = byPath.get(info.path());
            Header header = view == null ? null : view.header();
            boolean isHidden = header != null && (!header.deleted() || segments.isShadowed(header, info));
            if (!isHidden && !(info.isFolder() && isMarked(info.path()) && !isAlive(info.path()))) {
                found.add(statusOf.apply(info.path(), new View(null, info)));
            }
        }
        if (found.isEmpty() && listing.isRemoved() && store.hasFolders()) {
            throw new FileNotFoundException("No such folder: " + folder);
        }
        return found.toArray(FileStatus[]::new);
    }

    private static Map<String, View> zip(Listing listing, List<View> views) {
        Map<String, View> byPath = new java.util.HashMap<>();
        int index = 0;
        for (String path : listing.headers().keySet()) {
            byPath.put(path, views.get(index++));
        }
        return byPath;
    }

    /** The headers of a listing, in its order, several read at a time. */
    private List<View> headersOf(Listing listing) throws IOException {
        List<View> found = new ArrayList<>();
        if (store.hasFolders() && listing.headers().size() <= READS_ALONE_MAX) {
            for (Map.Entry<String, FileStatus> entry : listing.headers().entrySet()) {
                found.add(new View(segments.header(entry.getKey(), entry.getValue()), null));
            }
            return found;
        }
        List<Future<View>> reads = new ArrayList<>();
        for (Map.Entry<String, FileStatus> entry : listing.headers().entrySet()) {
            reads.add(READERS.submit(() -> new View(segments.header(entry.getKey(), entry.getValue()), null)));
        }
        for (Future<View> read : reads) {
            found.add(FutureIO.awaitFuture(read));
        }
        return found;
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
        for (FileInfo info : listing.visible()) {
            if (info.isFolder() ? isAlive(info.path()) : isVisible(info, listing)) {
                return true;
            }
        }
        return zip(listing, headersOf(listing)).entrySet().stream().anyMatch(entry -> !Names.isLedger(entry.getKey())
                && entry.getValue().header() != null && !entry.getValue().header().deleted());
    }

    private boolean isVisible(FileInfo info, Listing listing) throws IOException {
        return !listing.headers().containsKey(info.path()) || segments.view(info.path()).isFile();
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
                store.delete(folder, List.of(removedPath(folder)));
            }
        }
    }

    // -- deleting --------------------------------------------------------------------------------------------

    /** Delete a segment, a plain file, or a folder; false if there is nothing. */
    boolean delete(String path, boolean isRecursive) throws IOException {
        View view = segments.view(path);
        if (view.isNothing() || (view.isFolder() && !isAlive(path))) {
            return false;
        }
        if (view.isFile()) {
            unmark(Names.parent(path)); // first: once the segment is gone, nothing may fail any more
            deleteFile(path, view);
            return true;
        }
        if (!isRecursive && hasContent(store.list(path))) {
            throw new PathIsNotEmptyDirectoryException(path);
        }
        unmark(Names.parent(path));
        return deleteFolder(path);
    }

    private void deleteFile(String path, View view) throws IOException {
        if (view.header() != null) {
            segments.delete(path);
        } else {
            segments.deletePlain(path);
        }
    }

    private boolean deleteFolder(String folder) throws IOException {
        if (!store.holdsSegments(folder)) {
            return store.fs.delete(below(folder), true);
        }
        Listing listing = store.list(folder);
        for (String path : listing.headers().keySet()) {
            View view = segments.view(path);
            if (view.header() != null) {
                segments.delete(path);
            }
        }
        for (FileInfo info : listing.visible()) {
            if (info.isFolder()) {
                deleteFolder(info.path());
            } else if (isVisible(info, listing)) {
                store.fs.delete(below(info.path()), false);
            }
        }
        removeIfEmpty(folder);
        return true;
    }

    /** Remove a folder whose content is deleted, or mark it as removed. */
    private void removeIfEmpty(String folder) throws IOException {
        if (!store.hasFolders()) {
            return; // it is there as long as something is in it
        }
        if (store.list(folder).isEmpty()) {
            store.fs.delete(below(folder), false);
        } else if (!isMarked(folder)) {
            try (OutputStream mark = store.newFile(removedPath(folder))) {
                mark.flush();
            }
        }
    }

    // -- renaming --------------------------------------------------------------------------------------------

    /** Give a segment, a plain file or a folder another name; false if it is missing or the name is taken. */
    boolean rename(String source, String target) throws IOException {
        View from = segments.view(source);
        if (from.isNothing() || (from.isFolder() && !isAlive(source))) {
            return false;
        }
        View to = segments.view(target);
        if (to.isFolder() && isAlive(target)) {
            target = target + (target.endsWith("/") ? "" : "/") + Names.baseName(source);
            to = segments.view(target);
        }
        if (source.equals(target)) {
            return from.isFile();
        }
        boolean isTaken = to.header() != null || (to.isFile() && from.header() != null);
        if (isTaken || (from.isFolder() && target.startsWith(source + "/")) || !hasParent(target)) {
            return false;
        }
        if (from.isFolder() && (store.holdsSegments(source) || (to.isFolder() && !isAlive(target)))) {
            unmark(Names.parent(source));
            moveFolder(source, target);
            return true;
        }
        return renameOne(source, target, from);
    }

    private boolean hasParent(String target) throws IOException {
        String parent = Names.parent(target);
        return !store.hasFolders() || (segments.view(parent).isFolder() && isAlive(parent));
    }

    /** A segment by header; anything else as the filesystem below does it. */
    private boolean renameOne(String source, String target, View from) throws IOException {
        if (from.header() != null) {
            unmark(Names.parent(source)); // first: once it is renamed, nothing may fail any more
            renames.rename(source, target);
            return true;
        }
        return store.fs.rename(below(source), below(target));
    }

    /** Each segment moves by itself: a move that is broken off may be called again. */
    private void moveFolder(String source, String target) throws IOException {
        store.fs.mkdirs(below(target));
        unmark(target);
        Listing listing = store.list(source);
        for (String path : listing.headers().keySet()) {
            View view = segments.view(path);
            if (view.header() != null) {
                renames.rename(path, moved(path, source, target));
            }
        }
        for (FileInfo info : listing.visible()) {
            String to = moved(info.path(), source, target);
            if (info.isFolder() && (store.stat(to) != null || store.holdsSegments(info.path()))) {
                moveFolder(info.path(), to);
            } else if ((info.isFolder() || isVisible(info, listing))
                    && !store.fs.rename(below(info.path()), below(to))) {
                throw new IOException("cannot rename " + info.path() + " to " + to);
            }
        }
        removeIfEmpty(source);
    }

    private static String moved(String path, String source, String target) {
        return target + path.substring(source.length());
    }
}
