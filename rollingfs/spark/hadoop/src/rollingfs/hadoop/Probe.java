package rollingfs.hadoop;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

/** What a store says it does is tried once, before the first write by header, and only then believed. */
final class Probe {
    private static final byte[] FIRST = "probe 1\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    private static final byte[] SECOND = "probe 2, longer\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    private static final byte[] WRONG = "probe: wrong\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    private final Store store;
    private boolean isSafe;

    Probe(Store store) {
        this.store = store;
    }

    /** Refuse a store that overwrites what it had to leave alone. */
    synchronized void check(String segment) throws IOException {
        if (isSafe) {
            return;
        }
        String folder = Names.chunksFolder(segment);
        String path = folder + "/" + Names.PROBE_PREFIX + UUID.randomUUID().toString().replace("-", "");
        String header = Names.headerPath(path);
        try {
            store.create(header, FIRST);
            String old = store.read(header).token();
            refused(() -> store.create(header, WRONG), header, FIRST, "create over an existing file");
            store.replace(header, SECOND, old);
            refused(() -> store.replace(header, WRONG, old), header, SECOND, "replace with a wrong token");
        } catch (UnsupportedOperationException | IllegalArgumentException error) {
            throw new RollingException.Unsafe(store + " cannot replace a header atomically (" + error.getMessage()
                    + "); nothing was written");
        } finally {
            store.delete(folder, List.of(header));
            if (store.hasFolders()) {
                removeLockFolder(Names.chunksFolder(path));
            }
        }
        isSafe = true;
    }

    private void removeLockFolder(String folder) throws IOException {
        store.delete(folder, List.of(folder + "/" + Names.LOCK_NAME));
        store.delete(folder, List.of(folder));
    }

    /** What must fail and leave what is there. */
    private void refused(RecordLock.Work work, String header, byte[] expected, String what) throws IOException {
        boolean isRefused = false;
        try {
            work.run();
        } catch (IOException error) {
            isRefused = true;
        }
        if (!isRefused || !Arrays.equals(store.read(header).data(), expected)) {
            throw new RollingException.Unsafe(store + " is not safe to write: " + what
                    + " did not fail; nothing was written to any segment");
        }
    }
}
