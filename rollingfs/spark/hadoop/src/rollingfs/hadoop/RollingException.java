package rollingfs.hadoop;

import java.io.IOException;

/** An error of rollingfs. Hadoop's own exceptions say that a file is missing, or there already. */
public class RollingException extends IOException {
    private static final long serialVersionUID = 1L;

    public RollingException(String message) {
        super(message);
    }

    /** A header, an index page or a chunk is damaged or too new; the message says which file and why. */
    public static final class Corrupt extends RollingException {
        private static final long serialVersionUID = 1L;

        public Corrupt(String message) {
            super(message);
        }
    }

    /** A header names a tier of which the configuration does not know the root. */
    public static final class UnknownTier extends RollingException {
        private static final long serialVersionUID = 1L;

        public UnknownTier(String message) {
            super(message);
        }
    }

    /** The bytes were truncated away after the file was opened. */
    public static final class Truncated extends RollingException {
        private static final long serialVersionUID = 1L;

        public Truncated(String message) {
            super(message);
        }
    }

    /** A call would change a segment. Nothing was changed; the message says which command does it. */
    public static final class Refused extends RollingException {
        private static final long serialVersionUID = 1L;

        public Refused(String message) {
            super(message);
        }
    }
}
