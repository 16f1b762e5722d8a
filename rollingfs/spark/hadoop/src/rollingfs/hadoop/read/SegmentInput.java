package rollingfs.hadoop.read;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.backend.Store;
import rollingfs.hadoop.format.Header;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Entry;
import rollingfs.hadoop.format.Header.Page;
import rollingfs.hadoop.format.Names;
import rollingfs.hadoop.format.Placement;

/**
 * Reads one snapshot of a segment; position 0 is its first retained byte.
 *
 * <p>A missing chunk means that the map has changed. The input then reads the header again, and goes on if that is a
 * header of the same incarnation which still retains the bytes.
 */
public final class SegmentInput extends FSInputStream implements StreamCapabilities {
    private static final int STREAMS_MAX = 4;
    private final Store store;
    private final IndexPages pages;
    private final String path;
    private final OpenFileParameters how;
    private final long origin;
    private final long size;
    private Header header;
    private long position;
    private boolean isClosed;
    private Page pageSeen;
    private List<Chunk> chunksSeen;
    /** Open chunk files by path; the one used last is at the end. */
    private final LinkedHashMap<String, FSDataInputStream> streams = new LinkedHashMap<>(8, 0.75f, true);
    /** Open chunk files with vectored reads, which may still be under way. */
    private final Map<String, FSDataInputStream> vectored = new HashMap<>();

    /** A run of bytes of one chunk file, or of the inline tail if there is no file. */
    private record Piece(String file, long fileSize, long at, int length) {}

    /** A use of chunk files, which may meet one that is gone. */
    private interface Reading<T> {
        T go() throws IOException;
    }

    public SegmentInput(Store store, IndexPages pages, String path, Header header, OpenFileParameters how) {
        this.store = store;
        this.pages = pages;
        this.path = path;
        this.header = header;
        this.how = how;
        this.origin = header.start;
        this.size = header.size();
    }

    // -- one position ----------------------------------------------------------------------------------------

    @Override
    public synchronized void seek(long target) throws IOException {
        checkOpen();
        if (target < 0) {
            throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK);
        }
        if (target > size) {
            throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF);
        }
        position = target;
    }

    @Override
    public synchronized long getPos() {
        return position;
    }

    @Override
    public boolean seekToNewSource(long target) {
        return false;
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return (int) Math.min(size - position, Integer.MAX_VALUE);
    }

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
    }

    @Override
    public synchronized int read(byte[] buffer, int start, int count) throws IOException {
        int found = read(position, buffer, start, count);
        position += Math.max(found, 0);
        return found;
    }

    @Override
    public synchronized int read(long at, byte[] buffer, int start, int count) throws IOException {
        checkOpen();
        validatePositionedReadArgs(at, buffer, start, count);
        if (count == 0) {
            return 0;
        }
        if (at >= size) {
            return -1;
        }
        return retrying(at, () -> readSome(at, buffer, start, (int) Math.min(count, size - at)));
    }

    /** Read the bytes of one piece. */
    private int readSome(long at, byte[] buffer, int start, int count) throws IOException {
        Piece piece = piece(at, count);
        if (piece.file() == null) {
            System.arraycopy(header.tail, (int) piece.at(), buffer, start, piece.length());
            return piece.length();
        }
        FSDataInputStream stream = stream(piece);
        if (stream.getPos() != piece.at()) {
            stream.seek(piece.at());
        }
        int found = stream.read(buffer, start, piece.length());
        if (found < 0) {
            throw new RollingException.Corrupt(path + ": its chunk file " + piece.file() + " ends before byte "
                    + piece.at() + ", which the header names");
        }
        return found;
    }

    @Override
    public synchronized void readFully(long at, byte[] buffer, int start, int count) throws IOException {
        validatePositionedReadArgs(at, buffer, start, count);
        for (int done = 0; done < count;) {
            int found = read(at + done, buffer, start + done, count - done);
            if (found < 0) {
                throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
            }
            done += found;
        }
    }

    // -- many ranges -----------------------------------------------------------------------------------------

    @Override
    public synchronized void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate)
            throws IOException {
        checkOpen();
        for (FileRange range : ranges) {
            if (range.getOffset() < 0 || range.getLength() < 0) {
                throw new IllegalArgumentException(path + ": " + range + " is negative");
            }
            if (range.getOffset() + range.getLength() > size) {
                throw new EOFException(path + ": " + range + " ends beyond its " + size + " bytes");
            }
        }
        long first = ranges.stream().mapToLong(FileRange::getOffset).min().orElse(0);
        List<Join> joins = retrying(first, () -> plan(ranges, allocate));
        Map<String, List<FileRange>> byFile = new LinkedHashMap<>();
        for (Join join : joins) {
            for (Part part : join.parts) {
                if (part.file() == null) {
                    part.range().setData(CompletableFuture.completedFuture(ByteBuffer.wrap(header.tail,
                            (int) part.range().getOffset(), part.range().getLength()).slice()));
                } else if (join.whole != null && store.hasFolders()) {
                    // on a disk a call for each part costs nothing, and the buffer is known to be that of the part
                    vectored.get(part.file()).readVectored(List.of(part.range()),
                            length -> length == part.place().capacity() ? part.place() : allocate.apply(length));
                } else {
                    byFile.computeIfAbsent(part.file(), file -> new ArrayList<>()).add(part.range());
                }
            }
        }
        for (Map.Entry<String, List<FileRange>> entry : byFile.entrySet()) {
            vectored.get(entry.getKey()).readVectored(entry.getValue(), allocate);
        }
        joins.forEach(join -> join.range.setData(data(join, allocate)));
    }

    /**
     * A part of a range: in one chunk file, or in the inline tail if there is no file.
     *
     * @param place the buffer for its bytes in that of the range; null if the part is the whole range
     */
    private record Part(String file, FileRange range, ByteBuffer place) {
        /** Copy the bytes to their place, unless they were read into it. */
        void put() {
            ByteBuffer found = range.getData().join();
            if (found != place) {
                place.duplicate().clear().put(found);
            }
        }
    }

    /**
     * A range and its parts.
     *
     * @param whole the buffer for its bytes, if there are several parts or one in the header; else null
     */
    private record Join(FileRange range, List<Part> parts, ByteBuffer whole) {
        CompletableFuture<?> done() {
            return CompletableFuture.allOf(
                    parts.stream().map(part -> part.range().getData()).toArray(CompletableFuture[]::new));
        }
    }

    /** The bytes of a range; if a part of it fails, the range is read again alone, with a new look at the map. */
    private CompletableFuture<ByteBuffer> data(Join join, IntFunction<ByteBuffer> allocate) {
        return join.done().handle((done, failure) -> {
            if (failure == null && join.whole != null) {
                join.parts.forEach(Part::put);
                return join.whole;
            }
            if (failure == null && join.parts.size() == 1) {
                return join.parts.get(0).range().getData().join();
            }
            byte[] bytes = new byte[join.range.getLength()];
            try {
                readFully(join.range.getOffset(), bytes, 0, bytes.length);
            } catch (IOException error) {
                throw new CompletionException(error);
            }
            return allocate.apply(bytes.length).put(bytes).flip();
        });
    }

    /** Split ranges into parts, and open the chunk files of the parts. */
    private List<Join> plan(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
        List<Join> joins = new ArrayList<>();
        for (FileRange range : ranges) {
            List<Part> parts = new ArrayList<>();
            ByteBuffer whole = null;
            for (int done = 0; done < range.getLength();) {
                Piece piece = piece(range.getOffset() + done, range.getLength() - done);
                if (whole == null && (piece.file() == null || piece.length() < range.getLength())) {
                    whole = allocate.apply(range.getLength()).clear().limit(range.getLength());
                }
                ByteBuffer place = whole == null ? null : whole.slice(done, piece.length());
                parts.add(new Part(piece.file(), FileRange.createFileRange(piece.at(), piece.length()), place));
                if (piece.file() != null && !vectored.containsKey(piece.file())) {
                    vectored.put(piece.file(), store.openFile(piece.file(), how, piece.fileSize()));
                }
                done += piece.length();
            }
            joins.add(new Join(range, parts, whole));
        }
        return joins;
    }

    @Override
    public boolean hasCapability(String capability) {
        return StreamCapabilities.VECTOREDIO.equalsIgnoreCase(capability);
    }

    // -- the map ---------------------------------------------------------------------------------------------

    /** The piece that begins at a position, of at most {@code count} bytes. */
    private Piece piece(long at, int count) throws IOException {
        long offset = origin + at;
        if (offset >= header.tailStart()) {
            int from = (int) (offset - header.tailStart());
            return new Piece(null, -1, from, Math.min(count, header.tail.length - from));
        }
        Entry entry = header.entries.get(Placement.find(header.entries, offset));
        String home = path;
        if (entry instanceof Page page) {
            if (!page.equals(pageSeen)) {
                chunksSeen = pages.chunks(path, page);
                pageSeen = page;
            }
            home = IndexPages.home(path, page);
            entry = chunksSeen.get(Placement.find(chunksSeen, offset));
        }
        long within = offset - entry.start();
        Chunk chunk = (Chunk) entry;
        return new Piece(Names.locate(home, chunk.file(), chunk.tier()), chunk.size(), chunk.offset() + within,
                (int) Math.min(count, chunk.length() - within));
    }

    /** The open stream of a chunk file; at most {@link #STREAMS_MAX} stay open. */
    private FSDataInputStream stream(Piece piece) throws IOException {
        FSDataInputStream found = streams.get(piece.file());
        if (found == null) {
            found = store.openFile(piece.file(), how, piece.fileSize());
            streams.put(piece.file(), found);
            if (streams.size() > STREAMS_MAX) {
                String eldest = streams.keySet().iterator().next();
                streams.remove(eldest).close();
            }
        }
        return found;
    }

    /** Read; if a file is gone, read again with the present map. */
    private <T> T retrying(long at, Reading<T> reading) throws IOException {
        while (true) {
            try {
                return reading.go();
            } catch (FileNotFoundException gone) {
                closeAll(streams);
                lookAgain(origin + at, gone);
            }
        }
    }

    private void lookAgain(long offset, FileNotFoundException gone) throws IOException {
        Header now = Snapshot.header(store, path, null);
        if (now == null || now.deleted()) {
            throw new FileNotFoundException(path + ": the segment was deleted after it was opened");
        }
        if (!now.segment.equals(header.segment)) {
            throw new RollingException(path + ": another segment has this name now; the one that was opened is gone");
        }
        if (offset < now.start) {
            throw new RollingException.Truncated(path + ": offset " + offset
                    + " was truncated away; what is left is " + now.start + " to " + now.length());
        }
        if (now.version == header.version) {
            throw new RollingException.Corrupt(path + ": a file that its header names is missing: "
                    + gone.getMessage());
        }
        header = now;
        pageSeen = null;
    }

    // -- open and closed -------------------------------------------------------------------------------------

    private void checkOpen() throws IOException {
        if (isClosed) {
            throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
        }
    }

    @Override
    public synchronized void close() throws IOException {
        isClosed = true;
        closeAll(streams);
        closeAll(vectored);
    }

    private static void closeAll(Map<String, FSDataInputStream> some) throws IOException {
        IOException failure = null;
        for (FSDataInputStream stream : some.values()) {
            try {
                stream.close();
            } catch (IOException error) {
                failure = error;
            }
        }
        some.clear();
        if (failure != null) {
            throw failure;
        }
    }
}
