package rollingfs.hadoop;

import java.nio.file.Files;
import java.nio.file.Path;

/** Reads header files and index pages, and writes each again as it was understood, or why it was refused. */
public final class Rewrite {
    private Rewrite() {}

    /** Two folders: from, to. */
    public static void main(String[] folders) throws Exception {
        try (var files = Files.newDirectoryStream(Path.of(folders[0]))) {
            for (Path file : files) {
                String name = file.getFileName().toString();
                Path to = Path.of(folders[1], name);
                try {
                    byte[] data = Files.readAllBytes(file);
                    Files.write(to, name.endsWith(".page") ? Codec.formatPage(Codec.parsePage(data, null, name))
                            : Codec.format(Codec.parse(data, name)));
                } catch (RollingException.Corrupt error) {
                    Files.writeString(Path.of(to + ".refused"), error.getMessage());
                }
            }
        }
    }
}
