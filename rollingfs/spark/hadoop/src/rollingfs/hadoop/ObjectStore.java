package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.AccessDeniedException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.functional.FutureIO;
import rollingfs.hadoop.Header.Adopted;

/**
 * Any other Hadoop filesystem: read freely, written by header where it can create and replace conditionally (S3A).
 *
 * <p>The token of an object is its ETag.
 */
final class ObjectStore extends Store {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final String CONDITIONAL_ETAG = CONDITIONAL + ".etag";
    private static final String NO_PROBES = "fs.s3a.create.performance";
    private static final int FAILURES_MAX = 4;

    ObjectStore(FileSystem fs) {
        super(fs);
    }

    @Override
    Path hadoopPath(String path) {
        int slash = path.indexOf('/');
        String authority = slash < 0 ? path : path.substring(0, slash);
        return new Path(fs.getUri().getScheme(), authority, slash < 0 ? "/" : path.substring(slash));
    }

    /** The filesystem of a path: a reference may lead into another bucket. */
    private FileSystem fsOf(Path path) throws IOException {
        String authority = path.toUri().getAuthority();
        return authority.equals(fs.getUri().getAuthority()) ? fs : path.getFileSystem(fs.getConf());
    }

    private String ownPath(Path path) {
        String authority = path.toUri().getAuthority();
        String key = path.toUri().getPath();
        return key.equals("/") ? authority : authority + key;
    }

    @Override
    boolean hasFolders() {
        return false;
    }

    @Override
    boolean hasUploads() {
        return true;
    }

    // -- reading ---------------------------------------------------------------------------------------------

    @Override
    FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException {
        FutureDataInputStreamBuilder builder = reading(hadoopPath(path), how);
        builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, Long.toString(length)); // may spare a HEAD request
        return FutureIO.awaitFuture(builder.build());
    }

    /** With the status, which has the ETag: without it, S3A's stream may answer from a cache of what was there before. */
    @Override
    FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException {
        return FutureIO.awaitFuture(reading(hadoopPath(plain.path()), how).withFileStatus(plain.status()).build());
    }

    private FutureDataInputStreamBuilder reading(Path file, OpenFileParameters how) throws IOException {
        FutureDataInputStreamBuilder builder = fsOf(file).openFile(file);
        String policy = how == null ? null : how.getOptions().get(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY);
        if (policy != null) {
            builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, policy);
        }
        return builder;
    }

    private FileStatus status(String path) throws IOException {
        try {
            Path file = hadoopPath(path);
            return fsOf(file).getFileStatus(file);
        } catch (FileNotFoundException gone) {
            return null;
        }
    }

    @Override
    FileInfo stat(String path) throws IOException {
        FileStatus found = status(path);
        return found == null ? null : info(path, found);
    }

    private static FileInfo info(String path, FileStatus found) {
        return new FileInfo(path, found.isDirectory() ? 0 : found.getLen(), found.getModificationTime(),
                found.isDirectory(), null, found);
    }

    private static String etag(FileStatus found) {
        return found instanceof EtagSource source ? source.getEtag() : null;
    }

    @Override
    Listing list(String folder) throws IOException {
        List<FileInfo> visible = new ArrayList<>();
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean isRemoved = false;
        FileStatus[] entries = fs.listStatus(hadoopPath(folder));
        for (FileStatus entry : entries) {
            String path = ownPath(entry.getPath());
            String name = entry.getPath().getName();
            if (name.endsWith(Names.HEADER_SUFFIX) && !name.contains(Names.CHUNKS_SUFFIX)) {
                headers.put(Names.segmentOfHeader(path), entry);
            } else if (name.equals(Names.REMOVED_NAME)) {
                isRemoved = true;
            } else if (!Names.isHidden(name)) {
                visible.add(info(path, entry));
            }
        }
        return new Listing(visible, headers, isRemoved, entries.length == 0);
    }

    @Override
    boolean holdsSegments(String folder) throws IOException {
        Path top = hadoopPath(folder);
        int depth = top.depth();
        for (RemoteIterator<LocatedFileStatus> files = fs.listFiles(top, true); files.hasNext();) {
            for (Path path = files.next().getPath(); path.depth() > depth; path = path.getParent()) {
                if (Names.isHidden(path.getName())) {
                    return true;
                }
            }
        }
        return false;
    }

    @Override
    byte[] readWhole(String path, FileStatus known) throws IOException {
        FileStatus found = known;
        if (found == null) {
            Path file = hadoopPath(path);
            try {
                return readAll(fsOf(file).open(file)); // one request less than with a status, if it is missing
            } catch (FileNotFoundException gone) {
                return null;
            } catch (IOException changed) {
                found = status(path);
            }
        }
        Blob read = readUnchanged(path, found);
        return read == null ? null : read.data();
    }

    private FSDataInputStream open(FileStatus known) throws IOException {
        return FutureIO.awaitFuture(fsOf(known.getPath()).openFile(known.getPath()).withFileStatus(known).build());
    }

    @Override
    Blob read(String path) throws IOException {
        return readUnchanged(path, status(path));
    }

    /**
     * The content that belongs to an ETag: S3A asks for the status, then reads on condition of the ETag that it has.
     *
     * <p>Others may replace it in between, again and again, and each time it is read anew; what fails although it is
     * still the same fails for another reason.
     */
    private Blob readUnchanged(String path, FileStatus known) throws IOException {
        FileStatus found = known;
        for (int failures = 0; found != null && !found.isDirectory();) {
            try {
                byte[] data = found.getLen() == 0 ? new byte[0] : readAll(open(found));
                return new Blob(data, etag(found));
            } catch (IOException error) {
                FileStatus now = status(path);
                if (now != null && Objects.equals(etag(now), etag(found)) && ++failures == FAILURES_MAX) {
                    throw error;
                }
                found = now;
            }
        }
        return null;
    }

    @Override
    String token(FileInfo plain) {
        String etag = etag(plain.status());
        return etag == null ? "" : etag;
    }

    /** Dates are compared by the second: that is all that a HEAD request tells. */
    @Override
    boolean isNamed(Adopted adopted, FileInfo plain) {
        return adopted.token().equals(token(plain)) && adopted.modifiedMs() / 1000 == plain.modifiedMs() / 1000;
    }

    // -- writing ---------------------------------------------------------------------------------------------

    @Override
    void create(String header, byte[] data) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = builder(header);
        builder.must(CONDITIONAL, true);
        write(builder.build(), data);
    }

    @Override
    void replace(String header, byte[] data, String token) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = builder(header);
        builder.must(CONDITIONAL_ETAG, token);
        write(builder.build(), data);
    }

    private FSDataOutputStreamBuilder<?, ?> builder(String path) throws IOException {
        Path file = hadoopPath(path);
        FSDataOutputStreamBuilder<?, ?> builder = fsOf(file).createFile(file);
        builder.create();
        builder.recursive();
        builder.overwrite(true);
        return builder;
    }

    private static void write(FSDataOutputStream stream, byte[] data) throws IOException {
        try {
            stream.write(data);
        } catch (Throwable error) {
            stream.abort(); // to close it would put what was written so far, or nothing, in place of a header
            throw error;
        }
        stream.close();
    }

    @Override
    FSDataOutputStream newFile(String path) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = builder(path);
        builder.opt(NO_PROBES, true);
        return builder.build();
    }

    @Override
    void write(String path, byte[] data) throws IOException {
        write(newFile(path), data);
    }

    @Override
    void delete(String folder, List<String> paths) throws IOException {
        Path base = hadoopPath(folder);
        try (BulkDelete bulk = fsOf(base).createBulkDelete(base)) {
            for (int start = 0; start < paths.size(); start += bulk.pageSize()) {
                List<String> some = paths.subList(start, Math.min(paths.size(), start + bulk.pageSize()));
                List<Map.Entry<Path, String>> failed = bulk.bulkDelete(some.stream().map(this::hadoopPath).toList());
                if (!failed.isEmpty()) {
                    throw new IOException(failed.size() + " files not deleted: " + failed.get(0));
                }
            }
        }
    }

    @Override
    void clear(String path) {
        // an object is replaced whole, never changed in place
    }

    @Override
    boolean isRefusal(IOException error) {
        return error instanceof AccessDeniedException || error instanceof AccessControlException;
    }

    @Override
    public String toString() {
        return fs.getUri().toString();
    }
}
