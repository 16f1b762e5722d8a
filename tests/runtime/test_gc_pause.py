"""`collected_later`: garbage is collected as before after it, however it ends, nests and threads."""

import gc

import pytest

from rollingfs.runtime.interpreter import collected_later
from tests.support.forks import is_so_in_child, needs_fork
from tests.support.schedules import held_elsewhere


@pytest.mark.parametrize("is_on", [True, False])
def test_collection_pauses_inside_and_resumes_after(is_on):
    if not is_on:
        gc.disable()  # as a user may have done
    try:
        with collected_later():
            assert not gc.isenabled()
            with collected_later():
                pass
            assert not gc.isenabled()
        assert gc.isenabled() == is_on
        with pytest.raises(ZeroDivisionError), collected_later():
            _ = 1 / 0
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_the_last_of_several_threads_turns_it_on():
    with held_elsewhere(collected_later()):
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@needs_fork
def test_a_forked_child_collects_again():
    def is_on_outside_alone() -> bool:
        is_on = gc.isenabled()
        with collected_later():
            return is_on and not gc.isenabled()

    with held_elsewhere(collected_later()):
        assert is_so_in_child(lambda: is_on_outside_alone() and gc.isenabled())
