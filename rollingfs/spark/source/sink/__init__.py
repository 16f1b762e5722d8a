"""Writes: what tasks send and stage, and the one commit of a job or of a batch of a stream.

In: Arrow record batches. Out: header replacements. Must not be here: how rows become bytes; the formats know.
"""
