"""The task that the command line passes to the modules `print` and `stdio`."""

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager

import anyio
from msgspec import Struct

from refold.client.launch import Launch
from refold.client.session import Session
from refold.client.types import ImageData
from refold.values.modes import AWAITED_SECONDS

TIMED_OUT_CODE = 3  # exit codes
INTERRUPTED_CODE = 130
WAITING_TEXT = "waits for {}, which is to wake the agent"
_CLOSE_TIMEOUT_SECONDS = 5.0


class Task(Struct, frozen=True, kw_only=True):
    """A task without a terminal, from the command line.

    Steps that may fail are callables, so that an error in them is printed in the chosen format.
    """

    text: str
    input_format: str
    output_format: str
    partial_messages: bool
    timeout: float | None  # seconds
    verify: bool
    resumes: bool
    inside: Callable[[], AbstractContextManager[object]]  # enters a working tree of its own
    images: Callable[[], Sequence[ImageData]]
    launch: Callable[[bool], Launch]  # called with whether a user can be asked
    open: Callable[[Launch], Awaitable[Session]]


def longest_wait(limit: float | None) -> float:
    """Return how many seconds to wait for news of background commands.

    `limit` is the time limit of the task, or None. With a limit, the result is infinite,
    because the limit ends the wait.
    """
    return AWAITED_SECONDS if limit is None else math.inf


def long_wait_reason(waiting: str) -> str:
    return f"it waited {AWAITED_SECONDS:g} s for {waiting}: --timeout SECONDS sets another limit"


async def close_launch(launch: Launch) -> None:
    """Close everything that `launch` has open, even if this task is cancelled.

    The time for this is limited.
    """
    with anyio.move_on_after(_CLOSE_TIMEOUT_SECONDS, shield=True):
        await launch.aclose()
