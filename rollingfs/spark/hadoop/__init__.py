"""The Hadoop filesystem in Java (`src`), and its compiler.

In: Java sources. Out: ``rollingfs-hadoop.jar``. Java reads headers and never writes them.
Must not be here: imports of rollingfs, because the build hook runs where rollingfs is not installed.
"""
