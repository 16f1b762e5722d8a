package rollingfs.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;

/** {@link RollingFileSystem} for {@code FileContext}, by which Spark's streams write their checkpoints. */
public class RollingFs extends DelegateToFileSystem {
    public RollingFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new RollingFileSystem(), conf, uri.getScheme(), false);
    }

    /** Refuse before the overwriting rename of Hadoop, which deletes the target first. */
    @Override
    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        if (overwrite) {
            ((RollingFileSystem) fsImpl).checkRename(source, target);
        }
        super.renameInternal(source, target, overwrite);
    }

    @Override
    public int getUriDefaultPort() {
        return -1;
    }
}
