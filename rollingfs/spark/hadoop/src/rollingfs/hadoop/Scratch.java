package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.backend.Store.FileInfo;
import rollingfs.hadoop.backend.Store.Listing;
import rollingfs.hadoop.backend.Store.Tree;
import rollingfs.hadoop.format.Header;
import rollingfs.hadoop.format.Names;
import rollingfs.hadoop.read.Snapshot;

/**
 * What a job of Spark does to an object store while it writes plain files, with fewer requests.
 *
 * <p>Its committer keeps files below a folder "_temporary" until the job ends. A look at one name there sees no segment.
 * A listing, an open, and the delete or rename of a folder there heed segments as everywhere.
 */
final class Scratch {
    private static final int OUTPUTS_MAX = 1000;
    /** Folders to which jobs of this process write. */
    private final Set<String> outputs = ConcurrentHashMap.newKeySet();
    private final Store store;
    private final Function<String, Path> pathOf;
    private final Folders folders;

    Scratch(Store store, Function<String, Path> pathOf, Folders folders) {
        this.store = store;
        this.pathOf = pathOf;
        this.folders = folders;
    }

    private Path below(String path) {
        return store.hadoopPath(path);
    }

    /** Whether a path of an object store lies below a folder "_temporary". */
    boolean holds(String path) {
        return !store.hasFolders() && Names.isScratch(path);
    }

    /** Remember the folder to which the job of a scratch path writes. It only orders the looks at what is there. */
    void expectOutput(String scratch) {
        if (outputs.size() >= OUTPUTS_MAX) {
            outputs.clear();
        }
        outputs.add(Names.outputOf(scratch));
    }

    /** The status of a folder to which a job writes; null if the folder is none, or not one of those. */
    FileStatus outputStatus(String path) throws IOException {
        if (!outputs.contains(path)) {
            return null;
        }
        Header header = Snapshot.header(store, path, null);
        Listing listing = header != null && !header.deleted() ? null : folders.listing(path);
        if (listing == null || !folders.hasContent(listing)) {
            return null;
        }
        return new FileStatus(0, true, 1, 0, System.currentTimeMillis(), pathOf.apply(path)); // the date as S3A gives it
    }

    /** What is at a path; the likely first. */
    Snapshot look(String path) throws IOException {
        if (holds(path)) {
            return Snapshot.of(store.stat(path));
        }
        boolean isOutput = outputs.contains(Names.parent(path));
        return isOutput ? Snapshot.takeLikelyPlain(store, path) : Snapshot.take(store, path);
    }

    /** Delete a scratch file or folder; false if nothing is there. */
    boolean delete(String path, boolean isRecursive) throws IOException {
        FileInfo found = store.stat(path);
        if (found == null) {
            return false;
        }
        if (found.isFolder() && !folders.checkTree(path, Refusal.command("rm -r", pathOf.apply(path))).isPlain()) {
            folders.deleteFolder(path, isRecursive);
            return true;
        }
        return store.fs.delete(below(path), isRecursive);
    }

    /** Rename what a task wrote, if that is one call of the filesystem below; null if {@link Folders#rename} has to do it. */
    Boolean rename(String source, String target) throws IOException {
        if (holds(target)) {
            try {
                Tree tree = folders.checkTree(source, Refusal.command("mv", pathOf.apply(source), pathOf.apply(target)));
                return tree.isPlain() ? store.fs.rename(below(source), below(target)) : null;
            } catch (FileNotFoundException nothing) {
                return false;
            }
        }
        FileInfo found = store.stat(source);
        if (found == null || found.isFolder()) {
            return found == null ? false : null;
        }
        // if the target is a folder, the file goes into it
        String inside = target + "/" + Names.baseName(source);
        boolean isFree = Snapshot.header(store, target, null) == null && Snapshot.header(store, inside, null) == null;
        return isFree ? store.fs.rename(below(source), below(target)) : null;
    }
}
