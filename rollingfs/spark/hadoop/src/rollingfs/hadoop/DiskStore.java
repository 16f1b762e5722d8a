package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermission;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import rollingfs.hadoop.Header.Adopted;

/**
 * A local disk: atomic by link and rename, under the lock that Python's writers respect as well.
 *
 * <p>It looks at files itself, because {@code RawLocalFileSystem} forks a process per file to learn permissions.
 */
class DiskStore extends Store {
    private static final String ATTRIBUTES = "unix:ino,mode,size,lastModifiedTime,isDirectory,isRegularFile";
    private static final int TOKEN_HEAD_BYTES = 256;
    private static final int PERMISSIONS = 07777;

    DiskStore(FileSystem raw) {
        super(raw);
    }

    @Override
    Path hadoopPath(String path) {
        return new Path("file", null, path);
    }

    @Override
    boolean hasFolders() {
        return true;
    }

    @Override
    boolean hasUploads() {
        return false;
    }

    // -- reading ---------------------------------------------------------------------------------------------

    @Override
    FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException {
        return fs.open(hadoopPath(path));
    }

    @Override
    FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException {
        return fs.open(hadoopPath(plain.path()));
    }

    @Override
    FileInfo stat(String path) throws IOException {
        Map<String, Object> found = attributes(path);
        return found == null ? null : info(path, found);
    }

    /** What the system says of a file or folder; null if there is none. */
    private static Map<String, Object> attributes(String path) throws IOException {
        return ifThere(path, file -> Files.readAttributes(file, ATTRIBUTES));
    }

    private interface Look<T> {
        T at(java.nio.file.Path file) throws IOException;
    }

    /** What a look at a file gives; null if there is none, also because what should be its folder is a file. */
    private static <T> T ifThere(String path, Look<T> look) throws IOException {
        try {
            return look.at(java.nio.file.Path.of(path));
        } catch (NoSuchFileException gone) {
            return null;
        } catch (java.nio.file.FileSystemException error) {
            if (isBelowFile(path)) {
                return null;
            }
            throw error;
        }
    }

    private static boolean isBelowFile(String path) {
        String above = Names.parent(path);
        while (!above.equals("/") && !Files.exists(java.nio.file.Path.of(above))) {
            above = Names.parent(above);
        }
        return !Files.isDirectory(java.nio.file.Path.of(above));
    }

    private static FileInfo info(String path, Map<String, Object> found) {
        boolean isFolder = (Boolean) found.get("isDirectory");
        long size = isFolder ? 0 : (Long) found.get("size");
        FsPermission mode = new FsPermission((short) ((Integer) found.get("mode") & PERMISSIONS));
        return new FileInfo(path, size, modifiedMs(found), isFolder, mode, null);
    }

    /** The date as Python's headers write it: rounded from the number of seconds that `stat` gives. */
    private static long modifiedMs(Map<String, Object> found) {
        Instant date = ((FileTime) found.get("lastModifiedTime")).toInstant();
        return (long) Math.rint((date.getEpochSecond() + 1e-9 * date.getNano()) * 1000);
    }

    @Override
    Listing list(String folder) throws IOException {
        List<FileInfo> visible = new ArrayList<>();
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean isRemoved = false;
        boolean isEmpty = true;
        String prefix = folder.endsWith("/") ? folder : folder + "/";
        try (DirectoryStream<java.nio.file.Path> entries = Files.newDirectoryStream(java.nio.file.Path.of(folder))) {
            for (java.nio.file.Path entry : entries) {
                isEmpty = false;
                String name = entry.getFileName().toString();
                if (name.endsWith(Names.HEADER_SUFFIX) && !name.contains(Names.CHUNKS_SUFFIX)) {
                    headers.put(Names.segmentOfHeader(prefix + name), null);
                } else if (name.equals(Names.REMOVED_NAME)) {
                    isRemoved = true;
                } else if (!Names.isHidden(name)) {
                    FileInfo found = stat(prefix + name);
                    if (found != null) {
                        visible.add(found);
                    }
                }
            }
        } catch (NoSuchFileException | NotDirectoryException error) {
            throw new FileNotFoundException("No such folder: " + folder);
        }
        visible.sort((one, two) -> one.path().compareTo(two.path()));
        return new Listing(visible, headers, isRemoved, isEmpty);
    }

    @Override
    boolean holdsSegments(String folder) throws IOException {
        try (Stream<java.nio.file.Path> tree = Files.walk(java.nio.file.Path.of(folder))) {
            return tree.anyMatch(path -> path.getFileName() != null && Names.isHidden(path.getFileName().toString()));
        } catch (java.io.UncheckedIOException error) {
            throw error.getCause();
        }
    }

    @Override
    byte[] readWhole(String path, FileStatus known) throws IOException {
        return ifThere(path, Files::readAllBytes);
    }

    @Override
    Blob read(String path) throws IOException {
        while (true) {
            Map<String, Object> before = attributes(path);
            byte[] data = before == null ? null : readWhole(path, null);
            if (before == null || (data != null && before.equals(attributes(path)))) {
                return before == null ? null : new Blob(data, makeToken(before, data));
            }
        }
    }

    @Override
    String token(FileInfo plain) throws IOException {
        java.nio.file.Path file = java.nio.file.Path.of(plain.path());
        while (true) {
            Map<String, Object> before = attributes(plain.path());
            if (before == null) {
                throw Transitions.missing(plain.path());
            }
            byte[] head;
            try (var stream = Files.newInputStream(file)) {
                head = stream.readNBytes(TOKEN_HEAD_BYTES);
            }
            if (before.equals(attributes(plain.path()))) {
                return makeToken(before, head);
            }
        }
    }

    /** What tells one write of a file from every other; the same as Python's. */
    private static String makeToken(Map<String, Object> found, byte[] content) {
        Instant date = ((FileTime) found.get("lastModifiedTime")).toInstant();
        long nanos = Math.addExact(Math.multiplyExact(date.getEpochSecond(), 1_000_000_000L), date.getNano());
        CRC32 head = new CRC32();
        head.update(content, 0, Math.min(content.length, TOKEN_HEAD_BYTES));
        return String.format("%x-%x-%x-%08x", (Long) found.get("ino"), nanos, (Long) found.get("size"),
                head.getValue());
    }

    @Override
    boolean isNamed(Adopted adopted, FileInfo plain) throws IOException {
        return adopted.modifiedMs() == plain.modifiedMs() && adopted.token().equals(token(plain));
    }

    // -- writing ---------------------------------------------------------------------------------------------

    @Override
    void create(String header, byte[] data) throws IOException {
        java.nio.file.Path temporary = writeTemporary(Names.chunksFolder(Names.segmentOfHeader(header)), data);
        try {
            // a link is atomic, and fails over whatever is there
            Files.createLink(java.nio.file.Path.of(header), temporary);
        } finally {
            Files.deleteIfExists(temporary);
        }
        flushFolder(Names.parent(header));
    }

    @Override
    void replace(String header, byte[] data, String token) throws IOException {
        if (attributes(header) == null) {
            throw new RollingException.Conflict(header + " is gone"); // and no folder is made for it
        }
        String lock = Names.chunksFolder(Names.segmentOfHeader(header)) + "/" + Names.LOCK_NAME;
        RecordLock.hold(java.nio.file.Path.of(lock), () -> replaceLocked(header, data, token));
        flushFolder(Names.parent(header));
    }

    private void replaceLocked(String header, byte[] data, String token) throws IOException {
        java.nio.file.Path file = java.nio.file.Path.of(header);
        Blob found = read(header);
        if (found == null || !found.token().equals(token)) {
            throw new RollingException.Conflict(header + " should have token " + token + "; found "
                    + (found == null ? "nothing" : found.token()));
        }
        Set<PosixFilePermission> mode = Files.getPosixFilePermissions(file);
        FileTime old = Files.getLastModifiedTime(file);
        java.nio.file.Path temporary = writeTemporary(Names.chunksFolder(Names.segmentOfHeader(header)), data);
        try {
            Files.setPosixFilePermissions(temporary, mode);
            Instant later = old.toInstant().plusNanos(1);
            Instant now = Instant.now();
            Files.setLastModifiedTime(temporary, FileTime.from(now.isAfter(later) ? now : later));
            Files.move(temporary, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } finally {
            Files.deleteIfExists(temporary);
        }
    }

    private java.nio.file.Path writeTemporary(String folder, byte[] data) throws IOException {
        String temporary = folder + "/" + Names.newTemporaryName();
        try (OutputStream stream = newFile(temporary)) {
            stream.write(data);
        }
        return java.nio.file.Path.of(temporary);
    }

    @Override
    void write(String path, byte[] data) throws IOException {
        java.nio.file.Path temporary = writeTemporary(Names.parent(path), data);
        try {
            Files.move(temporary, java.nio.file.Path.of(path), StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(temporary);
        }
        flushFolder(Names.parent(path));
    }

    @Override
    OutputStream newFile(String path) throws IOException {
        java.nio.file.Path file = java.nio.file.Path.of(path);
        Files.createDirectories(file.getParent());
        FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        return new FilterOutputStream(OutputStream.nullOutputStream()) {
            @Override
            public void write(int value) throws IOException {
                write(new byte[] {(byte) value}, 0, 1);
            }

            @Override
            public void write(byte[] data, int start, int count) throws IOException {
                for (ByteBuffer rest = ByteBuffer.wrap(data, start, count); rest.hasRemaining();) {
                    channel.write(rest);
                }
            }

            @Override
            public void close() throws IOException {
                if (channel.isOpen()) {
                    try (channel) {
                        channel.force(true);
                    }
                    flushFolder(Names.parent(path));
                }
            }
        };
    }

    /** Make a folder's entries survive a loss of power. */
    private static void flushFolder(String folder) throws IOException {
        try (FileChannel channel = FileChannel.open(java.nio.file.Path.of(folder), StandardOpenOption.READ)) {
            channel.force(true);
        }
    }

    @Override
    void delete(String folder, List<String> paths) throws IOException {
        for (String path : paths) {
            Files.deleteIfExists(java.nio.file.Path.of(path));
        }
    }

    @Override
    void clear(String path) throws IOException {
        java.nio.file.Path file = java.nio.file.Path.of(path);
        if (Files.isRegularFile(file)) {
            Files.deleteIfExists(file); // a chunk may be another link to it
        }
    }

    @Override
    boolean isRefusal(IOException error) {
        return !(error instanceof RollingException.Conflict)
                && !(error instanceof java.nio.file.FileAlreadyExistsException);
    }

    @Override
    public String toString() {
        return "the local disk";
    }
}
