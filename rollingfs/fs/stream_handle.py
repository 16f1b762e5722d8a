"""`Stream`: a folder of segments as a log, which is cut, trimmed and kept within bounds."""

from __future__ import annotations

from typing import Any

from rollingfs.folders.listing import REPORT, OnError
from rollingfs.fs.core import Core
from rollingfs.fs.methods import both, name_for_users
from rollingfs.policy import OffloadPolicy
from rollingfs.stream import stream_verbs
from rollingfs.stream.members import Members
from rollingfs.stream.retention import RetentionPolicy


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
        self._members = Members(core.client, path, on_error)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr(self._fs, "stream"), (self.path, self._on_error)  # noqa: B009 - None cannot be pickled so

    def __repr__(self) -> str:
        last = self._members.last
        return f"<Stream {self.path!r}{'' if last is None else f', {len(last.names)} segments when listed'}>"

    def _repr_html_(self) -> str:
        """Return the text for a notebook: the segments as they were last listed; it sends no request."""
        from rollingfs.show.notebook import stream_html

        return stream_html(self.path, self._members.last)

    @property
    def path(self) -> str:
        """The folder, as the backend names it."""
        return self._members.path

    segments, _segments = both(stream_verbs.segments, of="_members")
    infos, _infos = both(stream_verbs.infos, of="_members")
    size, _size = both(stream_verbs.size, of="_members")
    delete, _delete = both(stream_verbs.delete, of="_members")
    cut, _cut = both(stream_verbs.cut, of="_members")
    trim, _trim = both(stream_verbs.trim, of="_members")
    cuts, _cuts = both(stream_verbs.cuts, of="_members")
    publish, _publish = both(stream_verbs.publish, of="_members")
    subscribe, _subscribe = both(stream_verbs.subscribe, of="_members")
    subscribers, _subscribers = both(stream_verbs.subscribers, of="_members")
    unsubscribe, _unsubscribe = both(stream_verbs.unsubscribe, of="_members")
    retain, _retain = both(stream_verbs.retain, of="_members")
    offload, _offload = both(stream_verbs.offload, of="_members")
    _get_retention = both(stream_verbs.get_retention, of="_members")[1]
    _set_retention = both(stream_verbs.set_retention, of="_members")[1]
    _change_retention = both(stream_verbs.change_retention, of="_members")[1]
    _get_offload_policy = both(stream_verbs.get_offload_policy, of="_members")[1]
    _set_offload_policy = both(stream_verbs.set_offload_policy, of="_members")[1]

    @property
    def retention(self) -> RetentionPolicy | None:
        """The limits of the stream; None for everything. It is stored with the stream, and read from there."""
        return self._bridge.run(stream_verbs.get_retention(self._members))

    @retention.setter
    def retention(self, policy: RetentionPolicy | None) -> None:
        self._bridge.run(stream_verbs.set_retention(self._members, policy))

    @property
    def offload_policy(self) -> OffloadPolicy | None:
        """Chunks that `offload` moves; None if the folder has no policy of its own. It is stored with the stream."""
        return self._bridge.run(stream_verbs.get_offload_policy(self._members))

    @offload_policy.setter
    def offload_policy(self, policy: OffloadPolicy | None) -> None:
        self._bridge.run(stream_verbs.set_offload_policy(self._members, policy))


name_for_users(Stream, "Stream")
