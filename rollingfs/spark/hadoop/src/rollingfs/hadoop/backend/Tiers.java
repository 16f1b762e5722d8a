package rollingfs.hadoop.backend;

import java.io.IOException;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.util.functional.FutureIO;
import rollingfs.hadoop.RollingException;

/**
 * The tiers of a store: parallel trees of chunk files, each below a root of its own on any Hadoop filesystem.
 *
 * <p>The setting {@code fs.rolling.tier.ALIAS.root} is the URL of a root.
 */
final class Tiers {
    private final Configuration conf;
    private final Map<String, FileSystem> systems = new HashMap<>();

    Tiers(Configuration conf) {
        this.conf = conf;
    }

    /** Open the chunk of a tier that is parallel to a path of the hot store. */
    FSDataInputStream open(String alias, String path, OpenFileParameters how, long length) throws IOException {
        String key = "fs.rolling.tier." + alias + ".root";
        String root = conf.get(key);
        if (root == null || root.isBlank()) {
            throw new RollingException.UnknownTier(path + ": the tier '" + alias
                    + "' is not configured, so nothing in it was read: set " + key + " to the URL of its root");
        }
        String below = path.startsWith("/") ? path.substring(1) : path;
        Path file = new Path(root.endsWith("/") ? root + below : root + "/" + below);
        if (file.toUri().getScheme() != null && file.toUri().getScheme().equals("s3")) {
            file = new Path("s3a", file.toUri().getAuthority(), file.toUri().getPath());
        }
        FutureDataInputStreamBuilder builder = system(alias, file).openFile(file);
        String policy = how == null ? null : how.getOptions().get(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY);
        if (policy != null) {
            builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, policy);
        }
        builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, Long.toString(length)); // may spare a HEAD request
        return FutureIO.awaitFuture(builder.build());
    }

    private synchronized FileSystem system(String alias, Path file) throws IOException {
        FileSystem found = systems.get(alias);
        if (found == null) {
            String scheme = file.toUri().getScheme();
            if (scheme == null || scheme.equals("file")) {
                found = new RawLocalFileSystem(); // LocalFileSystem would look for .crc files
                found.initialize(URI.create("file:///"), conf);
            } else {
                found = file.getFileSystem(conf);
            }
            systems.put(alias, found);
        }
        return found;
    }
}
