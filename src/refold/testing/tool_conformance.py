"""The contract of a tool, as tests that tool authors can run.

class TestMyTool(ToolContract):
    @pytest.fixture
    def case(self):
        with temporary_place() as place:
            yield ToolCase(my_tool, {"path": "a.txt"}, place)
"""

from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio
import msgspec
import pytest
from msgspec import Struct

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.tools.contract import Tool

_MAX_DESCRIPTION_CHARS = 1024  # characters; the smallest limit of a provider
_MAX_NAME_CHARS = 64


class ToolCase(Struct):
    """A tool, the place in which it is called, and arguments with which the call succeeds."""

    tool: Tool
    arguments: dict[str, object]
    place: ToolDirectory


class ToolContract:
    """The contract of a tool: a subclass provides the fixture `case`."""

    def test_name_and_description_fit_all_providers(self, case: ToolCase) -> None:
        spec = case.tool.spec

        assert spec.name.isidentifier()
        assert len(spec.name) <= _MAX_NAME_CHARS
        assert 0 < len(spec.description) <= _MAX_DESCRIPTION_CHARS
        assert spec.description.isprintable()

    def test_its_schema_is_a_plain_object(self, case: ToolCase) -> None:
        schema = msgspec.json.decode(case.tool.spec.parameters)

        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert b"$ref" not in bytes(case.tool.spec.parameters)

    def test_subject_and_path_are_parameters(self, case: ToolCase) -> None:
        names = {"", *case.tool.arguments.__struct_fields__}

        assert {case.tool.subject, case.tool.path} <= names

    def test_wrong_arguments_are_named_all_at_once(self, case: ToolCase) -> None:
        wrong = {name: {"no": ["such"]} for name in case.arguments} | {"nonsense": 1}

        with pytest.raises(ToolFailed) as failure:
            case.tool.parse(msgspec.json.encode(wrong))

        assert [name for name in wrong if f"'{name}'" not in str(failure.value)] == []

    @pytest.mark.parametrize("raw", [b"", b"[]", b'"text"', b'{"path": ', b"\xff"])
    def test_arguments_that_are_no_object_raise_tool_failed(
        self, case: ToolCase, raw: bytes
    ) -> None:
        with pytest.raises(ToolFailed):
            case.tool.parse(raw)

    def test_its_label_is_one_line(self, case: ToolCase) -> None:
        label = case.tool.label(case.arguments)

        assert label.startswith(case.tool.name)
        assert "\n" not in label

    def test_a_reply_can_be_encoded(self, case: ToolCase) -> None:
        reply = anyio.run(case.place.use, case.tool, case.arguments)

        assert reply.text.encode()
        assert msgspec.json.encode(reply)

    def test_a_cancelled_call_leaves_no_partial_file(self, case: ToolCase) -> None:
        """Every file is as before the call or as after a complete call, and there are no
        others.
        """
        before = _contents(case.place.directory)
        known = dict(case.place.known)
        anyio.run(case.place.use, case.tool, case.arguments)
        after = _contents(case.place.directory)

        async def again() -> None:
            """Restore what was there before the first call, and call again."""
            _restore(case.place.directory, before)
            case.place.known.clear()
            case.place.known.update(known)
            await case.place.use(case.tool, case.arguments)

        def check() -> None:
            assert _contents(case.place.directory) in (before, after)

        anyio.run(cut_at_each_wait, again, check)


def _contents(directory: Path) -> dict[Path, bytes]:
    """Return the content of each file below the directory."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _restore(directory: Path, contents: dict[Path, bytes]) -> None:
    """Make the files below the directory the same as `contents`."""
    for path in set(_contents(directory)) - set(contents):
        path.unlink()
    for path, content in contents.items():
        path.write_bytes(content)


# Cancels a coroutine at each of its await points, one after the other.

T = TypeVar("T")


class CancelAtWait(Generic[T]):
    """Awaits `work`, and cancels `scope` at the wait number `wait` of `work`, counted from 0.

    `reached` says whether `work` has come to this wait.
    """

    def __init__(self, work: Awaitable[T], scope: anyio.CancelScope, wait: int) -> None:
        self._work, self._scope, self._left = work, scope, wait
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
                value = yield waited_for
            except BaseException as error:  # a cancellation, which the work must handle
                step = _throw_call(inner, error)
            else:
                step = _send_call(inner, value)


def _throw_call(inner: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: inner.throw(error)


def _send_call(inner: Any, value: Any) -> Callable[[], Any]:
    return lambda: inner.send(value)


async def cut_at_each_wait(
    function: Callable[[], Awaitable[object]],
    check: Callable[[], None],
    max_waits: int = 100,
) -> int:
    """Call `function` repeatedly, and cancel each call one wait later than the call before.

    `check` runs after each call. Return how often a call waits if it is not cancelled. Raises
    `AssertionError` if a call still waits after `max_waits`.
    """
    for wait in range(max_waits):
        scope = anyio.CancelScope()
        cut = CancelAtWait(function(), scope, wait)
        with scope:
            await cut
        check()
        if not cut.reached:
            return wait
    raise AssertionError(f"the work still waits after {max_waits} waits")
