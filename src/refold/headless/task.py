"""A task without a terminal: what the command line passes to `print` and `stdio`."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager

import anyio
from msgspec import Struct

from refold.client.launch import Launch
from refold.client.session import Session
from refold.client.types import ImageData

TIMED_OUT = 3  # exit codes
INTERRUPTED = 130
_CLOSING = 5.0  # seconds to close what is open, at most


class Task(Struct, frozen=True, kw_only=True):
    """What the command line asks for. Whatever may fail there is called, so that the last
    word on stdout is that of the chosen format all the same.
    """

    text: str
    input_format: str
    output_format: str
    partial_messages: bool
    timeout: float | None  # seconds
    verify: bool
    resumes: bool
    inside: Callable[[], AbstractContextManager[object]]  # a working tree of its own
    images: Callable[[], Sequence[ImageData]]
    launch: Callable[[bool], Launch]  # is anybody there to be asked?
    open: Callable[[Launch], Awaitable[Session]]


async def closed(launch: Launch) -> None:
    """Close what it has open, also where we are stopped, and in a bounded time."""
    with anyio.move_on_after(_CLOSING, shield=True):
        await launch.aclose()
