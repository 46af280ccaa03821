"""The garbage collector is paused while a session is read, and runs afterwards."""

import gc
from collections.abc import Iterator

import pytest

from refold.cli.launch import gc_paused


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    gc.unfreeze()  # what another test of this process has kept
    yield
    gc.unfreeze()
    gc.enable()


def test_objects_made_in_the_pause_are_frozen_and_collection_goes_on_after() -> None:
    with gc_paused():
        during, made = gc.isenabled(), [[n] for n in range(10_000)]

    assert (during, gc.isenabled()) == (False, True)
    assert gc.get_freeze_count() > len(made)


def test_garbage_is_looked_for_again_when_nothing_could_be_read() -> None:
    with pytest.raises(OSError, match="gone"), gc_paused():
        raise OSError("gone")

    assert gc.isenabled()


def test_a_program_that_looks_for_none_is_left_alone() -> None:
    gc.disable()

    with gc_paused():
        pass

    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0
