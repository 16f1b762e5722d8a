package rollingfs.hadoop;

import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import rollingfs.hadoop.format.Header;

/** The messages of refusals: what the path is, that nothing was changed, and which command does it. */
final class Refusal {
    private static final Pattern SAFE = Pattern.compile("[\\w@%+=:,./-]+");

    private Refusal() {}

    /** A call that would change a segment. */
    static String ofSegment(Path path, Header header, String advice) {
        String state = String.format(Locale.ROOT, "a segment (%s, %,d bytes)", header.phase.word(), header.size());
        return sentence(path, state, advice);
    }

    /** A call that would change the segments somewhere below a folder. */
    static String ofFolder(Path path, List<Path> segments, String advice) {
        String more = segments.size() > 1 ? " and " + (segments.size() - 1) + " more" : "";
        return sentence(path, "a folder that holds the segment " + url(segments.get(0)) + more, advice);
    }

    /** An append to a plain file, which would make a segment of it. */
    static String ofAppend(Path path) {
        return sentence(path, "a plain file, to which only rollingfs can append, by making a segment of it",
                command("append", path));
    }

    private static String sentence(Path path, String state, String advice) {
        return url(path) + " is " + state
                + "; Hadoop reads segments and does not change them, so nothing was changed: use " + advice;
    }

    /** A path as the command line takes it, with the slashes of an empty authority, which Hadoop leaves out. */
    static String url(Path path) {
        String authority = path.toUri().getAuthority();
        return path.toUri().getScheme() + "://" + (authority == null ? "" : authority) + path.toUri().getPath();
    }

    static String command(String verb, Path... paths) {
        StringBuilder line = new StringBuilder("`rollingfs ").append(verb);
        for (Path path : paths) {
            String text = url(path);
            line.append(' ').append(SAFE.matcher(text).matches() ? text : "'" + text.replace("'", "'\\''") + "'");
        }
        return line.append('`').toString();
    }
}
