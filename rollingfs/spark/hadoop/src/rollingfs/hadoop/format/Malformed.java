package rollingfs.hadoop.format;

/** Why a line, a reference or a header cannot be believed. */
public final class Malformed extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    Malformed(String message) {
        super(message);
    }
}
