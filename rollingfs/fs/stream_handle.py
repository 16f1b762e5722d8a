"""`Stream`: a folder of segments as a log, which is cut, trimmed and kept within bounds."""

from __future__ import annotations

from typing import Any

from rollingfs.folders.listing import REPORT, Listings, OnError
from rollingfs.fs.core import Core
from rollingfs.fs.sync_async import both
from rollingfs.policy import OffloadPolicy
from rollingfs.stream.retention import RetentionPolicy
from rollingfs.stream.stream_verbs import StreamVerbs


class Stream:
    """A stream: the segments and plain files directly in a folder.

    Every method has an async twin of its name with an underscore before it. It may be pickled. Made by
    ``fs.stream(path)``, which sends no request.

    Parameters
    ----------
    path
        The folder, as the backend names it.
    on_error
        Treatment of segments whose header cannot be read: ``"report"`` goes on with the others and names these
        (in what `trim` and `retain` return, in `infos`, in the log); ``"raise"`` raises the first error. Neither trims
        or deletes such a segment.
    """

    def __init__(self, core: Core, path: str, on_error: OnError = REPORT) -> None:
        self._fs, self._on_error = core.fs, on_error
        self._bridge = core.bridge
        self._verbs = StreamVerbs(core.client, Listings(core.client), path, on_error)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr(self._fs, "stream"), (self.path, self._on_error)  # noqa: B009 - None cannot be pickled so

    def __repr__(self) -> str:
        last = self._verbs.members.last
        return f"<Stream {self.path!r}{'' if last is None else f', {len(last.names)} segments when listed'}>"

    def _repr_html_(self) -> str:
        """Return the text for a notebook: the segments as they were last listed; it sends no request."""
        from rollingfs.show.notebook import stream_html

        return stream_html(self.path, self._verbs.members.last)

    @property
    def path(self) -> str:
        """The folder, as the backend names it."""
        return self._verbs.path

    segments, _segments = both(StreamVerbs.segments)
    infos, _infos = both(StreamVerbs.infos)
    size, _size = both(StreamVerbs.size)
    delete, _delete = both(StreamVerbs.delete)
    cut, _cut = both(StreamVerbs.cut)
    trim, _trim = both(StreamVerbs.trim)
    cuts, _cuts = both(StreamVerbs.cuts)
    publish, _publish = both(StreamVerbs.publish)
    subscribe, _subscribe = both(StreamVerbs.subscribe)
    subscribers, _subscribers = both(StreamVerbs.subscribers)
    unsubscribe, _unsubscribe = both(StreamVerbs.unsubscribe)
    retain, _retain = both(StreamVerbs.retain)
    offload, _offload = both(StreamVerbs.offload)
    _get_retention = both(StreamVerbs.get_retention)[1]
    _set_retention = both(StreamVerbs.set_retention)[1]
    _change_retention = both(StreamVerbs.change_retention)[1]
    _get_offload_policy = both(StreamVerbs.get_offload_policy)[1]
    _set_offload_policy = both(StreamVerbs.set_offload_policy)[1]

    @property
    def retention(self) -> RetentionPolicy | None:
        """The limits of the stream; None for everything. It is stored with the stream, and read from there."""
        return self._bridge.run(self._verbs.get_retention())

    @retention.setter
    def retention(self, policy: RetentionPolicy | None) -> None:
        self._bridge.run(self._verbs.set_retention(policy))

    @property
    def offload_policy(self) -> OffloadPolicy | None:
        """Chunks that `offload` moves; None if the folder has no policy of its own. It is stored with the stream."""
        return self._bridge.run(self._verbs.get_offload_policy())

    @offload_policy.setter
    def offload_policy(self, policy: OffloadPolicy | None) -> None:
        self._bridge.run(self._verbs.set_offload_policy(policy))
