"""The Hadoop filesystem, in Java (`src`), and what compiles it."""
