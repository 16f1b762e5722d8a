"""The backend for Azure, for Google, and for stores that obstore's own filesystem is open on.

In: a container or bucket as `rollingfs.backend.cloud.container` asks for it, paths that begin with its name. Out: what
`rollingfs.backend.contract` promises. Must not be here: anything that knows what a header says; signing and sockets.
obstore and gcsfs are imported only when their modules here are.
"""
