package rollingfs.hadoop.backend;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.util.functional.FutureIO;
import rollingfs.hadoop.format.Header.Adopted;
import rollingfs.hadoop.format.Names;

/** A Hadoop filesystem other than the local disk; the token of an object is its ETag. */
public final class ObjectStore extends Store {
    private static final int FAILURES_MAX = 4;

    public ObjectStore(FileSystem fs) {
        super(fs);
    }

    @Override
    public Path hadoopPath(String path) {
        int slash = path.indexOf('/');
        String authority = slash < 0 ? path : path.substring(0, slash);
        return new Path(fs.getUri().getScheme(), authority, slash < 0 ? "/" : path.substring(slash));
    }

    /** The filesystem of a path: a reference can name a file in another bucket. */
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
    public boolean hasFolders() {
        return false;
    }

    // -- reading ---------------------------------------------------------------------------------------------

    @Override
    public FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException {
        FutureDataInputStreamBuilder builder = reading(hadoopPath(path), how);
        builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, Long.toString(length)); // may spare a HEAD request
        return FutureIO.awaitFuture(builder.build());
    }

    /** Pass the status, which has the ETag: without it, S3A may answer with an older file from its cache. */
    @Override
    public FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException {
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
    public FileInfo stat(String path) throws IOException {
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
    public Listing list(String folder) throws IOException {
        List<FileInfo> visible = new ArrayList<>();
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean isKept = false;
        boolean isRemoved = false;
        FileStatus[] entries = fs.listStatus(hadoopPath(folder));
        for (FileStatus entry : entries) {
            String path = ownPath(entry.getPath());
            String name = entry.getPath().getName();
            if (Names.isHeader(name)) {
                headers.put(Names.segmentOfHeader(path), entry);
            } else if (name.equals(Names.KEPT_NAME)) {
                isKept = true;
            } else if (name.equals(Names.REMOVED_NAME)) {
                isRemoved = true;
            } else if (!Names.isHidden(name)) {
                visible.add(info(path, entry));
            }
        }
        return new Listing(visible, headers, isKept, isRemoved, entries.length == 0);
    }

    @Override
    public Tree tree(String folder) throws IOException {
        Path top = hadoopPath(folder);
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean isPlain = true;
        for (RemoteIterator<LocatedFileStatus> files = fs.listFiles(top, true); files.hasNext();) {
            LocatedFileStatus file = files.next();
            boolean isInside = false; // of a chunk folder
            boolean isHidden = false;
            for (Path path = file.getPath(); path.depth() > top.depth(); path = path.getParent()) {
                isInside |= path.getName().contains(Names.CHUNKS_SUFFIX);
                // a bare header is moved and deleted with its folder, as a plain file is
                isHidden |= Names.isHidden(path.getName()) && !path.getName().equals(Names.KEPT_NAME);
            }
            isPlain &= !isHidden;
            if (!isInside && Names.isHeader(file.getPath().getName())) {
                headers.put(Names.segmentOfHeader(ownPath(file.getPath())), file);
            }
        }
        return new Tree(headers, isPlain);
    }

    @Override
    public byte[] readWhole(String path, FileStatus known) throws IOException {
        FileStatus found = known;
        if (found == null) {
            Path file = hadoopPath(path);
            try {
                return readAll(fsOf(file).open(file), path); // a missing file costs one request less than with a status
            } catch (FileNotFoundException gone) {
                return null;
            } catch (IOException changed) {
                found = status(path);
            }
        }
        return readUnchanged(path, found);
    }

    private FSDataInputStream open(FileStatus known) throws IOException {
        return FutureIO.awaitFuture(fsOf(known.getPath()).openFile(known.getPath()).withFileStatus(known).build());
    }

    /**
     * Read a file on condition of its ETag. If another program replaces it meanwhile, read the new one.
     *
     * <p>S3A asks for the status, then reads on condition of the ETag in it. An error while the ETag stays the same has
     * another reason; it is thrown at the fourth time.
     */
    private byte[] readUnchanged(String path, FileStatus known) throws IOException {
        FileStatus found = known;
        for (int failures = 0; found != null && !found.isDirectory();) {
            try {
                return found.getLen() == 0 ? new byte[0] : readAll(open(found), path);
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

    /** Compare dates by the second: a HEAD request tells no more. */
    @Override
    public boolean isNamed(Adopted adopted, FileInfo plain) {
        return adopted.token().equals(Objects.requireNonNullElse(etag(plain.status()), ""))
                && adopted.modifiedMs() / 1000 == plain.modifiedMs() / 1000;
    }

    @Override
    public void clear(String path) {
        // a write replaces an object whole
    }

    @Override
    public String toString() {
        return fs.getUri().toString();
    }
}
