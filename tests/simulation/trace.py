"""A trace of a world: every call that arrives at the store, with its operation, and every answer to a caller."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tests.simulation.faults import Way
from tests.simulation.history import Doing, History, running

WIDTH = 160


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Print what goes on."""
    call, ended, begin = Way.call, History.ended, History.begin

    def say(*words: object) -> None:
        print(f"{asyncio.get_running_loop().time():13.3f}", *(str(word)[:WIDTH] for word in words))

    async def tell_call(self: Way, verb: str, *args: Any) -> Any:
        doing = running.get()
        number = f"#{doing.number}" if doing is not None else "-"
        try:
            answer = await call(self, verb, *args)
        except BaseException as error:
            say(number, verb, str(args[0])[:100], type(error).__name__, str(error)[:50])
            raise
        say(number, verb, str(args[0])[:100], str(args[1])[:60] if verb in ("copy",) else "")
        return answer

    def tell_end(self: History, doing: Doing, told: str, value: Any = None) -> None:
        ended(self, doing, told, value)
        say("END", doing, value)

    def tell_begin(self: History, *args: Any) -> Doing:
        doing = begin(self, *args)
        say("BEGIN", doing)
        return doing

    with (
        mock.patch.object(Way, "call", tell_call),
        mock.patch.object(History, "ended", tell_end),
        mock.patch.object(History, "begin", tell_begin),
    ):
        yield
