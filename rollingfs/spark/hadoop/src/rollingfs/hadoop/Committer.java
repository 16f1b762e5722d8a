package rollingfs.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import rollingfs.hadoop.Header.Chunk;
import rollingfs.hadoop.Header.Drop;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Mark;
import rollingfs.hadoop.Header.Page;
import rollingfs.hadoop.Transitions.Verdict;

/**
 * The commit loop: the only way in which a header is replaced.
 *
 * <p>Load the header, compute the next one, replace it on condition that nobody did first. No answer of the store is
 * a verdict by itself: after anything but success the header is loaded and looked at. As in Python's module
 * {@code commit}; specified in {@code docs/protocol.md}.
 */
final class Committer {
    /** Not final, because tests have less time. */
    static volatile long commitMsMax = 60_000;
    private static final int REFUSALS_MAX = 2;
    /** So often is an index page looked for that a header names; it may be another segment's, just being replaced. */
    private static final int GONE_MAX = 3;
    final Store store;
    final Pages pages;
    private final Segments segments;
    private final Probe probe;
    private final Merges merges;
    private final String writer = UUID.randomUUID().toString().replace("-", "");
    private final AtomicLong numbers = new AtomicLong();

    Committer(Segments segments) {
        this.segments = segments;
        this.store = segments.store;
        this.pages = new Pages(store);
        this.probe = new Probe(store);
        this.merges = new Merges(this);
    }

    /** A header file as it was read: no file, an empty one (a token, but no header), or a header. */
    record Loaded(Header header, String token) {
        boolean isLive() {
            return header != null && !header.deleted();
        }
    }

    /** From what is there, the header that should be there (not stamped), or null if it is there already. */
    interface Step {
        Header next(Loaded base, Attempt attempt) throws IOException;
    }

    /** What one commit has prepared so far, kept across its attempts. */
    static final class Attempt {
        final Uploads uploads;
        /** Files that an attempt which was sent has named: from then on only collection may delete them. */
        final Set<String> named;
        private final Map<List<Entry>, Page> pages = new HashMap<>();
        private final long number;
        private final long deadline = System.nanoTime() + commitMsMax * 1_000_000;
        private int count;
        private int gone;

        Attempt(long number, Uploads uploads, Set<String> named) {
            this.number = number;
            this.uploads = uploads;
            this.named = named;
        }

        boolean isLate() {
            return System.nanoTime() > deadline;
        }
    }

    Merges merges() {
        return merges;
    }

    Loaded load(String path) throws IOException {
        Store.Blob blob = store.read(Names.headerPath(path));
        return blob == null ? new Loaded(null, null)
                : new Loaded(Codec.parse(blob.data(), Names.headerPath(path)), blob.token());
    }

    Header commit(String path, Step step) throws IOException {
        return commit(path, new HashSet<>(), step);
    }

    /**
     * Commit what {@code step} makes of the header, resolving a merge that is found under way.
     *
     * @param named gets the chunk references that attempts which were sent have named, whatever comes of them
     * @return the header that is there now, by this commit or because nothing had to be done
     */
    Header commit(String path, Set<String> named, Step step) throws IOException {
        probe.check(path);
        long deadline = System.nanoTime() + commitMsMax * 1_000_000;
        while (true) {
            try {
                // one commit in flight per writer and segment, else their numbers could overtake each other
                synchronized ((writer + " " + path).intern()) {
                    return commitHeld(path, named, step);
                }
            } catch (Transitions.MergeFound found) {
                merges.resolve(path, found.header);
            } catch (Transitions.MarksFull full) {
                if (System.nanoTime() > deadline) {
                    throw full;
                }
                settle(path);
            }
        }
    }

    private Header commitHeld(String path, Set<String> named, Step step) throws IOException {
        Attempt attempt = new Attempt(numbers.incrementAndGet(), new Uploads(store, path), named);
        try {
            Loaded base = load(path);
            while (true) {
                Header next;
                try {
                    next = prepared(path, base, step, attempt);
                } catch (Pages.PageGone gone) {
                    base = withoutPage(path, base, attempt, gone);
                    continue;
                }
                if (next == null) {
                    return base.header();
                }
                Outcome outcome = attempt(path, base, next, attempt);
                if (outcome.committed() != null) {
                    return outcome.committed();
                }
                base = outcome.instead();
                checkTime(path, attempt, true);
            }
        } finally {
            attempt.uploads.discard(attempt.named);
        }
    }

    /** A step's header with all that every commit adds: done lines cleared, folded, stamped; null if there is none. */
    private Header prepared(String path, Loaded base, Step step, Attempt attempt) throws IOException {
        Header wanted = step.next(cleared(path, base), attempt);
        if (wanted == null) {
            return null;
        }
        long nowMs = System.currentTimeMillis();
        List<String> names = wanted.entries.stream().map(Entry::file).toList(); // before folding hides them
        Header folded = pages.fold(path, wanted, attempt.pages, nowMs);
        attempt.named.addAll(names);
        return Transitions.stamp(folded, base.header(), writer, attempt.number, nowMs);
    }

    /** The header that no longer names a page that is gone, its own or that of another segment that a step read. */
    private Loaded withoutPage(String path, Loaded base, Attempt attempt, Pages.PageGone gone) throws IOException {
        Loaded current = load(path);
        attempt.gone += Objects.equals(current.token(), base.token()) ? 1 : 0;
        if (attempt.gone >= GONE_MAX) {
            throw new RollingException.Corrupt(path + ": an index page that a header names is missing: "
                    + gone.getMessage());
        }
        checkTime(path, attempt, true);
        return current;
    }

    /** What became of an attempt: what was committed, or else what is there instead. */
    private record Outcome(Header committed, Loaded instead) {}

    private Outcome attempt(String path, Loaded base, Header next, Attempt attempt) throws IOException {
        byte[] data = Codec.format(next);
        int refusals = 0;
        int doubts = 0;
        while (true) {
            attempt.count++;
            IOException cause;
            try {
                replace(path, base, data);
                return new Outcome(next, null);
            } catch (IOException error) {
                cause = error;
            }
            Loaded current = look(path, attempt, cause);
            boolean isSame = Objects.equals(current.token(), base.token());
            Verdict verdict = Transitions.judge(base.header(), isSame, current.header(), writer, attempt.number);
            if (verdict == Verdict.MINE) {
                return new Outcome(current.header(), null);
            }
            if (verdict == Verdict.NOT_MINE) {
                return new Outcome(null, current);
            }
            if (verdict == Verdict.UNKNOWN) {
                throw unknown(path, "the header was replaced so often that no trace is left", cause);
            }
            boolean isRefusal = store.isRefusal(cause);
            refusals += isRefusal ? 1 : 0;
            doubts += isRefusal ? 0 : 1;
            if (refusals >= REFUSALS_MAX && doubts > 0) {
                throw unknown(path, "the store refuses now, but an earlier request may still arrive", cause);
            }
            if (refusals >= REFUSALS_MAX) {
                throw cause;
            }
            checkTime(path, attempt, false);
        }
    }

    private void replace(String path, Loaded base, byte[] data) throws IOException {
        if (base.token() == null) {
            store.create(Names.headerPath(path), data);
        } else {
            store.replace(Names.headerPath(path), data, base.token());
        }
    }

    /** The header as it is now; asked again until the deadline, because without it nothing is known. */
    private Loaded look(String path, Attempt attempt, IOException cause) throws IOException {
        // jitter before the look, not after it: the next attempt must not be conditioned on what a pause has made old
        long pauseMs = Backoff.pauseMs(attempt.count);
        for (int count = 1; count == 1 || !attempt.isLate(); count++) {
            try {
                Backoff.sleep(pauseMs);
                return load(path);
            } catch (RollingException error) {
                throw unknown(path, "its header cannot be read: " + error.getMessage(), cause);
            } catch (IOException error) {
                if (Thread.currentThread().isInterrupted()) {
                    throw unknown(path, "the thread was interrupted", cause);
                }
                cause.addSuppressed(error);
            }
            pauseMs = Backoff.pauseMs(count + 3);
        }
        throw unknown(path, "the store did not answer in time", cause);
    }

    /** Raise what is to be said if there is no time for another attempt. */
    private static void checkTime(String path, Attempt attempt, boolean isSettled) throws RollingException {
        if (!attempt.isLate()) {
            return;
        }
        if (!isSettled) {
            throw unknown(path, "the store did not answer in time", null);
        }
        throw new RollingException.Conflict(path + ": other writers were faster " + attempt.count + " times in "
                + commitMsMax + " ms; nothing was written");
    }

    private static RollingException unknown(String path, String why, Throwable cause) {
        return new RollingException.OutcomeUnknown(path + ": whether the commit took place is unknown (" + why
                + "); read the segment before repeating it", cause);
    }

    /** Resolve the sources of all marks that a segment has, and give up its plain copy; drop the lines. */
    private void settle(String path) throws IOException {
        Header found = load(path).header();
        if (found == null) {
            return;
        }
        List<Mark> marks = merges.settle(path, found);
        commit(path, (base, attempt) -> {
            if (base.header() == null) {
                return null;
            }
            Header next = Transitions.settle(base.header(), marks);
            return Transitions.copyUnderWay(next) == null ? next : withoutCopy(path, next);
        });
    }

    private Header withoutCopy(String path, Header header) throws IOException {
        if (store.hasUploads()) {
            String url = store.hadoopPath(path).toString();
            String since = Transitions.copyUnderWay(header).split(" ")[3];
            throw new RollingException(url + ": its plain copy is being written since " + since + ", or that was "
                    + "broken off, and only rollingfs in Python can take back what is being uploaded. Nothing was "
                    + "changed, and it can be read. Finish the copy by `rollingfs consolidate --plain " + url
                    + "`, then try again; or use `rollingfs rm` or `rollingfs mv`, which give the copy up");
        }
        return Transitions.settleCopy(header, segments.leftCopy(path, header));
    }

    // -- drops -----------------------------------------------------------------------------------------------

    /** What was loaded, without the drop lines that are due: they are finished, so that the commit leaves them out. */
    private Loaded cleared(String path, Loaded base) {
        if (base.header() == null || base.header().drops.isEmpty()) {
            return base;
        }
        List<Drop> done = finishDrops(path, base.header());
        if (done.isEmpty()) {
            return base;
        }
        Header header = base.header().copy();
        header.drops = header.drops.stream().filter(drop -> !done.contains(drop)).toList();
        return new Loaded(header, base.token());
    }

    /**
     * Delete what the drop lines of a committed header name, in the segment's own folder.
     *
     * @return the lines that are done; those of what could not be deleted stay for the next commit
     */
    List<Drop> finishDrops(String path, Header header) {
        try {
            return deleteDropped(path, header);
        } catch (IOException error) {
            Log.warn(path + ": deleting what it dropped failed, the next commit tries again", error);
            return List.of();
        }
    }

    private List<Drop> deleteDropped(String path, Header header) throws IOException {
        List<Drop> due = new ArrayList<>();
        List<String> files = new ArrayList<>();
        List<String> dropped = new ArrayList<>();
        for (Drop drop : header.drops) {
            if (drop.isHint() || drop.file().indexOf('/') >= 0 || drop.afterMs() > System.currentTimeMillis()) {
                continue;
            }
            due.add(drop);
            if (drop.isPage()) {
                files.addAll(droppedFrom(path, drop));
                if (drop.whole()) {
                    dropped.add(drop.file());
                }
            } else if (!Names.isStaged(drop.file())) {
                files.add(drop.file());
            }
        }
        deleteOwn(path, files);
        deleteOwn(path, dropped); // a page goes last: it alone names its chunks
        return due;
    }

    private List<String> droppedFrom(String path, Drop drop) throws IOException {
        List<Chunk> chunks;
        try {
            chunks = pages.raw(Names.resolve(path, drop.file()), null);
        } catch (FileNotFoundException gone) {
            return List.of(); // the page goes last, so its chunks are gone
        }
        return chunks.stream().filter(chunk -> drop.start() < chunk.end() && chunk.end() <= drop.end())
                .map(Chunk::file).filter(Committer::isOwn).toList();
    }

    /** Whether a reference names a file that the segment itself may delete. */
    static boolean isOwn(String reference) {
        return reference.indexOf('/') < 0 && !Names.isStaged(reference);
    }

    /** Delete files of a segment's own folder, by their names. */
    void deleteOwn(String path, List<String> names) throws IOException {
        if (!names.isEmpty()) {
            String folder = Names.chunksFolder(path);
            store.delete(folder, names.stream().map(name -> folder + "/" + name).toList());
        }
    }
}
