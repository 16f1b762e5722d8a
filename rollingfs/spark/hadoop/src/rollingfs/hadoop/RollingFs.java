package rollingfs.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;

/** {@link RollingFileSystem} for {@code FileContext}, through which Spark's streams write their checkpoints. */
public class RollingFs extends DelegateToFileSystem {
    public RollingFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new RollingFileSystem(), conf, uri.getScheme(), false);
    }

    /** The general form of a rename deletes the target first, so what is refused is refused before. */
    @Override
    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        ((RollingFileSystem) fsImpl).checkRename(source, target);
        super.renameInternal(source, target, overwrite);
    }

    @Override
    public int getUriDefaultPort() {
        return -1;
    }
}
