package rollingfs.hadoop;

/** Why a line, a reference or a header cannot be believed or must not be written. */
final class Malformed extends IllegalArgumentException {
    private static final long serialVersionUID = 1L;

    Malformed(String message) {
        super(message);
    }
}
