package rollingfs.hadoop;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** The names on the store: which file belongs to which segment, and how one refers to another. Pure. */
final class Names {
    static final String HEADER_SUFFIX = "$header";
    static final String CHUNKS_SUFFIX = "$chunks";
    static final String LOCK_NAME = "lock";
    static final String INDEX_PREFIX = "index-";
    static final String PIN_PREFIX = "pin-";
    static final String STAGED_PREFIX = "stage-";
    static final String PROBE_PREFIX = "probe-";
    static final String TEMPORARY_PREFIX = "tmp-";
    static final String REMOVED_NAME = "$removed";
    /** A segment in the folder of a stream, with what the stream remembers; listings hide it. */
    static final String LEDGER_NAME = "$stream";
    private static final int RANDOM_DIGITS = 12;

    private Names() {}

    static String headerPath(String segment) {
        return segment + HEADER_SUFFIX;
    }

    static String chunksFolder(String segment) {
        return segment + CHUNKS_SUFFIX;
    }

    /** The segment whose header file this is. */
    static String segmentOfHeader(String path) {
        return path.substring(0, path.length() - HEADER_SUFFIX.length());
    }

    /** The segment whose chunk folder this is. */
    static String segmentOfFolder(String folder) {
        return folder.substring(0, folder.length() - CHUNKS_SUFFIX.length());
    }

    private static String random() {
        return UUID.randomUUID().toString().replace("-", "").substring(0, RANDOM_DIGITS);
    }

    /** A chunk file name never used before: start offset when written, then a random part. */
    static String newChunkName(long start) {
        return String.format("%020d-%s", start, random());
    }

    static String newIndexName() {
        return INDEX_PREFIX + random();
    }

    static String newTemporaryName() {
        return TEMPORARY_PREFIX + random() + random();
    }

    static String baseName(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Whether a chunk reference names a staged chunk, which only collection may delete. */
    static boolean isStaged(String reference) {
        return baseName(reference).startsWith(STAGED_PREFIX);
    }

    /** Whether a listing hides this base name. */
    static boolean isHidden(String name) {
        return name.endsWith(HEADER_SUFFIX) || name.contains(CHUNKS_SUFFIX) || name.equals(REMOVED_NAME);
    }

    /** Whether nothing of this path can be a segment, a plain file or a folder of the user. */
    static boolean isReserved(String path) {
        return path.endsWith(HEADER_SUFFIX) || path.contains(CHUNKS_SUFFIX) || baseName(path).equals(REMOVED_NAME);
    }

    /** A path that a header names as that of a segment; anything reserved is none. */
    static String checkSegment(String path) {
        if (path.isEmpty() || path.endsWith("/") || isReserved(path)) {
            throw new Malformed("'" + path + "' is no segment name");
        }
        return path;
    }

    static boolean isLedger(String path) {
        return baseName(path).equals(LEDGER_NAME);
    }

    /** Whether a folder is there without being made: the root, a bucket. */
    static boolean isTop(String path) {
        return path.equals("/") || path.indexOf('/') < 0;
    }

    /** The folder that holds a path; at the top "/" of an absolute path, "" of another ("bucket"). */
    static String parent(String path) {
        int slash = path.lastIndexOf('/');
        return slash < 0 ? "" : slash == 0 ? "/" : path.substring(0, slash);
    }

    /** Refuse a reference that does not name a file in some chunk folder: a header must not open any other. */
    static void checkReference(String reference) {
        int slash = reference.lastIndexOf('/');
        String name = reference.substring(slash + 1);
        if (name.isEmpty() || name.equals(".") || name.equals("..") || name.equals(LOCK_NAME)
                || name.endsWith(HEADER_SUFFIX) || name.endsWith(CHUNKS_SUFFIX)) {
            throw new Malformed("names no chunk file");
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

    /** The path of a file that the header of a segment refers to. */
    static String resolve(String segment, String reference) {
        if (reference.indexOf('/') < 0) {
            return chunksFolder(segment) + "/" + reference;
        }
        return climb(parent(segment), reference);
    }

    /** Apply a relative path to a folder. */
    static String climb(String folder, String relative) {
        while (relative.startsWith("../")) {
            if (folder.isEmpty() || folder.equals("/")) {
                throw new Malformed("reference '" + relative + "' climbs above the root of the store");
            }
            folder = parent(folder);
            relative = relative.substring(3);
        }
        return folder.isEmpty() || folder.equals("/") ? folder + relative : folder + "/" + relative;
    }

    /** How the header of a segment refers to a file: the inverse of {@link #resolve}. */
    static String relate(String segment, String path) {
        String folder = parent(path);
        return folder.equals(chunksFolder(segment)) ? baseName(path) : relative(parent(segment), path);
    }

    /** A path as seen from a folder. */
    static String relative(String folder, String path) {
        String trimmed = folder.endsWith("/") ? folder.substring(0, folder.length() - 1) : folder;
        String[] here = folder.isEmpty() ? new String[0] : trimmed.split("/", -1);
        String[] there = path.split("/", -1);
        int common = 0;
        while (common < here.length && common < there.length - 1 && here[common].equals(there[common])) {
            common++;
        }
        List<String> parts = new ArrayList<>();
        for (int index = common; index < here.length; index++) {
            parts.add("..");
        }
        parts.addAll(List.of(there).subList(common, there.length));
        return String.join("/", parts);
    }
}
