package rollingfs.hadoop;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;

/**
 * The exclusive lock on a file of a disk: against threads, processes, and Python's lock of the same file.
 *
 * <p>A POSIX record lock excludes no other thread of its process, and is lost when the process closes any descriptor
 * of the file: so within this JVM, whatever class loaders have loaded this class, one thread at a time opens it.
 */
final class RecordLock {
    private static final long REFUSED_MS_MAX = 60_000;
    private static final long REFUSED_POLL_MS = 20;

    private RecordLock() {}

    /** What is done under the lock. */
    interface Work {
        void run() throws IOException;
    }

    /** Do something while holding the lock of a file, which is made if it is missing. */
    static void hold(Path file, Work work) throws IOException {
        Files.createDirectories(file.getParent());
        // an interned string is one object for all class loaders
        String monitor = ("rollingfs lock " + file.getParent().toRealPath().resolve(file.getFileName())).intern();
        synchronized (monitor) {
            while (!tryHold(file, work)) {
                Files.createDirectories(file.getParent());
            }
        }
    }

    /** False if the file was removed while we waited for its lock. */
    private static boolean tryHold(Path file, Work work) throws IOException {
        try {
            Files.createFile(file);
        } catch (FileAlreadyExistsException there) {
            // the usual case
        } catch (NoSuchFileException gone) {
            return false;
        }
        Map<String, Object> before = identity(file);
        if (before == null) {
            return false;
        }
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE);
                FileLock held = lock(channel)) {
            if (!held.isValid() || !before.equals(identity(file))) {
                return false;
            }
            work.run();
            return true;
        } catch (NoSuchFileException error) {
            if (file.toString().equals(error.getFile())) {
                return false;
            }
            throw error;
        }
    }

    /** The system may see a deadlock between processes where there is none, because it counts them as one thread. */
    private static FileLock lock(FileChannel channel) throws IOException {
        long deadline = System.nanoTime() + REFUSED_MS_MAX * 1_000_000;
        while (true) {
            try {
                return channel.lock();
            } catch (IOException refused) {
                if (!channel.isOpen() || System.nanoTime() > deadline) {
                    throw refused;
                }
                Backoff.sleep(REFUSED_POLL_MS);
            }
        }
    }

    private static Map<String, Object> identity(Path file) throws IOException {
        try {
            return Files.readAttributes(file, "unix:dev,ino,ctime");
        } catch (NoSuchFileException gone) {
            return null;
        }
    }
}
