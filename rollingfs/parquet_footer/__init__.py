"""The footers of Parquet files, which verbs join and cut: bytes to values, and values to bytes. Pure.

Must not be here: pyarrow, rows, and the appends of `rollingfs.parquet`, which are above the verbs.
"""
