"""What rollingfs costs, beside its rivals: ``python -m benchmarks``."""
