package rollingfs.hadoop.format;

import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import rollingfs.hadoop.RollingException;

/** The names on the store: which file belongs to which segment, and how one file refers to another. Pure. */
public final class Names {
    public static final String HEADER_SUFFIX = "$header";
    public static final String CHUNKS_SUFFIX = "$chunks";
    private static final String TIER_SCHEME = "tier:";
    private static final String LOCK_NAME = "lock";
    /** A file of this name, the header of nothing, lets an empty folder be there on a store without folders. */
    public static final String KEPT_NAME = HEADER_SUFFIX;
    public static final String REMOVED_NAME = "$removed";
    /** A segment in the folder of a stream, with the state of the stream; listings hide it. */
    public static final String LEDGER_NAME = "$stream";
    /** A segment with what the headers of its folder said; listings hide it, and this filesystem does not use it. */
    public static final String LISTING_NAME = "$listing";

    /** A folder of this name belongs to the committers of Hadoop. */
    private static final String SCRATCH_NAME = "_temporary";
    /** Characters that ext4 with casefold and HFS+ leave out when they compare names. */
    private static final Pattern IGNORABLE = Pattern.compile("[\\p{Cf}\\x{fe00}-\\x{fe0f}\\x{180b}-\\x{180f}\\x{34f}\\x{115f}\\x{1160}"
            + "\\x{17b4}\\x{17b5}\\x{3164}\\x{ffa0}\\x{fff0}-\\x{fff8}\\x{e0000}-\\x{e0fff}]");

    private Names() {}

    public static String headerPath(String segment) {
        return segment + HEADER_SUFFIX;
    }

    public static String chunksFolder(String segment) {
        return segment + CHUNKS_SUFFIX;
    }

    /** The segment whose header file this is. */
    public static String segmentOfHeader(String path) {
        return path.substring(0, path.length() - HEADER_SUFFIX.length());
    }

    /** The segment whose chunk folder this is. */
    public static String segmentOfFolder(String folder) {
        return folder.substring(0, folder.length() - CHUNKS_SUFFIX.length());
    }

    public static String baseName(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Whether this base name is that of a header file. */
    public static boolean isHeader(String name) {
        return name.endsWith(HEADER_SUFFIX) && name.length() > HEADER_SUFFIX.length() && !name.contains(CHUNKS_SUFFIX);
    }

    /** A name as disks compare it that take "Log" and "log" for one file. */
    private static String folded(String name) {
        return IGNORABLE.matcher(name).replaceAll("").toUpperCase(Locale.ROOT).toLowerCase(Locale.ROOT);
    }

    /** Whether a listing hides this base name, in small and capital letters. */
    public static boolean isHidden(String name) {
        String last = folded(name);
        return last.endsWith(HEADER_SUFFIX) || last.contains(CHUNKS_SUFFIX) || last.equals(REMOVED_NAME)
                || (isHiddenSegment(last) && !isHiddenSegment(name));
    }

    /** Whether no segment, plain file or folder of a user can have this path. */
    public static boolean isReserved(String path) {
        return isHidden(baseName(path)) || folded(path).contains(CHUNKS_SUFFIX);
    }

    /** Whether listings hide this segment, and a folder with nothing else in it is empty. */
    public static boolean isHiddenSegment(String path) {
        return baseName(path).equals(LEDGER_NAME) || baseName(path).equals(LISTING_NAME);
    }

    /** Whether a committer of Hadoop keeps this path until its job ends. */
    public static boolean isScratch(String path) {
        return path.contains("/" + SCRATCH_NAME + "/");
    }

    /** The folder to which the job of such a path writes. */
    public static String outputOf(String scratch) {
        return scratch.substring(0, scratch.indexOf("/" + SCRATCH_NAME + "/"));
    }

    /** Whether a folder always exists: the root, a bucket. */
    public static boolean isTop(String path) {
        return path.equals("/") || path.indexOf('/') < 0;
    }

    /** The folder that holds a path; at the top, "/" for an absolute path and "" for another ("bucket"). */
    public static String parent(String path) {
        int slash = path.lastIndexOf('/');
        return slash < 0 ? "" : slash == 0 ? "/" : path.substring(0, slash);
    }

    /** Refuse a reference unless it names a file in a chunk folder: a header must not make a reader open another. */
    static void checkReference(String reference) {
        int slash = reference.lastIndexOf('/');
        String name = reference.substring(slash + 1);
        String last = folded(name);
        if (name.isEmpty() || name.equals(".") || name.equals("..") || last.equals(LOCK_NAME)
                || last.endsWith(HEADER_SUFFIX) || last.endsWith(CHUNKS_SUFFIX)) {
            throw new Malformed("names no chunk file");
        }
        if (reference.indexOf('\0') >= 0) {
            throw new Malformed("has a NUL character");
        }
        if (slash <= 0) {
            if (slash == 0) {
                throw new Malformed("refers outside a '$chunks' folder");
            }
            return;
        }
        String folder = reference.substring(0, slash);
        if (folder.startsWith("/") || !folder.endsWith(CHUNKS_SUFFIX)) {
            throw new Malformed("refers outside a '$chunks' folder");
        }
        String[] parts = folder.split("/", -1);
        boolean climbing = true;
        for (int index = 0; index < parts.length; index++) {
            String part = parts[index];
            climbing = climbing && part.equals("..");
            if (part.isEmpty() || part.equals(".") || (part.equals("..") && !climbing)) {
                throw new Malformed("is not a plain relative path");
            }
            if (part.contains(CHUNKS_SUFFIX) && index != parts.length - 1) {
                throw new Malformed("refers inside a chunk folder");
            }
        }
        if (parts[parts.length - 1].equals(CHUNKS_SUFFIX)) {
            throw new Malformed("names a chunk folder without a segment");
        }
    }

    /** How much of a header or an index page to read: a byte more than the format allows, which its parser refuses. */
    public static int readBytesMax(String path) {
        return 1 + (path.endsWith(HEADER_SUFFIX) ? Codec.BYTES_MAX : IndexCodec.BYTES_MAX);
    }

    /** Refuse the path of another segment, relative to a folder, if it is no name or climbs not only at its front. */
    static void checkRelative(String path) {
        String rest = path;
        while (rest.startsWith("../")) {
            rest = rest.substring(3);
        }
        if (rest.chars().anyMatch(found -> found == '\n' || found == '\r' || found == 0)) {
            throw new Malformed("'" + path + "' is not a segment name: it has a line break or a NUL character");
        }
        String inner = rest.startsWith("/") ? rest.substring(1) : rest;
        if (isReserved(rest) || List.of(inner.split("/", -1)).stream().anyMatch(Set.of("", ".", "..")::contains)) {
            throw new Malformed("'" + path + "' is no path of a segment");
        }
    }

    /** The path of a file that the header of a segment refers to. */
    public static String resolve(String segment, String reference) throws RollingException.Corrupt {
        if (reference.indexOf('/') < 0) {
            return chunksFolder(segment) + "/" + reference;
        }
        return climb(parent(segment), reference);
    }

    /** The one spelling of a reference; of one that climbs above the root, itself. */
    static String spelled(String segment, String reference) {
        try {
            return resolve(segment, reference);
        } catch (RollingException.Corrupt error) {
            return reference;
        }
    }

    /** Apply a relative path to a folder. */
    private static String climb(String folder, String relative) throws RollingException.Corrupt {
        while (relative.startsWith("../")) {
            if (folder.isEmpty() || folder.equals("/")) {
                throw new RollingException.Corrupt("reference '" + relative + "' climbs above the root of the store");
            }
            folder = parent(folder);
            relative = relative.substring(3);
        }
        return folder.isEmpty() || folder.equals("/") ? folder + relative : folder + "/" + relative;
    }

    /** The path of a file that the header of a segment refers to, perhaps in a tier ("" is the hot store). */
    public static String locate(String segment, String reference, String tier) throws RollingException.Corrupt {
        String path = resolve(segment, reference);
        return tier.isEmpty() ? path : TIER_SCHEME + tier + "/" + path;
    }

    /** The alias of the tier of a path; null in the hot store. */
    public static String tierOf(String path) {
        return path.startsWith(TIER_SCHEME) ? path.substring(TIER_SCHEME.length(), path.indexOf('/')) : null;
    }

    /** The path in the hot store that is parallel to one in a tier. */
    public static String withoutTier(String path) {
        return path.substring(path.indexOf('/') + 1);
    }
}
