package rollingfs.hadoop;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;

/** Waiting, and how long ago something was by the clock that says more. */
final class Backoff {
    private static final double PAUSE_MS_MIN = 5;
    private static final double PAUSE_MS_MAX = 1000;
    private static final Path UPTIME = Path.of("/proc/uptime");

    private Backoff() {}

    /** An instant by the wall clock, which may jump back, and by the boot clock. */
    record Moment(long wallMs, long bootMs) {
        static Moment now() {
            return new Moment(System.currentTimeMillis(), sinceBootMs());
        }

        long ageMs() {
            return Math.max(System.currentTimeMillis() - wallMs, sinceBootMs() - bootMs);
        }
    }

    /** Milliseconds since boot, those asleep included where the system tells. */
    private static long sinceBootMs() {
        try {
            return (long) (Double.parseDouble(Files.readString(UPTIME).split(" ")[0]) * 1000);
        } catch (IOException error) {
            return System.nanoTime() / 1_000_000;
        }
    }

    /** A random pause before attempt 1, 2, …: exponential, with full jitter. */
    static long pauseMs(int attempt) {
        double most = Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * Math.pow(2, Math.min(attempt, 16)));
        return (long) ThreadLocalRandom.current().nextDouble(most);
    }

    static void sleep(long ms) throws InterruptedIOException {
        try {
            Thread.sleep(Math.max(ms, 0));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for another try");
        }
    }
}
