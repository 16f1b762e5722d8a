package rollingfs.hadoop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.Abortable;
import rollingfs.hadoop.Backoff.Moment;
import rollingfs.hadoop.Uploads.Stored;

/**
 * Appends to a segment, or replaces its content: everything in one commit, when it is closed.
 *
 * <p>Little stays in memory until then; much goes into chunk files as it comes.
 */
final class SegmentOutput extends OutputStream implements Abortable {
    private static final int SMALL_BYTES_MAX = 1024 * 1024;
    private final Segments segments;
    private final String path;
    private final Header base;
    private final boolean isAppend;
    private final Uploads uploads;
    private final List<Stored> chunks = new ArrayList<>();
    private ByteArrayOutputStream small = new ByteArrayOutputStream();
    private ChunkFile chunk;
    private long position;
    private boolean isFailed;
    private boolean isClosed;

    /** A chunk file that is being written. */
    private static final class ChunkFile {
        final OutputStream stream;
        final String name;
        final Moment began = Moment.now();
        final CRC32C crc = new CRC32C();
        long size;

        ChunkFile(OutputStream stream, String name) {
            this.stream = stream;
            this.name = name;
        }

        Stored stored() {
            return new Stored(name, size, (int) crc.getValue(), began.wallMs(), began);
        }
    }

    /**
     * @param base the header as it is now; an append is bound to its incarnation
     * @param isAppend whether what is there stays
     */
    SegmentOutput(Segments segments, String path, Header base, boolean isAppend) {
        this.segments = segments;
        this.path = path;
        this.base = base;
        this.isAppend = isAppend;
        this.uploads = new Uploads(segments.store, path);
        this.position = isAppend ? base.length() : 0;
    }

    @Override
    public void write(int value) throws IOException {
        write(new byte[] {(byte) value}, 0, 1);
    }

    @Override
    public void write(byte[] data, int start, int count) throws IOException {
        if (isClosed) {
            throw new IOException(path + ": the file is closed");
        }
        try {
            if (small != null && small.size() + count <= SMALL_BYTES_MAX) {
                small.write(data, start, count);
                return;
            }
            if (small != null) {
                byte[] first = small.toByteArray();
                small = null;
                writeChunks(first, 0, first.length);
            }
            writeChunks(data, start, count);
        } catch (IOException error) {
            isFailed = true;
            throw error;
        }
    }

    private void writeChunks(byte[] data, int start, int count) throws IOException {
        while (count > 0) {
            if (chunk == null) {
                String name = Names.newChunkName(position);
                chunk = new ChunkFile(uploads.open(name), name);
            }
            int step = (int) Math.min(count, base.policy.maxBytes() - chunk.size);
            chunk.stream.write(data, start, step);
            chunk.crc.update(data, start, step);
            chunk.size += step;
            position += step;
            start += step;
            count -= step;
            if (chunk.size == base.policy.maxBytes()) {
                finishChunk();
            }
        }
    }

    private void finishChunk() throws IOException {
        ChunkFile done = chunk;
        chunk = null;
        uploads.keep(done.stored()); // to be removed, should closing it fail
        done.stream.close();
        chunks.add(done.stored());
    }

    /** Commit; after a write that failed there is nothing to commit, and what was written is removed. */
    @Override
    public void close() throws IOException {
        if (isClosed) {
            return;
        }
        isClosed = true;
        Set<String> named = new HashSet<>();
        try {
            if (isFailed) {
                throw new IOException(path + ": a write has failed; nothing of this file is committed");
            }
            if (chunk != null) {
                finishChunk();
            }
            byte[] bytes = small == null ? new byte[0] : small.toByteArray();
            if (isAppend) {
                segments.append(path, base.segment, chunks, bytes, uploads, named);
            } else {
                segments.overwrite(path, chunks, bytes, uploads, named);
            }
        } finally {
            discard(named);
        }
    }

    private void discard(Set<String> named) throws IOException {
        if (chunk != null) {
            uploads.keep(chunk.stored());
            chunk.stream.close();
            chunk = null;
        }
        uploads.discard(named);
    }

    /** Give up: nothing is committed, what was written is removed. */
    @Override
    public AbortableResult abort() {
        IOException failure = null;
        boolean wasClosed = isClosed;
        isClosed = true;
        if (!wasClosed) {
            try {
                discard(Set.of());
            } catch (IOException error) {
                failure = error;
            }
        }
        IOException result = failure;
        return new AbortableResult() {
            @Override
            public boolean alreadyClosed() {
                return wasClosed;
            }

            @Override
            public IOException anyCleanupException() {
                return result;
            }
        };
    }
}
