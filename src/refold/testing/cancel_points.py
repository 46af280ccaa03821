"""Cancels a coroutine at each of its await points, one after the other."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")


class CutAt(Generic[T]):
    """Awaiting it awaits `work`, and cancels `scope` at the n-th wait, from 0.

    `reached` says whether there were that many.
    """

    def __init__(self, work: Awaitable[T], scope: anyio.CancelScope, at: int) -> None:
        self._work, self._scope, self._left = work, scope, at
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._work.__await__()
        step: Callable[[], Any] = inner.__next__
        while True:
            try:
                waited_for = step()
            except StopIteration as end:
                return end.value
            if self._left == 0:
                self.reached = True
                self._scope.cancel()
            self._left -= 1
            try:
                sent = yield waited_for
            except BaseException as error:  # a cancellation: the work's to deal with
                step = _throwing(inner, error)
            else:
                step = _sending(inner, sent)


def _throwing(inner: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: inner.throw(error)


def _sending(inner: Any, sent: Any) -> Callable[[], Any]:
    return lambda: inner.send(sent)


async def cut_at_each_wait(
    work: Callable[[], Awaitable[object]], check: Callable[[], None], most: int = 100
) -> int:
    """Do `work` again and again, cancelled one wait later each time.

    `check` is called after each. Returns how many waits there were.
    """
    for at in range(most):
        scope = anyio.CancelScope()
        cut = CutAt(work(), scope, at)
        with scope:
            await cut
        check()
        if not cut.reached:
            return at
    raise AssertionError(f"the work still waits after {most} waits")
