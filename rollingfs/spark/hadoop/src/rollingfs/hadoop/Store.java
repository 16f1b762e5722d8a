package rollingfs.hadoop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import rollingfs.hadoop.Header.Adopted;

/**
 * The few verbs on which segments stand, over a Hadoop filesystem; as Python's backend contract.
 *
 * <p>Paths are the store's own ("/folder/file", "bucket/key"). No answer of {@code create} and {@code replace} but
 * success says whether the write took place.
 */
abstract class Store {
    /** What plain files and folders are the business of. */
    final FileSystem fs;

    Store(FileSystem fs) {
        this.fs = fs;
    }

    /**
     * A plain file or a folder.
     *
     * @param mode null where the store has none
     * @param status what the filesystem below said of it; null if it was not asked
     */
    record FileInfo(String path, long size, long modifiedMs, boolean isFolder, FsPermission mode, FileStatus status) {}

    /** A whole small file, with what {@code replace} takes for this content. */
    record Blob(byte[] data, String token) {}

    /**
     * A folder, sorted by what is in it.
     *
     * @param visible plain files and folders
     * @param headers the header files, by segment, with their status where it is known
     * @param isRemoved whether users removed it although something had to stay
     * @param isEmpty whether nothing at all is in it
     */
    record Listing(List<FileInfo> visible, Map<String, FileStatus> headers, boolean isRemoved, boolean isEmpty) {}

    abstract Path hadoopPath(String path);

    /** A file or folder; null if there is none. */
    abstract FileInfo stat(String path) throws IOException;

    /** What lies in a folder; {@link java.io.FileNotFoundException} if there is none. */
    abstract Listing list(String folder) throws IOException;

    /** Whether anything of a segment lies anywhere below a folder. */
    abstract boolean holdsSegments(String folder) throws IOException;

    /** A whole small file; null if there is none. {@code known} may say what a listing knows of it. */
    abstract byte[] readWhole(String path, FileStatus known) throws IOException;

    /** A whole small file with its token; null if there is none. */
    abstract Blob read(String path) throws IOException;

    /** Write a header if there is none, atomically and durably. */
    abstract void create(String header, byte[] data) throws IOException;

    /** Replace a header if it still has this token, atomically and durably. */
    abstract void replace(String header, byte[] data, String token) throws IOException;

    /** A new file under a name that nobody uses, durable when it is closed; missing folders are made. */
    abstract OutputStream newFile(String path) throws IOException;

    /** A new small file under a name that nobody uses, durable, and seen whole or not at all. */
    abstract void write(String path, byte[] data) throws IOException;

    /** Delete files of one folder; missing ones are no error. */
    abstract void delete(String folder, List<String> paths) throws IOException;

    /** Whether folders exist by themselves, or are but prefixes. */
    abstract boolean hasFolders();

    /** Whether a file can be under way to its name in parts that nobody here can find, to abort them. */
    abstract boolean hasUploads();

    /** Whether an error says that the store will not, so that the same bytes need not be sent again. */
    abstract boolean isRefusal(IOException error);

    /** What identifies the content of a plain file. */
    abstract String token(FileInfo plain) throws IOException;

    /** Whether a tombstone's line means this plain file as it is. */
    abstract boolean isNamed(Adopted adopted, FileInfo plain) throws IOException;

    /** Remove a plain file that is in the way of a new one, where writing would change it in place. */
    abstract void clear(String path) throws IOException;

    /**
     * Open a chunk.
     *
     * @param how what the caller says of how it will read; null for nothing
     * @param length its size; that it is missing may show only when it is read
     */
    abstract FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException;

    /** Open a plain file, as it was when its status was asked for or newer. */
    abstract FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException;

    static byte[] readAll(InputStream stream) throws IOException {
        try (stream; ByteArrayOutputStream data = new ByteArrayOutputStream()) {
            stream.transferTo(data);
            return data.toByteArray();
        }
    }
}
