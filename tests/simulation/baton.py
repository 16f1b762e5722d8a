"""Blocking code in virtual time: a thread of its own, which runs only while the loop waits for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_here = threading.local()
_sleep = time.sleep


class Baton:
    """A blocking call that hands each coroutine to the loop, and goes on with its result.

    Loop and thread never run at the same time, so a seed replays exactly.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._to_thread, self._to_loop = threading.Semaphore(0), threading.Semaphore(0)
        self._asked: Coroutine[Any, Any, Any] | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    async def run(self) -> Any:
        """Run the call to its end, on the loop that runs this."""
        thread = threading.Thread(target=self._run)
        thread.start()
        self._hand_over()
        while (asked := self._asked) is not None:
            self._value = self._error = None
            try:
                self._value = await asked
            except BaseException as error:  # noqa: BLE001 - raised again in the thread
                self._error = error
            self._hand_over()
        thread.join()
        return self._outcome()

    def _hand_over(self) -> None:
        self._asked = None
        self._to_thread.release()
        self._to_loop.acquire()

    def _run(self) -> None:
        self._to_thread.acquire()
        _here.baton = self
        value, error = None, None
        try:
            value = self._call()
        except BaseException as raised:  # noqa: BLE001 - raised again in the loop
            error = raised
        self._value, self._error = value, error
        self._to_loop.release()

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Let the loop run a coroutine; called in the thread."""
        self._asked = coroutine
        self._to_loop.release()
        self._to_thread.acquire()
        found: T = self._outcome()
        return found

    def _outcome(self) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value


def current() -> Baton | None:
    """The baton of the thread that calls this, if it has one."""
    return getattr(_here, "baton", None)


def sleep(seconds: float) -> None:
    """Stands in for `time.sleep`: virtual time passes."""
    baton = current()
    if baton is None:
        _sleep(seconds)
    else:
        baton.ask(asyncio.sleep(seconds))
