package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import rollingfs.hadoop.Header.Adopted;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Commit;
import rollingfs.hadoop.Header.Drop;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Mark;
import rollingfs.hadoop.Header.Page;
import rollingfs.hadoop.Header.Phase;

/** How a header changes, and what one says of an attempt to replace it; as in Python's module of this name. Pure. */
final class Transitions {
    /** By how much {@link #stamp} can lengthen a header's text. */
    static final int STAMP_BYTES_MAX = 256;
    private static final int DROPS_BYTES_MAX = 16 * 1024;

    private Transitions() {}

    /** What the header now says of an attempt to replace its predecessor. */
    enum Verdict {
        /** It took place. */
        MINE,
        /** It has not taken place, but still may. */
        SAME,
        /** It did not take place and never will. */
        NOT_MINE,
        /** Nothing can be said. */
        UNKNOWN
    }

    /** The segment is the source of a rename or concat under way: resolve its mark, then try again. */
    static final class MergeFound extends RollingException {
        private static final long serialVersionUID = 1L;
        final transient Header header;

        MergeFound(String name, Header header) {
            super(name + " is the source of a concat or rename under way");
            this.header = header;
        }
    }

    /** Merge marks, or a plain copy under way, must be settled before this transition. */
    static final class MarksFull extends RollingException {
        private static final long serialVersionUID = 1L;

        MarksFull(Header header) {
            super("segment " + header.segment + " has merge marks, or a plain copy under way, to be settled");
        }
    }

    /**
     * Whether operation {@code number} of {@code writer}, conditioned on {@code base}, took place.
     *
     * @param base the header that the attempt would have replaced; null if there was none
     * @param same whether the file still is what the attempt was conditioned on
     * @param current the header that is there now; null if there is none, or an empty file
     */
    static Verdict judge(Header base, boolean same, Header current, String writer, long number) {
        if (same) {
            return Verdict.SAME;
        }
        if (current == null) {
            return Verdict.UNKNOWN;
        }
        long baseVersion = base == null ? 0 : base.version;
        long mine = current.commits.stream().filter(line -> line.writer().equals(writer))
                .mapToLong(Commit::number).findFirst().orElse(-1);
        if (mine == number) {
            return Verdict.MINE;
        }
        boolean isLost = mine > number || current.evicted > baseVersion || current.version <= baseVersion;
        return isLost ? Verdict.UNKNOWN : Verdict.NOT_MINE;
    }

    /** Make a commit of a transition's result: next version, the writer's line, the time. */
    static Header stamp(Header wanted, Header base, String writer, long number, long nowMs) {
        Header next = wanted.copy();
        next.version = base == null ? 1 : base.version + 1;
        next.evicted = base == null ? 0 : base.evicted;
        List<Commit> commits = new ArrayList<>(base == null ? List.of() : base.commits);
        commits.removeIf(line -> line.writer().equals(writer));
        if (commits.size() >= Header.COMMITS_MAX) {
            commits.sort(Comparator.comparingLong(Commit::version));
            while (commits.size() >= Header.COMMITS_MAX) {
                next.evicted = Math.max(next.evicted, commits.remove(0).version());
            }
        }
        commits.add(new Commit(writer, number, next.version));
        next.commits = List.copyOf(commits);
        next.modifiedMs = nowMs;
        return next;
    }

    // -- checks ----------------------------------------------------------------------------------------------

    static FileNotFoundException missing(String name) {
        return new FileNotFoundException("No such segment or file: " + name);
    }

    /** The header, if an operation that changes the segment may go on. */
    static Header check(Header header, String name) throws FileNotFoundException, RollingException {
        if (header == null || header.deleted()) {
            throw missing(name);
        }
        if (header.phase == Phase.MERGING) {
            throw new MergeFound(name, header);
        }
        if (header.owner != null) {
            throw new RollingException.Fenced(name + " is held exclusively by '" + header.owner + "' (epoch "
                    + header.epoch + ")");
        }
        return header;
    }

    static void checkOpen(Header header, String name) throws RollingException.Sealed {
        if (header.phase == Phase.SEALED) {
            throw new RollingException.Sealed(name + " is sealed at length " + header.length()
                    + "; it takes no more bytes");
        }
    }

    private static void checkSettled(Header header) throws MarksFull {
        if (!header.merges.isEmpty() || !header.aborts.isEmpty() || copyUnderWay(header) != null) {
            throw new MarksFull(header);
        }
    }

    /**
     * The line which says that the plain copy of a live segment is being written, or that somebody died at it; else
     * null. It is none that this reader knows: {@code plain INCARNATION START TIME}, without the time once it is whole.
     */
    static String copyUnderWay(Header header) {
        return header.deleted() ? null : header.unknown.stream()
                .filter(line -> line.startsWith("plain " + header.segment + " ") && line.split(" ").length == 4)
                .findFirst().orElse(null);
    }

    // -- one segment -----------------------------------------------------------------------------------------

    /** A new incarnation: empty, open, over nothing, a tombstone, or a segment whose content becomes drops. */
    static Header create(Header base, String segment, Header.Policy policy, long nowMs, Adopted adopted)
            throws RollingException {
        Header fresh = new Header(segment);
        fresh.policy = policy;
        fresh.adopted = adopted;
        fresh.createdMs = nowMs;
        if (base != null) {
            checkSettled(base);
            fresh.version = base.version;
            fresh.epoch = base.epoch + 1;
            fresh.adopted = adopted != null ? adopted : base.adopted;
            fresh.drops = dropAll(base, nowMs);
        }
        return fresh;
    }

    /** Put entries and a new inline tail behind the entries that are there; the old tail is part of them. */
    static Header extend(Header header, List<Entry> entries, byte[] tail, long nowMs) {
        Header next = header.copy();
        List<Entry> all = new ArrayList<>(header.entries);
        all.addAll(entries);
        boolean isGrown = header.tail.length > 0 && entries.isEmpty();
        next.entries = List.copyOf(all);
        next.tail = tail;
        next.tailAtMs = tail.length == 0 ? 0 : isGrown ? header.tailAtMs : nowMs;
        return next;
    }

    /** The segment is gone, what is left says so; {@code merged} is the transaction that took its content, or null. */
    static Header tombstone(Header header, String merged) throws RollingException {
        checkSettled(header);
        Header grave = new Header(header.segment);
        grave.version = header.version;
        grave.phase = Phase.DELETED;
        grave.merged = merged;
        grave.epoch = header.epoch;
        grave.policy = header.policy;
        grave.adopted = header.adopted;
        grave.createdMs = header.createdMs;
        grave.unknown = header.unknown;
        return grave;
    }

    // -- drops -----------------------------------------------------------------------------------------------

    /** What is still to be deleted once the whole content is gone; pages with foreign chunks are collection's. */
    static List<Drop> dropAll(Header header, long nowMs) {
        List<Drop> drops = new ArrayList<>();
        for (Entry entry : header.entries) {
            boolean isOwn = entry.file().indexOf('/') < 0;
            if (entry instanceof Chunk chunk) {
                String folder = Names.parent(chunk.file());
                boolean isHint = !isOwn || Names.isStaged(chunk.file());
                drops.add(isHint ? Drop.hint((isOwn ? "." : folder) + "/", nowMs, chunk.size())
                        : Drop.ofFile(chunk.file(), nowMs));
            } else if (entry instanceof Page page && isOwn && page.foreign() == 0) {
                long first = Math.max(header.start, page.start()) - page.start() + page.offset();
                drops.add(new Drop(page.file(), nowMs, first, page.offset() + page.length(), true, 0, 0));
            }
        }
        return mergeDrops(header.drops, drops);
    }

    /** Join drop lines: one hint a folder, and no more lines than fit; collection finds what is left out. */
    static List<Drop> mergeDrops(List<Drop> old, List<Drop> more) {
        Map<String, Drop> hints = new LinkedHashMap<>();
        List<Drop> rest = new ArrayList<>();
        for (List<Drop> some : List.of(old, more)) {
            for (Drop drop : some) {
                if (drop.isHint()) {
                    hints.merge(drop.file(), drop, (one, two) -> Drop.hint(one.file(), one.atMs(),
                            one.size() + two.size()));
                } else {
                    rest.add(drop);
                }
            }
        }
        rest.sort(Comparator.comparing(drop -> !drop.isPage()));
        List<Drop> all = new ArrayList<>(hints.values());
        all.addAll(rest);
        List<Drop> kept = new ArrayList<>();
        int size = 0;
        for (Drop drop : all.subList(0, Math.min(all.size(), Header.DROPS_MAX))) {
            size += lineBytes(drop);
            if (size > DROPS_BYTES_MAX) {
                break;
            }
            kept.add(drop);
        }
        return List.copyOf(kept);
    }

    /** Note other chunk folders that this segment referred to until now: their pins name it. */
    static Header withHints(Header header, List<String> folders, long nowMs) {
        if (folders.isEmpty()) {
            return header;
        }
        Header next = header.copy();
        next.drops = mergeDrops(header.drops, folders.stream().map(folder -> Drop.hint(folder, nowMs, 0)).toList());
        return next;
    }

    /** Leave out drop lines that save so many bytes of text, for collection to find. */
    static Header shedDrops(Header header, int over) {
        List<Drop> kept = new ArrayList<>(header.drops);
        while (!kept.isEmpty() && over > 0) {
            over -= lineBytes(kept.remove(kept.size() - 1));
        }
        Header next = header.copy();
        next.drops = List.copyOf(kept);
        return next;
    }

    private static int lineBytes(Drop drop) {
        return Lines.format(drop).getBytes(StandardCharsets.UTF_8).length + 1;
    }

    // -- two segments ----------------------------------------------------------------------------------------

    /** Give a source back its prior state, after its transaction was aborted in the target. */
    static Header unmark(Header header) {
        Header next = header.copy();
        next.phase = header.merge.prior();
        next.merge = null;
        return next;
    }

    /** In a target: this transaction will never take place. */
    static Header withAborted(Header header, Mark mark) throws MarksFull {
        if (header.merges.size() + header.aborts.size() >= Header.MARKS_MAX) {
            throw new MarksFull(header);
        }
        Header next = header.copy();
        List<Mark> aborts = new ArrayList<>(header.aborts);
        aborts.add(mark);
        next.aborts = List.copyOf(aborts);
        return next;
    }

    /** Forget all marks, whose sources were seen not to be merging in their transactions any more. */
    static Header settle(Header header, List<Mark> marks) {
        Header next = header.copy();
        next.merges = header.merges.stream().filter(mark -> !marks.contains(mark)).toList();
        next.aborts = header.aborts.stream().filter(mark -> !marks.contains(mark)).toList();
        return next;
    }

    /** Give up the plain copy that is under way; {@code left} names what is left of it, or is null. */
    static Header settleCopy(Header header, Adopted left) {
        Header next = header.copy();
        String copy = copyUnderWay(header);
        next.unknown = header.unknown.stream().filter(line -> !line.equals(copy)).toList();
        next.adopted = left != null ? left : header.adopted;
        return next;
    }
}
