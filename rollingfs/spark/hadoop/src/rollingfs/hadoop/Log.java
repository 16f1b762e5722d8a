package rollingfs.hadoop;

/** What went wrong beside an operation that succeeded. */
final class Log {
    private static final System.Logger LOGGER = System.getLogger("rollingfs");

    private Log() {}

    static void warn(String message, Exception cause) {
        LOGGER.log(System.Logger.Level.WARNING, message, cause);
    }
}
