package rollingfs.hadoop.backend;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import rollingfs.hadoop.format.Header.Adopted;

/**
 * Another Hadoop filesystem, as segments and plain files lie on it. It reads; plain files are changed through
 * {@link #fs} itself.
 *
 * <p>Paths are the store's own ("/folder/file", "bucket/key").
 */
public abstract class Store {
    /** The filesystem below. */
    public final FileSystem fs;

    Store(FileSystem fs) {
        this.fs = fs;
    }

    /**
     * A plain file or a folder.
     *
     * @param mode null where the store has none
     * @param status what the filesystem below said of it; null if it was not asked
     */
    public record FileInfo(String path, long size, long modifiedMs, boolean isFolder, FsPermission mode,
            FileStatus status) {}

    /**
     * A folder, sorted by what is in it.
     *
     * @param visible plain files and folders
     * @param headers the header files, by segment, with their status where it is known (else null)
     * @param isRemoved whether users removed it although something had to stay
     * @param isEmpty whether nothing at all is in it
     */
    public record Listing(List<FileInfo> visible, Map<String, FileStatus> headers, boolean isRemoved,
            boolean isEmpty) {}

    /**
     * All that rollingfs keeps anywhere below a folder.
     *
     * @param headers the header files, by segment, with their status where it is known (else null)
     * @param isPlain whether there is nothing at all of a segment, not even the rest of a deleted one
     */
    public record Tree(Map<String, FileStatus> headers, boolean isPlain) {}

    public abstract Path hadoopPath(String path);

    /** A file or folder; null if there is none. */
    public abstract FileInfo stat(String path) throws IOException;

    /** What lies in a folder; {@link java.io.FileNotFoundException} if there is none. */
    public abstract Listing list(String folder) throws IOException;

    /** What rollingfs keeps anywhere below a folder. */
    public abstract Tree tree(String folder) throws IOException;

    /** A whole small file; null if there is none. {@code known} may say what a listing knows of it. */
    public abstract byte[] readWhole(String path, FileStatus known) throws IOException;

    /** Whether folders exist by themselves, or are but prefixes. */
    public abstract boolean hasFolders();

    /** Whether a tombstone's line means this plain file as it is. */
    public abstract boolean isNamed(Adopted adopted, FileInfo plain) throws IOException;

    /** Remove a plain file that is in the way of a new one, where writing would change it in place. */
    public abstract void clear(String path) throws IOException;

    /**
     * Open a chunk.
     *
     * @param how what the caller says of how it will read; null for nothing
     * @param length its size; that it is missing may show only when it is read
     */
    public abstract FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException;

    /** Open a plain file, as it was when its status was asked for or newer. */
    public abstract FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException;

    static byte[] readAll(InputStream stream) throws IOException {
        try (stream; ByteArrayOutputStream data = new ByteArrayOutputStream()) {
            stream.transferTo(data);
            return data.toByteArray();
        }
    }
}
