"""`collected_later`: garbage is collected as before after it, however it ends, nests and threads."""

from __future__ import annotations

import gc
import os

import pytest

from rollingfs.runtime.garbage import collected_later
from tests.support.schedules import held_elsewhere


def test_nothing_is_collected_inside_and_all_as_before_after_it():
    with collected_later():
        assert not gc.isenabled()
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collected_later():
        _ = 1 / 0
    assert gc.isenabled()


def test_what_a_user_has_turned_off_stays_off():
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_of_several_threads_turns_it_on():
    with held_elsewhere(collected_later()):
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_collects_though_another_thread_was_inside():
    with held_elsewhere(collected_later()):
        child = os.fork()
        if not child:
            is_on = gc.isenabled()
            with collected_later():
                is_off = not gc.isenabled()
            os._exit(0 if is_on and is_off and gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
    assert not status
