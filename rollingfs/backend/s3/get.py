"""GetObject, as headers are looked at and ranges read: by template, without what botocore does for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from aiobotocore.endpoint import convert_to_response_dict

from rollingfs.backend.s3.template import Templates

_NEEDED = ("etag", "last-modified", "content-length")


class Gets:
    """The GETs of one botocore client.

    Parameters
    ----------
    client
        The botocore client.
    """

    def __init__(self, client: Any) -> None:
        self._operation = client.meta.service_model.operation_model("GetObject")
        self._templates = Templates(client.meta.events, "GetObject")
        self._allowed = True

    async def get(
        self, bucket: str, key: str, headers: Mapping[str, str], by_botocore: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Send one GetObject, once.

        Parameters
        ----------
        headers
            ``Range``, ``If-Match`` or ``If-None-Match``, if any.
        by_botocore
            Sends the same through botocore.

        Returns
        -------
        dict
            Of what botocore would say: ``Body``, ``ETag``, ``LastModified``, ``ContentLength``, and ``ContentRange`` if
            it is there.

        Raises
        ------
        BotoCoreError, ClientError
            As botocore does.
        """
        if not self._allowed:
            return await by_botocore()
        template = self._templates.of(bucket)
        if template is None:
            return await self._templates.learn(bucket, key, b"", by_botocore)
        answer = await self._templates.send(bucket, template, key, headers)
        if answer.status_code >= 300:
            raise self._templates.refusal(answer.status_code, answer.headers, await answer.content)
        if not all(name in answer.headers for name in _NEEDED):
            answer.raw.close()
            self._allowed = False  # a store that says so little would be asked twice each time
            return await by_botocore()
        found = {
            "Body": (await convert_to_response_dict(answer, self._operation))["body"],
            "ETag": answer.headers["etag"],
            "LastModified": parsedate_to_datetime(answer.headers["last-modified"]),
            "ContentLength": int(answer.headers["content-length"]),
        }
        if "content-range" in answer.headers:
            found["ContentRange"] = answer.headers["content-range"]
        return found
