package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import rollingfs.hadoop.backend.ObjectStore;
import rollingfs.hadoop.backend.Store;

/**
 * What a client of Hadoop sees of a store without folders; this one keeps its keys on a disk.
 *
 * <p>Each argument is a step, {@code look PATH}, {@code delete PATH} or {@code rename PATH TARGET}, with an answer in a line.
 */
public final class Kept {
    private Kept() {}

    /** Keys of a bucket, by the paths of files; a prefix of keys is a folder. */
    public static final class Keys extends RawLocalFileSystem {
        @Override
        public URI getUri() {
            return URI.create("keys://bucket");
        }

        @Override
        public FileStatus getFileStatus(Path path) throws IOException {
            return bare(super.getFileStatus(path));
        }

        @Override
        public FileStatus[] listStatus(Path path) throws IOException {
            return Arrays.stream(super.listStatus(path)).map(Keys::bare).toArray(FileStatus[]::new);
        }

        private static FileStatus bare(FileStatus found) {
            return new FileStatus(found.getLen(), found.isDirectory(), 1, 0, found.getModificationTime(), found.getPath());
        }
    }

    /** Over those keys. */
    public static final class OverKeys extends RollingFileSystem {
        @Override
        Store storeOf(String below, URI name, Configuration conf) throws IOException {
            FileSystem keys = new Keys();
            keys.initialize(URI.create("keys://bucket"), conf);
            return new ObjectStore(keys);
        }
    }

    public static void main(String[] steps) throws Exception {
        FileSystem fs = new OverKeys();
        fs.initialize(URI.create("rolling+keys://bucket"), new Configuration());
        for (String step : steps) {
            String[] words = step.split(" ");
            Path path = new Path("rolling+keys://bucket" + words[1]);
            switch (words[0]) {
                case "look" -> System.out.println(seen(fs, path));
                case "delete" -> System.out.println(fs.delete(path, true));
                case "rename" -> System.out.println(fs.rename(path, new Path("rolling+keys://bucket" + words[2])));
                default -> throw new IllegalArgumentException(step);
            }
        }
    }

    private static String seen(FileSystem fs, Path path) throws IOException {
        try {
            String kind = fs.getFileStatus(path).isDirectory() ? "folder" : "file";
            return kind + " " + Arrays.stream(fs.listStatus(path)).map(found -> found.getPath().getName()).sorted().toList();
        } catch (FileNotFoundException nothing) {
            return "nothing";
        }
    }
}
