package rollingfs.hadoop;

import java.io.IOException;
import java.util.List;
import java.util.SortedSet;
import java.util.UUID;
import rollingfs.hadoop.Header.Adopted;
import rollingfs.hadoop.Header.Entry;
import rollingfs.hadoop.Header.Mark;
import rollingfs.hadoop.Header.Merge;
import rollingfs.hadoop.Header.Phase;

/**
 * Giving a segment another name: a concat into a new incarnation at the target. No byte is moved.
 *
 * <p>The source is marked, which freezes its map; its chunk folders are pinned; one commit gives its entries to the
 * target; then it becomes a tombstone. A crash in between leaves a mark that anyone resolves.
 */
final class Renames {
    private static final int TRIES_MAX = 16;
    private final Segments segments;
    private final Committer committer;

    Renames(Segments segments) {
        this.segments = segments;
        this.committer = segments.committer;
    }

    /** Another client has undone the mark, because it took this mover for dead: begin again. */
    private static final class MarkLost extends RollingException {
        private static final long serialVersionUID = 1L;

        MarkLost(String message) {
            super(message);
        }
    }

    /** Rename a segment that has a header, over what may be at the target. */
    void rename(String source, String target) throws IOException {
        for (int count = 1;; count++) {
            try {
                renameOnce(source, target);
                return;
            } catch (MarkLost lost) {
                if (count >= TRIES_MAX) {
                    throw new RollingException.Conflict(source + ": " + lost.getMessage() + "; tried " + count
                            + " times, it is not renamed");
                }
                Backoff.sleep(Backoff.pauseMs(count));
            }
        }
    }

    private void renameOnce(String source, String target) throws IOException {
        String txn = UUID.randomUUID().toString();
        String incarnation = UUID.randomUUID().toString();
        Header now;
        try {
            Header frozen = mark(source, target, txn, incarnation);
            pin(source, target, txn, frozen);
            now = move(source, target, txn, incarnation);
        } catch (RollingException.OutcomeUnknown unknown) {
            throw unknown; // the mark stays, and is resolved by whoever meets it
        } catch (IOException | RuntimeException error) {
            undo(source, txn, error);
            throw error;
        }
        try {
            committer.merges().finish(source, txn);
        } catch (IOException error) {
            Log.warn(source + " is renamed; its mark is resolved by whoever meets it", error);
        }
        committer.finishDrops(target, now);
    }

    /** Freeze a source, open or sealed. */
    private Header mark(String source, String target, String txn, String incarnation) throws IOException {
        return committer.commit(source, (base, attempt) -> {
            if (base.header() != null && base.header().isMerging(txn)) {
                return null;
            }
            Header next = Transitions.check(base.header(), source).copy();
            if (Transitions.copyUnderWay(next) != null) {
                throw new Transitions.MarksFull(next);
            }
            next.merge = new Merge(txn, Names.relative(Names.parent(source), target), incarnation, next.phase,
                    System.currentTimeMillis());
            next.phase = Phase.MERGING;
            return next;
        });
    }

    /** Say in every folder that the entries name that the target refers to it. */
    private void pin(String source, String target, String txn, Header frozen) throws IOException {
        for (String folder : folders(source, frozen)) {
            // whole or not at all: a torn pin would keep the folder from being collected
            committer.store.write(folder + "/" + Names.PIN_PREFIX + txn, Codec.formatPin(txn, source, target, folder));
        }
    }

    /** Where the retained bytes lie: the target will have no trace of a folder that only dropped chunks lie in. */
    private SortedSet<String> folders(String source, Header frozen) throws IOException {
        List<Entry> retained =
                frozen.entries.stream().map(entry -> Layout.clip(entry, frozen.start, entry.end())).toList();
        return committer.pages.folders(source, retained);
    }

    private Header move(String source, String target, String txn, String incarnation) throws IOException {
        return committer.commit(target, (base, attempt) -> {
            Header old = base.header();
            if (old != null && old.hasMerged(txn)) {
                return null;
            }
            if (base.isLive()) {
                Transitions.check(old, target);
            }
            if (old != null && old.hasAborted(txn)) {
                throw new MarkLost("the rename of " + source + " was aborted by another client");
            }
            Header frozen = committer.load(source).header(); // after the target
            if (frozen == null || !frozen.isMerging(txn)) {
                throw new MarkLost("the rename of " + source + " was undone by another client");
            }
            Adopted adopted = base.isLive() ? null : segments.shadow(target, old);
            Header next = renamed(source, target, txn, incarnation, frozen, old, adopted);
            List<String> hints = old == null ? List.of() : committer.pages.hints(target, old.entries, target);
            return Transitions.withHints(next, hints, System.currentTimeMillis());
        });
    }

    private static Header renamed(String source, String target, String txn, String incarnation, Header frozen,
            Header old, Adopted adopted) throws IOException {
        long nowMs = System.currentTimeMillis();
        Header next = Transitions.create(old, incarnation, frozen.policy, nowMs, adopted);
        next.phase = frozen.merge.prior();
        next.epoch = Math.max(frozen.epoch, old == null ? 0 : old.epoch) + 1;
        next.start = frozen.start;
        next.entries = Layout.transplant(frozen, source, target);
        next.tail = frozen.tail;
        next.tailAtMs = frozen.tailAtMs;
        next.attrs = frozen.attrs;
        next.merges = List.of(new Mark(txn, Names.relative(Names.parent(target), source)));
        next.createdMs = frozen.createdMs;
        next.unknown = frozen.unknown;
        return next;
    }

    /** Take the mark back: the transaction certainly did not and will not take place. */
    private void undo(String source, String txn, Exception cause) {
        try {
            Header frozen = committer.load(source).header();
            if (frozen != null && frozen.isMerging(txn)) {
                committer.merges().reset(source, txn);
                // nobody will ever refer by this transaction; with the target absent no collection could tell
                for (String folder : folders(source, frozen)) {
                    committer.store.delete(folder, List.of(folder + "/" + Names.PIN_PREFIX + txn));
                }
            }
        } catch (IOException error) {
            cause.addSuppressed(error); // the mark stays until somebody meets it
        }
    }
}
