"""PutObject on a condition, as headers are created and replaced: by template, without what botocore does for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rollingfs.backend.s3.template import Templates


class Puts:
    """The conditional PUTs of one botocore client.

    Parameters
    ----------
    events
        The client's hooks (``client.meta.events``).
    """

    def __init__(self, events: Any) -> None:
        self._templates = Templates(events, "PutObject")

    async def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        condition: Mapping[str, str],
        by_botocore: Callable[[], Awaitable[dict[str, Any]]],
    ) -> str:
        """Send one PutObject, once; returns the ETag.

        Parameters
        ----------
        condition
            ``If-Match`` or ``If-None-Match``.
        by_botocore
            Sends the same through botocore.

        Raises
        ------
        BotoCoreError, ClientError
            As botocore does.
        """
        template = self._templates.of(bucket)
        if template is None:
            learnt = await self._templates.learn(bucket, key, body, by_botocore)
            return str(learnt["ETag"])
        answer = await self._templates.send(bucket, template, key, condition, body)
        content = await answer.content
        if answer.status_code == 200 and not content and "etag" in answer.headers:
            return str(answer.headers["etag"])
        raise self._templates.refusal(answer.status_code, answer.headers, content)
