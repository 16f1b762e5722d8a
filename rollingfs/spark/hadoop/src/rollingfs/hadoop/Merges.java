package rollingfs.hadoop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import rollingfs.hadoop.Committer.Loaded;
import rollingfs.hadoop.Header.Mark;
import rollingfs.hadoop.Header.Merge;
import rollingfs.hadoop.Header.Phase;

/**
 * Merges under way: whoever meets the mark of a concat or rename finishes it or undoes it.
 *
 * <p>If the target has the transaction, the source becomes a tombstone; if not, the target is first told that it is
 * aborted, so that the mover cannot win any more, and then the source gets its prior state back.
 */
final class Merges {
    /** A younger mark belongs to a mover that is presumably alive, and is waited for. */
    private static final long MARK_AGE_MS_MAX = 5000;
    private static final long MARK_POLL_MS = 100;
    private final Committer committer;

    Merges(Committer committer) {
        this.committer = committer;
    }

    /** Resolve the merge of a source, or wait until its mover has. */
    void resolve(String path, Header header) throws IOException {
        Merge merge = header.merge;
        for (long waited = 0; waited < MARK_AGE_MS_MAX
                && System.currentTimeMillis() - merge.atMs() < MARK_AGE_MS_MAX; waited += MARK_POLL_MS) {
            Backoff.sleep(MARK_POLL_MS);
            Header now = committer.load(path).header();
            if (now == null || !now.isMerging(merge.txn())) {
                return;
            }
        }
        if (abort(path, Names.checkSegment(Names.climb(Names.parent(path), merge.target())), header)) {
            reset(path, merge.txn());
        } else {
            finish(path, merge.txn());
        }
    }

    /** Make sure that a merge never takes place; false if it has taken place already. */
    private boolean abort(String source, String target, Header header) throws IOException {
        Merge merge = header.merge;
        boolean[] tookPlace = new boolean[1];
        committer.commit(target, (base, attempt) -> {
            Header found = base.header();
            tookPlace[0] = found != null && found.hasMerged(merge.txn());
            if (tookPlace[0] || (found != null && found.hasAborted(merge.txn()))) {
                return null;
            }
            long nowMs = System.currentTimeMillis();
            if (found == null) {
                // nothing is there that could carry the line: a rename's target, not made yet
                found = new Header(merge.targetSegment());
                found.phase = Phase.DELETED;
                found.createdMs = nowMs;
            }
            // the pins in these folders name it: its tombstone, when it becomes one, must stay until they are gone
            found = Transitions.withHints(found, committer.pages.hints(source, header.entries, target), nowMs);
            return Transitions.withAborted(found,
                    new Mark(merge.txn(), Names.relative(Names.parent(target), source)));
        });
        return !tookPlace[0];
    }

    /** Give a source its prior state back, after its transaction can not take place any more. */
    void reset(String source, String txn) throws IOException {
        committer.commit(source, (base, attempt) -> isMerging(base, txn) ? Transitions.unmark(base.header()) : null);
    }

    /** Turn a source into a tombstone, after its transaction took place; its own drops are still to be deleted. */
    void finish(String source, String txn) throws IOException {
        committer.commit(source, (base, attempt) -> {
            if (!isMerging(base, txn)) {
                return null;
            }
            Header grave = Transitions.tombstone(base.header(), txn);
            grave.drops = base.header().drops;
            List<String> hints = committer.pages.hints(source, base.header().entries, source);
            return Transitions.withHints(grave, hints, System.currentTimeMillis());
        });
    }

    private static boolean isMerging(Loaded base, String txn) {
        return base.header() != null && base.header().isMerging(txn);
    }

    /** Resolve the sources of all marks of a target; returns the marks, which may go then. */
    List<Mark> settle(String target, Header header) throws IOException {
        for (Mark mark : header.merges) {
            finish(source(target, mark), mark.txn());
        }
        for (Mark mark : header.aborts) {
            reset(source(target, mark), mark.txn());
        }
        List<Mark> marks = new ArrayList<>(header.merges);
        marks.addAll(header.aborts);
        return marks;
    }

    private static String source(String target, Mark mark) {
        return Names.checkSegment(Names.climb(Names.parent(target), mark.source()));
    }
}
