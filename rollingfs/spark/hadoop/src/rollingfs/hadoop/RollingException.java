package rollingfs.hadoop;

import java.io.IOException;

/** The errors that are rollingfs' own; what is missing or there already is told by Hadoop's exceptions. */
public class RollingException extends IOException {
    private static final long serialVersionUID = 1L;

    RollingException(String message) {
        super(message);
    }

    RollingException(String message, Throwable cause) {
        super(message, cause);
    }

    /** A header, an index page, a pin or a chunk is not what it must be; the message says what and why. */
    public static final class Corrupt extends RollingException {
        private static final long serialVersionUID = 1L;

        Corrupt(String message) {
            super(message);
        }
    }

    /** The segment is sealed: it takes no more bytes. */
    public static final class Sealed extends RollingException {
        private static final long serialVersionUID = 1L;

        Sealed(String message) {
            super(message);
        }
    }

    /** Another owner holds the segment exclusively. */
    public static final class Fenced extends RollingException {
        private static final long serialVersionUID = 1L;

        Fenced(String message) {
            super(message);
        }
    }

    /** The bytes asked for were truncated away after the file was opened. */
    public static final class Truncated extends RollingException {
        private static final long serialVersionUID = 1L;

        Truncated(String message) {
            super(message);
        }
    }

    /** The store never said whether a commit took place: it may or may not be there. */
    public static final class OutcomeUnknown extends RollingException {
        private static final long serialVersionUID = 1L;

        OutcomeUnknown(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** Others were faster for too long. Nothing was written. */
    public static final class Conflict extends RollingException {
        private static final long serialVersionUID = 1L;

        Conflict(String message) {
            super(message);
        }
    }

    /** The store cannot replace a header atomically, so that writing through it could lose data. */
    public static final class Unsafe extends RollingException {
        private static final long serialVersionUID = 1L;

        Unsafe(String message) {
            super(message);
        }
    }
}
