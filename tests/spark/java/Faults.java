package rollingfs.hadoop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.util.Progressable;
import rollingfs.hadoop.backend.DiskStore;
import rollingfs.hadoop.backend.ObjectStore;
import rollingfs.hadoop.backend.Store;

/**
 * Runs operations on a store that fails as it is told: commands come line by line, answers go back so.
 *
 * <p>{@code set KEY VALUE} configures; {@code new} takes another client; anything else is {@code MODE AT OPERATION
 * PATH [ARGUMENT]}: what becomes of call number AT to the store. The answer is what came of the operation, the call
 * that was hit ("-" for none), and what is to be said. Words are parted by tabs. Who waits answers so, and goes on
 * after any line.
 */
public final class Faults {
    /** What becomes of the call that is hit. */
    enum Mode {
        /** It fails, nothing is done. */
        BEFORE,
        /** It fails, and yet it is done. */
        AFTER,
        /** It waits until it is told to go on. */
        WAITS
    }

    interface Call<T> {
        T run() throws IOException;
    }

    interface Work {
        void run() throws IOException;
    }

    private static Mode mode;
    private static int at;
    private static int count;
    private static String hit;
    private static final BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Faults() {}

    private static synchronized void plan(Mode newMode, int newAt) {
        mode = newMode;
        at = newAt;
        count = 0;
        hit = null;
    }

    /** Whether this call is to fail after it was made; one that is to fail before does so here. */
    private static synchronized boolean isHit(String verb) throws IOException {
        if (++count != at) {
            return false;
        }
        hit = verb;
        if (mode == Mode.WAITS) {
            System.out.println("waits\t" + verb + "\t");
            commands.readLine();
        } else if (mode == Mode.BEFORE) {
            throw new IOException("injected before " + verb);
        }
        return mode == Mode.AFTER;
    }

    static <T> T call(String verb, Call<T> call) throws IOException {
        boolean isHit = isHit(verb);
        T answer = call.run();
        if (isHit) {
            throw new IOException("injected after " + verb);
        }
        return answer;
    }

    static void work(String verb, Work work) throws IOException {
        call(verb, () -> {
            work.run();
            return null;
        });
    }

    // -- commands --------------------------------------------------------------------------------------------

    /** No arguments. */
    public static void main(String[] none) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.rolling+file.impl", FaultyRolling.class.getName());
        conf.set("fs.rolling+faulty.impl", FaultyRolling.class.getName());
        FileSystem fs = null;
        for (String line; (line = commands.readLine()) != null;) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("set")) {
                conf.set(words[1], words[2]);
            } else if (words[0].equals("new")) {
                fs = null;
            } else {
                Path path = new Path(words[3]);
                plan(null, 0);
                fs = fs == null ? FileSystem.newInstance(path.toUri(), conf) : fs;
                System.out.println(answer(fs, words, path).replace('\n', ' '));
            }
        }
    }

    private static String answer(FileSystem fs, String[] words, Path path) {
        plan(words[0].equals("-") ? null : Mode.valueOf(words[0]), Integer.parseInt(words[1]));
        String outcome;
        try {
            outcome = "done\t%s\t" + run(fs, words[2], path, words.length > 4 ? words[4] : null);
        } catch (IOException error) {
            outcome = "failed\t%s\t" + error;
        } catch (RuntimeException | Error error) {
            error.printStackTrace();
            outcome = "broken\t%s\t" + error;
        }
        return outcome.replaceFirst("%s", hit == null ? "-" : hit);
    }

    private static String run(FileSystem fs, String operation, Path path, String argument) throws IOException {
        switch (operation) {
            case "append", "overwrite" -> {
                try (OutputStream stream = operation.equals("append") ? fs.append(path) : fs.create(path, true)) {
                    stream.write(argument.getBytes(StandardCharsets.US_ASCII));
                }
                return "";
            }
            case "rename" -> {
                return String.valueOf(fs.rename(path, new Path(argument)));
            }
            case "delete" -> {
                return String.valueOf(fs.delete(path, true));
            }
            case "rmdir" -> {
                return String.valueOf(fs.delete(path, false));
            }
            case "read" -> {
                try (FSDataInputStream stream = fs.open(path)) {
                    return new String(stream.readAllBytes(), StandardCharsets.US_ASCII);
                }
            }
            case "list" -> {
                List<FileStatus> found = Arrays.asList(fs.listStatus(path));
                return String.join(" ", found.stream()
                        .map(status -> status.getPath().getName() + ":" + status.getLen()).sorted().toList());
            }
            default -> throw new IllegalArgumentException(operation);
        }
    }

    // -- stores that fail ------------------------------------------------------------------------------------

    /** Over the disk, and as {@code rolling+faulty://bucket} over S3A. */
    public static final class FaultyRolling extends RollingFileSystem {
        @Override
        Store storeOf(String below, URI name, Configuration conf) throws IOException {
            if (below.equals("file")) {
                FileSystem raw = new RawLocalFileSystem();
                raw.initialize(URI.create("file:///"), conf);
                return new FaultyDisk(new FaultyFileSystem(raw));
            }
            return new ObjectStore(new FaultyFileSystem(
                    FileSystem.get(URI.create("s3a://" + name.getAuthority()), conf)));
        }
    }

    /** A local disk whose every step may fail. */
    private static final class FaultyDisk extends DiskStore {
        FaultyDisk(FileSystem raw) {
            super(raw);
        }

        @Override
        public FileInfo stat(String path) throws IOException {
            return call("stat", () -> super.stat(path));
        }

        @Override
        public Listing list(String folder) throws IOException {
            return call("list", () -> super.list(folder));
        }

        @Override
        public boolean removeFolder(String folder) throws IOException {
            return call("rmdir", () -> super.removeFolder(folder));
        }

        @Override
        public Tree tree(String folder) throws IOException {
            return call("walk", () -> super.tree(folder));
        }

        @Override
        public byte[] readWhole(String path, FileStatus known) throws IOException {
            return call("read", () -> super.readWhole(path, known));
        }

        @Override
        public void clear(String path) throws IOException {
            work("clear", () -> super.clear(path));
        }
    }

    /** A Hadoop filesystem whose every call may fail. */
    private static final class FaultyFileSystem extends FilterFileSystem {
        FaultyFileSystem(FileSystem fs) {
            super(fs);
        }

        @Override
        public FileStatus getFileStatus(Path path) throws IOException {
            return call("status", () -> super.getFileStatus(path));
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            return call("list", () -> super.listStatus(path));
        }

        @Override
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            return call("open", () -> super.open(path, bufferSize));
        }

        @Override
        public FutureDataInputStreamBuilder openFile(Path path) throws IOException {
            return call("open", () -> super.openFile(path));
        }

        @Override
        public boolean mkdirs(Path path) throws IOException {
            return call("make folder", () -> super.mkdirs(path));
        }

        @Override
        public boolean delete(Path path, boolean isRecursive) throws IOException {
            return call("delete", () -> super.delete(path, isRecursive));
        }

        @Override
        public boolean rename(Path source, Path target) throws IOException {
            return call("rename", () -> super.rename(source, target));
        }

        @Override
        public FSDataOutputStream create(Path path, boolean isOverwriting, int buffer, short replication, long block,
                Progressable progress) throws IOException {
            return call("create", () -> fs.create(path, isOverwriting, buffer, replication, block, progress));
        }
    }
}
