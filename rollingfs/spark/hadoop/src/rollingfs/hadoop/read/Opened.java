package rollingfs.hadoop.read;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header;

/**
 * The segments that the queries of this process have opened. Each task opens a segment by itself, so what a query opens
 * later is compared with what it opened first and with what its plan says: it must not mix the rows of two segments.
 */
public final class Opened {
    private static final int SEGMENTS_MAX = 65_536;
    private static final String ADVICE = ". Rows of two versions are never mixed: run the query again";

    private record Opening(String query, String path) {}

    private record Seen(String segment, long start) {}

    private final Map<Opening, Seen> first = new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Opening, Seen> eldest) {
            return size() > SEGMENTS_MAX;
        }
    };

    /** Refuse a segment that is not the one which the caller's query means. {@code how} may be null. */
    public void check(String path, Header header, OpenFileParameters how) throws RollingException {
        checkPlanned(path, header, how);
        String query = query();
        if (query == null) {
            return;
        }
        Seen now = new Seen(header.segment, header.start);
        Seen before;
        synchronized (first) {
            before = first.putIfAbsent(new Opening(query, path), now);
        }
        if (before != null && !before.segment().equals(now.segment())) {
            throw new RollingException(path + ": another segment has this name now than when this query first opened it"
                    + ADVICE);
        }
        if (before != null && before.start() != now.start()) {
            throw new RollingException.Truncated(path + ": its bytes " + before.start() + " to " + now.start()
                    + " were truncated away since this query first opened it, so positions in it have moved" + ADVICE);
        }
    }

    /** Refuse a segment that is shorter than what was planned, or was created after it was planned. */
    private static void checkPlanned(String path, Header header, OpenFileParameters how) throws RollingException {
        if (how == null) {
            return;
        }
        FileStatus planned = how.getStatus();
        long end = how.getOptions().getLong(OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_END, 0);
        long size = planned == null ? end : Math.max(end, planned.getLen());
        if (size > header.size()) {
            throw new RollingException(path + ": its plan says that there are " + size + " bytes, but there are "
                    + header.size() + " now: it was replaced, or its first bytes were truncated away, since then" + ADVICE);
        }
        long plannedMs = planned == null ? 0 : planned.getModificationTime();
        if (plannedMs > 0 && header.createdMs > plannedMs && !header.wasPlain()) {
            throw new RollingException(path + ": another segment has this name now than when this query was planned"
                    + ADVICE);
        }
    }

    /** The query of Spark for which the present thread works; null without one. Spark need not be there. */
    private static String query() {
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            Class<?> tasks = Class.forName("org.apache.spark.TaskContext", false,
                    loader == null ? Opened.class.getClassLoader() : loader);
            Object task = tasks.getMethod("get").invoke(null);
            return task == null ? null : (String) tasks.getMethod("getLocalProperty", String.class)
                    .invoke(task, "spark.sql.execution.id");
        } catch (ClassNotFoundException noSpark) {
            return null;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("Spark's TaskContext does not say which query a task belongs to", error);
        }
    }
}
