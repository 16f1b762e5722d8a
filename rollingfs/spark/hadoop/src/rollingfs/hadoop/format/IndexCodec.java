package rollingfs.hadoop.format;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import rollingfs.hadoop.RollingException;
import rollingfs.hadoop.format.Header.Chunk;
import rollingfs.hadoop.format.Header.Page;

/** Reads index pages, and refuses one that is damaged. Pure. */
public final class IndexCodec {
    private static final String FORMAT = "rollingfs-index 1";
    static final int BYTES_MAX = 16 * 1024 * 1024;
    private static final int CHUNKS_MAX = 4096;

    private IndexCodec() {}

    /** Read an index page, and check it against the page line of the header, if that is given (else null). */
    public static List<Chunk> parse(byte[] data, Page page, String name) throws RollingException.Corrupt {
        int position = 0;
        String line = "";
        List<Chunk> chunks = new ArrayList<>();
        try {
            if (page != null && (data.length != page.size() || Tokens.crc32c(data) != page.crc32c())) {
                throw new Malformed("it has not the size or the checksum that the header says");
            }
            Tokens.checkSize(data, BYTES_MAX);
            Tokens.Text text = Tokens.splitText(data, FORMAT);
            if (text.lines().size() > CHUNKS_MAX) {
                throw new Malformed("it has more chunks than a page may have");
            }
            position = 1;
            for (String found : text.lines()) {
                position++;
                line = found;
                chunks.add(parseLine(found));
            }
            position = 0;
            check(chunks, text.bytes() == data.length, page);
        } catch (Malformed | ArithmeticException error) {
            throw Tokens.corrupt(name, position, line, error);
        }
        return List.copyOf(chunks);
    }

    private static Chunk parseLine(String line) {
        List<String> words = Arrays.asList(line.split(" ", -1));
        if (!words.get(0).equals("Chunk")) {
            throw new Malformed("line kind '" + words.get(0)
                    + "' is too new for this release: upgrade rollingfs to read it");
        }
        Tokens.word(words, 1);
        return LineCodec.parseChunk(words.subList(1, words.size()));
    }

    private static void check(List<Chunk> chunks, boolean isWhole, Page page) {
        if (!isWhole || chunks.isEmpty() || (page != null && chunks.size() != page.chunks())) {
            throw new Malformed("it has not as many chunks as the header says, or bytes after its end");
        }
        for (int index = 1; index < chunks.size(); index++) {
            if (chunks.get(index - 1).end() != chunks.get(index).start()) {
                throw new Malformed("its chunks leave a gap or overlap");
            }
        }
        long end = chunks.get(chunks.size() - 1).end();
        if (chunks.get(0).start() != 0 || (page != null && end < Math.addExact(page.offset(), page.length()))) {
            throw new Malformed("its chunks do not cover what the header says");
        }
    }
}
