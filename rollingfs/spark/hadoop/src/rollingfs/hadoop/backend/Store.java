package rollingfs.hadoop.backend;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import rollingfs.hadoop.format.Header.Adopted;
import rollingfs.hadoop.format.Names;

/**
 * The Hadoop filesystem on which segments and plain files lie. It reads; {@link #fs} itself changes plain files.
 *
 * <p>Its paths are "/folder/file" or "bucket/key".
 */
public abstract class Store {
    /** The filesystem below. */
    public final FileSystem fs;
    private final Tiers tiers;

    Store(FileSystem fs) {
        this.fs = fs;
        this.tiers = new Tiers(fs.getConf());
    }

    /** Open a chunk by its path in {@link Names#locate}, which may be in a tier; otherwise as {@link #openChunk}. */
    public FSDataInputStream openFile(String path, OpenFileParameters how, long length) throws IOException {
        String alias = Names.tierOf(path);
        return alias == null ? openChunk(path, how, length)
                : tiers.open(alias, Names.withoutTier(path), how, length);
    }

    /**
     * A plain file or a folder.
     *
     * @param mode null where the store has none
     * @param status its status in the filesystem below; null if that was not asked
     */
    public record FileInfo(String path, long size, long modifiedMs, boolean isFolder, FsPermission mode,
            FileStatus status) {}

    /**
     * The content of a folder.
     *
     * @param visible plain files and folders
     * @param headers the header files, by segment, with their status where it is known (else null)
     * @param isKept whether a bare "$header" lets the folder be there although it is empty, on a store without folders
     * @param isRemoved whether a user removed the folder while the rest of deleted segments had to stay
     * @param isEmpty whether nothing at all is in it
     */
    public record Listing(List<FileInfo> visible, Map<String, FileStatus> headers, boolean isKept, boolean isRemoved,
            boolean isEmpty) {}

    /**
     * The files of rollingfs anywhere below a folder.
     *
     * @param headers the header files, by segment, with their status where it is known (else null)
     * @param isPlain whether there are none, not even the rest of a deleted segment
     */
    public record Tree(Map<String, FileStatus> headers, boolean isPlain) {}

    public abstract Path hadoopPath(String path);

    /** A file or folder; null if there is none. */
    public abstract FileInfo stat(String path) throws IOException;

    /** The content of a folder; {@link java.io.FileNotFoundException} if there is no such folder. */
    public abstract Listing list(String folder) throws IOException;

    /** Remove a folder, and nothing that is in it; false if something is. */
    public boolean removeFolder(String folder) throws IOException {
        try {
            fs.delete(hadoopPath(folder), false);
            return true;
        } catch (PathIsNotEmptyDirectoryException occupied) {
            return false;
        }
    }

    /** The files of rollingfs anywhere below a folder. */
    public abstract Tree tree(String folder) throws IOException;

    /** A whole small file; null if there is none. {@code known} is its status in a listing, or null. */
    public abstract byte[] readWhole(String path, FileStatus known) throws IOException;

    /** Whether folders exist by themselves; else they are prefixes of keys. */
    public abstract boolean hasFolders();

    /** Whether the line of a tombstone names this plain file, by its token and date. */
    public abstract boolean isNamed(Adopted adopted, FileInfo plain) throws IOException;

    /** Remove a plain file before a new one of its name is written, where that would change the old file in place. */
    public abstract void clear(String path) throws IOException;

    /**
     * Open a chunk.
     *
     * @param how the options with which the caller reads; null for none
     * @param length its size. That the file is missing may show only when it is read
     */
    public abstract FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException;

    /** Open a plain file, as it was at its status or later. */
    public abstract FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException;

    /** A header or an index page whole; of a longer file no more than its parser needs to refuse it. */
    static byte[] readAll(InputStream stream, String path) throws IOException {
        try (stream) {
            return stream.readNBytes(Names.readBytesMax(path));
        }
    }
}
