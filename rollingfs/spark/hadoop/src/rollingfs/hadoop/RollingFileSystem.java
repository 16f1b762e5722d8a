package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.impl.AbstractFSBuilderImpl;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.LambdaUtils;
import org.apache.hadoop.util.Progressable;
import rollingfs.hadoop.backend.DiskStore;
import rollingfs.hadoop.backend.ObjectStore;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.format.Header;
import rollingfs.hadoop.format.Names;
import rollingfs.hadoop.read.IndexPages;
import rollingfs.hadoop.read.Opened;
import rollingfs.hadoop.read.SegmentInput;
import rollingfs.hadoop.read.Snapshot;

/**
 * Segments as files, over another Hadoop filesystem: {@code rolling+s3://bucket/x} over {@code s3a://bucket/x},
 * {@code rolling+file:///x} over the local disk, {@code rolling+X} and {@code rollingX} over {@code X}.
 *
 * <p>It reads and lists segments. It creates, renames and deletes plain files as the filesystem below does. It refuses
 * a call that would change a segment before anything is touched: only rollingfs in Python commits.
 */
public class RollingFileSystem extends FileSystem {
    private static final String SCHEME_PREFIX = "rolling";
    private static final String AZURE = ", org.apache.hadoop:hadoop-azure of the version of Spark's Hadoop";
    private static final Map<String, String> CONNECTORS = Map.of("abfs", AZURE, "abfss", AZURE,
            "gs", ", com.google.cloud.bigdataoss:gcs-connector",
            "s3a", ", org.apache.hadoop:hadoop-aws of the version of Spark's Hadoop");
    private URI uri;
    private Store store;
    private IndexPages pages;
    private Folders folders;
    private final Opened opened = new Opened();
    private Path workingDirectory;

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        String scheme = name.getScheme();
        if (scheme == null || !scheme.startsWith(SCHEME_PREFIX)) {
            throw new IOException(name + " is no URL of rollingfs: write rolling+s3://bucket/key or"
                    + " rolling+file:///folder/name");
        }
        setConf(conf);
        String below = scheme.substring(SCHEME_PREFIX.length()).replaceFirst("^\\+", "");
        uri = URI.create(below.equals("file") ? scheme + ":///" : scheme + "://" + name.getAuthority());
        store = storeOf(below, name, conf);
        pages = new IndexPages(store);
        folders = new Folders(store, this::ours);
        workingDirectory = wrap(store.fs.getWorkingDirectory());
    }

    /** The store of a URL; {@code below} is its scheme without the prefix. */
    Store storeOf(String below, URI name, Configuration conf) throws IOException {
        if (below.equals("file")) {
            FileSystem raw = new RawLocalFileSystem(); // LocalFileSystem would compare stale .crc files
            raw.initialize(URI.create("file:///"), conf);
            return new DiskStore(raw);
        }
        if (name.getAuthority() == null) {
            throw new IOException(name + " names no bucket: write " + name.getScheme() + "://bucket/key");
        }
        URI root = URI.create((below.equals("s3") ? "s3a" : below) + "://" + name.getAuthority());
        try {
            return new ObjectStore(FileSystem.get(root, conf));
        } catch (UnsupportedFileSystemException | RuntimeException missing) {
            if (missing instanceof RuntimeException && !(missing.getCause() instanceof ClassNotFoundException)) {
                throw missing;
            }
            throw new IOException(name + " cannot be opened: this Spark has no filesystem for " + root.getScheme()
                    + "://, over which it lies: add its connector to spark.jars.packages"
                    + CONNECTORS.getOrDefault(root.getScheme(), ""), missing);
        }
    }

    // -- names -----------------------------------------------------------------------------------------------

    @Override
    public String getScheme() {
        return uri.getScheme();
    }

    @Override
    public URI getUri() {
        return uri;
    }

    /** The path of the store for one of ours. */
    private String own(Path path) {
        Path absolute = path.isAbsolute() ? path : new Path(workingDirectory, path);
        checkPath(absolute);
        String key = absolute.toUri().getPath();
        if (store.hasFolders()) {
            return key;
        }
        return key.equals("/") ? uri.getAuthority() : uri.getAuthority() + key;
    }

    /** Our path for one of the store. */
    private Path ours(String path) {
        String key = store.hasFolders() ? path : path.substring(uri.getAuthority().length());
        return new Path(uri.getScheme(), uri.getAuthority(), key.isEmpty() ? "/" : key);
    }

    private Path wrap(Path below) {
        return new Path(uri.getScheme(), uri.getAuthority(), below.toUri().getPath());
    }

    private Path below(String path) {
        return store.hadoopPath(path);
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    public void setWorkingDirectory(Path path) {
        workingDirectory = path.isAbsolute() ? path : new Path(workingDirectory, path);
    }

    @Override
    public Path getHomeDirectory() {
        return wrap(store.fs.getHomeDirectory());
    }

    private static void checkName(String path) throws IOException {
        if (Names.isReserved(path) || Names.baseName(path).equals(Names.LISTING_NAME)) {
            throw new IOException(path + " is no name for a file or folder: '$header' at the end, '$chunks' anywhere "
                    + "and the names '$removed' and '$listing' are reserved; nothing was changed: choose another name");
        }
    }

    // -- reading ---------------------------------------------------------------------------------------------

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        return open(path, null);
    }

    @Override
    protected CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters how)
            throws IOException {
        AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(how.getMandatoryKeys(),
                OpenFileOptions.FS_OPTION_OPENFILE_STANDARD_OPTIONS, "for " + path);
        return LambdaUtils.eval(new CompletableFuture<>(), () -> open(path, how));
    }

    private FSDataInputStream open(Path path, OpenFileParameters how) throws IOException {
        String own = own(path);
        Snapshot found = Snapshot.take(store, own);
        if (found.header() != null) {
            opened.check(own, found.header(), how);
            return new FSDataInputStream(new SegmentInput(store, pages, own, found.header(), how));
        }
        if (!found.isFile()) {
            throw new FileNotFoundException(path + (found.isNothing() ? " does not exist" : " is a folder"));
        }
        return store.openPlain(found.plain(), how);
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        String own = own(path);
        FileStatus output = folders.scratch.outputStatus(own);
        if (output != null) {
            return output;
        }
        Snapshot found = folders.scratch.look(own);
        if (found.isNothing() || (found.isFolder() && !folders.isAlive(own))) {
            throw missing(path);
        }
        return folders.status(own, found);
    }

    private static FileNotFoundException missing(Path path) {
        return new FileNotFoundException("No such segment, file or folder: " + path);
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        String own = own(path);
        if (!store.hasFolders() && !Names.isReserved(own)) {
            FileStatus[] found = folders.listAtOnce(own);
            if (found != null) {
                return found;
            }
        }
        Snapshot found = Snapshot.take(store, own);
        if (found.isFile()) {
            return new FileStatus[] {folders.status(own, found)};
        }
        if (found.isNothing()) {
            throw missing(path);
        }
        return folders.list(own, store.list(own));
    }

    @Override
    public long getDefaultBlockSize(Path path) {
        return store.fs.getDefaultBlockSize(below(own(path)));
    }

    @Override
    public FsServerDefaults getServerDefaults(Path path) throws IOException {
        return store.fs.getServerDefaults(below(own(path)));
    }

    @Override
    public FsStatus getStatus(Path path) throws IOException {
        return store.fs.getStatus(path == null ? null : below(own(path)));
    }

    // -- writing ---------------------------------------------------------------------------------------------

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        String own = own(path);
        checkName(own);
        Header header = folders.scratch.holds(own) ? null : Snapshot.header(store, own, null);
        if (header != null && !header.deleted()) {
            Path shown = ours(own);
            String text = Refusal.ofSegment(shown, header,
                    Refusal.command("rm", shown) + " first, or " + Refusal.command("append", shown));
            throw overwrite ? new RollingException.Refused(text) : new FileAlreadyExistsException(text);
        }
        boolean isDead = header != null && header.adopted != null && Snapshot.take(store, own).isDead();
        if (overwrite || isDead) {
            store.clear(own);
        }
        folders.unmark(Names.parent(own));
        // without a permission: with one, the local filesystem forks a process for each file
        return store.fs.create(below(own), overwrite || isDead, bufferSize, replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferSize, short replication, long blockSize, Progressable progress) throws IOException {
        Path parent = path.getParent();
        if (parent != null && !getFileStatus(parent).isDirectory()) {
            throw new org.apache.hadoop.fs.ParentNotDirectoryException(parent + " is not a folder");
        }
        return create(path, permission, flags.contains(CreateFlag.OVERWRITE), bufferSize, replication, blockSize,
                progress);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
        String own = own(path);
        checkName(own);
        Snapshot found = Snapshot.take(store, own);
        if (!found.isFile()) {
            throw new FileNotFoundException(path + (found.isNothing() ? " does not exist" : " is a folder"));
        }
        Path shown = ours(own);
        throw new RollingException.Refused(found.header() == null ? Refusal.ofAppend(shown)
                : Refusal.ofSegment(shown, found.header(), Refusal.command("append", shown)));
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        String own = own(path);
        checkName(own);
        if (folders.scratch.holds(own)) {
            folders.scratch.expectOutput(own);
            return store.fs.mkdirs(below(own));
        }
        Snapshot found = Snapshot.takeLikelyPlain(store, own);
        if (found.header() != null) {
            throw new FileAlreadyExistsException(Refusal.ofSegment(ours(own), found.header(),
                    Refusal.command("rm", ours(own)) + " first"));
        }
        if (found.isFile()) {
            throw new FileAlreadyExistsException(path + " is a file, so no folder was made");
        }
        boolean isMade = store.fs.mkdirs(below(own));
        folders.unmark(own);
        return isMade;
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        checkName(own(source));
        checkName(own(target));
        return folders.rename(own(source), own(target));
    }

    /** Refuse what {@link #rename} refuses, before a caller deletes the target. */
    void checkRename(Path source, Path target) throws IOException {
        checkName(own(source));
        checkName(own(target));
        folders.checkRename(own(source), own(target));
    }

    @Override
    @Deprecated
    protected void rename(Path source, Path target, Rename... options) throws IOException {
        if (List.of(options).contains(Rename.OVERWRITE)) {
            checkRename(source, target);
        }
        super.rename(source, target, options);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        return folders.delete(own(path), recursive);
    }

    // -- attributes: those of a segment are not set ----------------------------------------------------------

    /** Whether a plain file or a folder is at a path, whose attributes the filesystem below sets. */
    private boolean isPlain(Path path) throws IOException {
        Snapshot found = Snapshot.take(store, own(path));
        if (found.isNothing()) {
            throw missing(path);
        }
        return found.header() == null;
    }

    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (isPlain(path)) {
            store.fs.setPermission(below(own(path)), permission);
        }
    }

    @Override
    public void setOwner(Path path, String user, String group) throws IOException {
        if (isPlain(path)) {
            store.fs.setOwner(below(own(path)), user, group);
        }
    }

    @Override
    public void setTimes(Path path, long modified, long accessed) throws IOException {
        if (isPlain(path)) {
            store.fs.setTimes(below(own(path)), modified, accessed);
        }
    }
}
