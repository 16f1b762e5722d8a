"""Commits that several writers share: a writer asks, and another writer's commit carries its bytes.

In: a plain append (`Attempt`, `Plain`) of a client that shares commits. Out: the header to base an attempt on, the asks
that this attempt carries, or the result of an append that another writer has carried. Outside of this room three calls
of a `Share` are used: `before` an attempt, `beside` a PUT, and `judge` a header. Specified under "Asks" in
``docs/protocol.md``.

`share` has the three calls; it says what became of an append, and withdraws its ask. `others` decides when a
writer asks, reads, lists and competes: speed and fairness only. `files` writes and reads the files of asks.
Must not be here: which asks a header admits, and what a header says of an operation; that is in `rollingfs.format`.
"""

from rollingfs.commit.sharing.share import share_of as share_of
