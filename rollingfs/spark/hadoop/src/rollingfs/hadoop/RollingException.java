package rollingfs.hadoop;

import java.io.IOException;

/** The errors that are rollingfs' own; what is missing or there already is told by Hadoop's exceptions. */
public class RollingException extends IOException {
    private static final long serialVersionUID = 1L;

    public RollingException(String message) {
        super(message);
    }

    /** A header, an index page or a chunk is not what it must be; the message says what and why. */
    public static final class Corrupt extends RollingException {
        private static final long serialVersionUID = 1L;

        public Corrupt(String message) {
            super(message);
        }
    }

    /** The bytes asked for were truncated away after the file was opened. */
    public static final class Truncated extends RollingException {
        private static final long serialVersionUID = 1L;

        public Truncated(String message) {
            super(message);
        }
    }

    /** The call would change a segment: nothing was changed, and the message says which command does it. */
    public static final class Refused extends RollingException {
        private static final long serialVersionUID = 1L;

        public Refused(String message) {
            super(message);
        }
    }
}
