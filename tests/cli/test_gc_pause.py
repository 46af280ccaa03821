"""The garbage collector is paused while a session is read, and runs afterwards."""

import gc
from collections.abc import Iterator

import pytest

from refold.cli.launch import pause_gc


@pytest.fixture(autouse=True)
def gc_settings() -> Iterator[None]:
    gc.unfreeze()  # objects of another test in this process
    yield
    gc.unfreeze()
    gc.enable()


def test_gc_pause_freezes_new_objects_and_enables_collection_afterwards() -> None:
    with pause_gc():
        during, numbers = gc.isenabled(), [[n] for n in range(10_000)]

    assert (during, gc.isenabled()) == (False, True)
    assert gc.get_freeze_count() > len(numbers)


def test_gc_pause_enables_collection_again_after_an_exception() -> None:
    with pytest.raises(OSError, match="gone"), pause_gc():
        raise OSError("gone")

    assert gc.isenabled()


def test_gc_pause_does_not_enable_a_disabled_collector() -> None:
    gc.disable()

    with pause_gc():
        pass

    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0
