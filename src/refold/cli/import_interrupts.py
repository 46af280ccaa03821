"""Ctrl+C while modules are imported: it ends the process at once and silently.

As an exception it could be raised, or lost, anywhere in an imported module. While modules
are imported, nothing has begun yet that would need an orderly end.
"""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def exit_on_interrupt() -> Generator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, or handled elsewhere
        yield
        return
    signal.signal(signal.SIGINT, _exit_at_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_at_interrupt(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)
