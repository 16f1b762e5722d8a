package rollingfs.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;

/** {@link RollingFileSystem} for {@code FileContext}, through which Spark's streams write their checkpoints. */
public class RollingFs extends DelegateToFileSystem {
    public RollingFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new RollingFileSystem(), conf, uri.getScheme(), false);
    }

    @Override
    public int getUriDefaultPort() {
        return -1;
    }
}
