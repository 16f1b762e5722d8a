package rollingfs.hadoop.format;

/** The reason why a line, a reference or a header is refused. */
public final class Malformed extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    Malformed(String message) {
        super(message);
    }
}
