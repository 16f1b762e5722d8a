package rollingfs.hadoop;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;

/** Reads a segment in every way that a stream offers, and compares with the bytes that it must have. */
public final class Compare {
    private static final int ROUNDS = 100;

    private Compare() {}

    /** A local folder with segments, one with plain files of the same names, perhaps the root of the tier "cold". */
    public static void main(String[] folders) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.rolling+file.impl", RollingFileSystem.class.getName());
        if (folders.length > 2) {
            conf.set("fs.rolling.tier.cold.root", folders[2]);
        }
        try (var files = Files.newDirectoryStream(Path.of(folders[1]))) {
            for (Path file : files) {
                var url = new org.apache.hadoop.fs.Path("rolling+file", null, folders[0] + "/" + file.getFileName());
                compare(url.getFileSystem(conf), url, Files.readAllBytes(file));
            }
        }
        System.out.println("equal");
    }

    private static void compare(FileSystem fs, org.apache.hadoop.fs.Path url, byte[] expected) throws Exception {
        check(fs.getFileStatus(url).getLen() == expected.length, url + ": another length");
        Random random = new Random(expected.length);
        try (FSDataInputStream stream = fs.open(url)) {
            check(Arrays.equals(stream.readAllBytes(), expected), url + ": read through");
            check(stream.read() == -1, url + ": read at the end");
            for (int round = 0; round < ROUNDS && expected.length > 0; round++) {
                int start = random.nextInt(expected.length);
                byte[] wanted = Arrays.copyOfRange(expected, start,
                        start + random.nextInt(Math.min(expected.length - start, 5000) + 1));
                byte[] found = new byte[wanted.length];
                stream.readFully(start, found);
                check(Arrays.equals(found, wanted), url + ": read at " + start);
                stream.seek(start);
                stream.readFully(found);
                check(Arrays.equals(found, wanted), url + ": sought " + start);
            }
            for (int round = 0; round < ROUNDS / 10; round++) {
                vectored(stream, expected, random, url.toString());
            }
        }
    }

    private static void vectored(FSDataInputStream stream, byte[] expected, Random random, String name)
            throws Exception {
        List<FileRange> ranges = new ArrayList<>();
        for (int start = 0; start < expected.length;) {
            start += random.nextInt(expected.length / 3 + 1);
            int length = random.nextInt(Math.max(expected.length - start, 0) / 2 + 1);
            if (start + length <= expected.length && length > 0) {
                ranges.add(FileRange.createFileRange(start, length));
            }
            start += length + 1;
        }
        stream.readVectored(ranges, ByteBuffer::allocate);
        for (FileRange range : ranges) {
            byte[] found = new byte[range.getLength()];
            range.getData().get().get(found);
            byte[] wanted = Arrays.copyOfRange(expected, (int) range.getOffset(),
                    (int) range.getOffset() + range.getLength());
            check(Arrays.equals(found, wanted), name + ": vectored read of " + range);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
