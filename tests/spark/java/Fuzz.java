package rollingfs.hadoop.format;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import rollingfs.hadoop.RollingException;

/** Parses many files from standard input, each behind its length, and says which it takes ("1") and refuses ("0"). */
public final class Fuzz {
    private Fuzz() {}

    /** The kind of the files: header or page. */
    public static void main(String[] kind) throws Exception {
        StringBuilder said = new StringBuilder();
        try (DataInputStream files = new DataInputStream(new BufferedInputStream(System.in, 1 << 20))) {
            while (true) {
                byte[] data = new byte[files.readInt()];
                files.readFully(data);
                said.append(isTaken(kind[0], data) ? '1' : '0');
            }
        } catch (EOFException end) {
            System.out.println(said);
        }
    }

    private static boolean isTaken(String kind, byte[] data) {
        try {
            if (kind.equals("page")) {
                IndexCodec.parse(data, null, "x");
            } else {
                Codec.parse(data, "x");
            }
            return true;
        } catch (RollingException.Corrupt error) {
            return false;
        }
    }
}
