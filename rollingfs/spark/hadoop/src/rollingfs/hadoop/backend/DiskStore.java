package rollingfs.hadoop.backend;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import rollingfs.hadoop.format.Header.Adopted;
import rollingfs.hadoop.format.Names;

/**
 * A local disk. It asks the system itself, because {@code RawLocalFileSystem} forks a process per file for permissions.
 */
public class DiskStore extends Store {
    private static final String ATTRIBUTES = "unix:ino,mode,size,lastModifiedTime,isDirectory,isRegularFile";
    private static final int TOKEN_HEAD_BYTES = 256;
    private static final int PERMISSIONS = 07777;

    public DiskStore(FileSystem raw) {
        super(raw);
    }

    @Override
    public Path hadoopPath(String path) {
        return new Path("file", null, path);
    }

    @Override
    public boolean hasFolders() {
        return true;
    }

    // -- reading ---------------------------------------------------------------------------------------------

    @Override
    public FSDataInputStream openChunk(String path, OpenFileParameters how, long length) throws IOException {
        return fs.open(hadoopPath(path));
    }

    @Override
    public FSDataInputStream openPlain(FileInfo plain, OpenFileParameters how) throws IOException {
        return fs.open(hadoopPath(plain.path()));
    }

    @Override
    public FileInfo stat(String path) throws IOException {
        Map<String, Object> found = attributes(path);
        return found == null ? null : info(path, found);
    }

    /** The attributes of a file or folder; null if there is none. */
    private static Map<String, Object> attributes(String path) throws IOException {
        return ifThere(path, file -> Files.readAttributes(file, ATTRIBUTES));
    }

    private interface Look<T> {
        T at(java.nio.file.Path file) throws IOException;
    }

    /** The result of a look at a file; null if there is no file, also if a folder above it is a file. */
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

    /** The date as Python writes it into headers: rounded from the seconds that {@code stat} gives. */
    private static long modifiedMs(Map<String, Object> found) {
        Instant date = ((FileTime) found.get("lastModifiedTime")).toInstant();
        return (long) Math.rint((date.getEpochSecond() + 1e-9 * date.getNano()) * 1000);
    }

    @Override
    public Listing list(String folder) throws IOException {
        List<FileInfo> visible = new ArrayList<>();
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean isRemoved = false;
        boolean isEmpty = true;
        String prefix = folder.endsWith("/") ? folder : folder + "/";
        try (DirectoryStream<java.nio.file.Path> entries = Files.newDirectoryStream(java.nio.file.Path.of(folder))) {
            for (java.nio.file.Path entry : entries) {
                isEmpty = false;
                String name = entry.getFileName().toString();
                if (Names.isHeader(name)) {
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
            throw new FileNotFoundException("no folder is at " + folder);
        }
        visible.sort((one, two) -> one.path().compareTo(two.path()));
        return new Listing(visible, headers, false, isRemoved, isEmpty);
    }

    @Override
    public boolean removeFolder(String folder) throws IOException {
        try { // RawLocalFileSystem looks whether a folder is empty, then deletes all in it
            Files.deleteIfExists(java.nio.file.Path.of(folder));
            return true;
        } catch (DirectoryNotEmptyException occupied) {
            return false;
        }
    }

    @Override
    public Tree tree(String folder) throws IOException {
        Map<String, FileStatus> headers = new TreeMap<>();
        boolean[] isPlain = {true};
        Files.walkFileTree(java.nio.file.Path.of(folder), new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult preVisitDirectory(java.nio.file.Path found, BasicFileAttributes attributes) {
                boolean isChunks = Names.baseName(found.toString()).contains(Names.CHUNKS_SUFFIX);
                isPlain[0] &= !isChunks;
                return isChunks ? FileVisitResult.SKIP_SUBTREE : FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFile(java.nio.file.Path found, BasicFileAttributes attributes) {
                String name = found.getFileName().toString();
                isPlain[0] &= !Names.isHidden(name);
                if (Names.isHeader(name)) {
                    headers.put(Names.segmentOfHeader(found.toString()), null);
                }
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFileFailed(java.nio.file.Path found, IOException error) throws IOException {
                if (error instanceof NoSuchFileException) {
                    return FileVisitResult.CONTINUE; // another program deleted it during the walk
                }
                throw error;
            }
        });
        return new Tree(headers, isPlain[0]);
    }

    @Override
    public byte[] readWhole(String path, FileStatus known) throws IOException {
        return ifThere(path, file -> readAll(Files.newInputStream(file), path));
    }

    /** The token that identifies the content of a plain file; null if the file is gone. */
    private static String token(FileInfo plain) throws IOException {
        while (true) {
            Map<String, Object> before = attributes(plain.path());
            if (before == null) {
                return null;
            }
            byte[] head = ifThere(plain.path(), DiskStore::readHead);
            if (head != null && before.equals(attributes(plain.path()))) {
                return makeToken(before, head);
            }
        }
    }

    private static byte[] readHead(java.nio.file.Path file) throws IOException {
        try (var stream = Files.newInputStream(file)) {
            return stream.readNBytes(TOKEN_HEAD_BYTES);
        }
    }

    /** A token that differs between any two writes of a file; Python makes the same. */
    private static String makeToken(Map<String, Object> found, byte[] content) {
        Instant date = ((FileTime) found.get("lastModifiedTime")).toInstant();
        long nanos = Math.addExact(Math.multiplyExact(date.getEpochSecond(), 1_000_000_000L), date.getNano());
        CRC32 head = new CRC32();
        head.update(content, 0, Math.min(content.length, TOKEN_HEAD_BYTES));
        return String.format("%x-%x-%x-%08x", (Long) found.get("ino"), nanos, (Long) found.get("size"),
                head.getValue());
    }

    @Override
    public boolean isNamed(Adopted adopted, FileInfo plain) throws IOException {
        return adopted.modifiedMs() == plain.modifiedMs() && adopted.token().equals(token(plain));
    }

    @Override
    public void clear(String path) throws IOException {
        java.nio.file.Path file = java.nio.file.Path.of(path);
        if (Files.isRegularFile(file)) {
            Files.deleteIfExists(file); // a chunk may be another link to it
        }
    }

    @Override
    public String toString() {
        return "the local disk";
    }
}
