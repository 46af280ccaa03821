"""The contract of a provider, as tests for other implementations.

class TestMine(ProviderContract):
    def scripted_provider(self, *replies):  # a context: a provider that gives these answers
        return my_server_and_client(replies)
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeVar

import anyio
import msgspec
import pytest

from refold.errors import ProviderError
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Provider,
    Request,
    TextDelta,
    ThinkingDelta,
)
from refold.testing.providers import Reply
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.usage import Usage

T = TypeVar("T")

QUESTION = Request(Log([StoredMessage(1, Message("user", (Text("Will it rain? ☂"),)))]))
WORDS = 'Take an umbrella. ☂ 🌧️ "quoted"\n\ttabbed \\ slashed'
CALLS = (("read_file", '{"path":"sky.txt"}'), ("grep", '{"pattern":"☂ \\"x\\""}'))


class ProviderContract:
    """The contract of a provider: a subclass implements `scripted_provider`."""

    def scripted_provider(self, *replies: Reply) -> AbstractAsyncContextManager[Provider]:
        """Return a provider that answers the n-th request with the n-th reply."""
        raise NotImplementedError

    def test_text_is_complete_and_done_comes_last(self) -> None:
        deltas = self._ask(Reply(WORDS))

        assert _words(deltas) == WORDS
        assert [type(d) for d in deltas].index(Done) == len(deltas) - 1

    def test_thinking_is_separate_from_the_text(self) -> None:
        answer = self._ask(Reply("Yes.", thinking="Clouds. ☁"))

        thought = "".join(d.text for d in answer if isinstance(d, ThinkingDelta))
        assert (thought, _words(answer)) == ("Clouds. ☁", "Yes.")

    def test_calls_begin_with_their_name_and_have_complete_arguments(self) -> None:
        deltas = self._ask(Reply("Let me look.", CALLS))

        assert _calls(deltas) == [(n, msgspec.json.decode(a)) for n, a in CALLS]
        assert deltas[-1].stop == "calls"  # type: ignore[union-attr]  # Done is last

    def test_a_response_at_its_limit_stops_with_length(self) -> None:
        deltas = self._ask(Reply("Take an", stop="length"))

        assert isinstance(deltas[-1], Done)
        assert deltas[-1].stop == "length"

    def test_tokens_are_counted(self) -> None:
        deltas = self._ask(Reply("Yes.", usage=Usage(fresh=7, output=3)))

        assert isinstance(deltas[-1], Done)
        assert (deltas[-1].usage.input, deltas[-1].usage.output) == (7, 3)

    def test_it_keeps_no_conversation(self) -> None:
        async def main(provider: Provider) -> list[str]:
            return [_words(await _read_deltas(provider)) for _ in range(2)]

        assert self._run_with_provider(main, Reply("One."), Reply("Two.")) == [
            "One.",
            "Two.",
        ]

    def test_concurrent_requests_get_one_answer_each(self) -> None:
        async def main(provider: Provider) -> list[str]:
            answers = list[str]()

            async def ask() -> None:
                answers.append(_words(await _read_deltas(provider)))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                group.start_soon(ask)
            return sorted(answers)

        assert self._run_with_provider(main, Reply("One."), Reply("Two.")) == [
            "One.",
            "Two.",
        ]

    def test_a_request_works_after_an_abandoned_stream(self) -> None:
        async def main(provider: Provider) -> str:
            async with aclosing(provider.stream(QUESTION)) as deltas:
                await anext(deltas)
            return _words(await _read_deltas(provider))

        assert self._run_with_provider(main, Reply("x" * 3000), Reply("Two.")) == "Two."

    def test_cancelling_passes_through_at_once(self) -> None:
        async def main(provider: Provider) -> tuple[bool, str]:
            with anyio.CancelScope() as scope:
                async with aclosing(provider.stream(QUESTION)) as deltas:
                    async for _ in deltas:
                        scope.cancel()
                        await anyio.lowlevel.checkpoint()
            return scope.cancelled_caught, _words(await _read_deltas(provider))

        result = self._run_with_provider(main, Reply("x" * 3000), Reply("Two."))

        assert result == (True, "Two.")

    def test_only_provider_errors_are_raised(self) -> None:
        async def main(provider: Provider) -> None:
            await _read_deltas(provider)

        with pytest.raises(ProviderError):
            self._run_with_provider(main)

    def _ask(self, *replies: Reply) -> list[Delta]:
        return self._run_with_provider(_read_deltas, *replies)

    def _run_with_provider(
        self, function: Callable[[Provider], Awaitable[T]], *replies: Reply
    ) -> T:
        """Return the result of `function` with a provider that gives these replies."""

        async def inside() -> T:
            async with self.scripted_provider(*replies) as provider:
                return await function(provider)

        return anyio.run(inside)


async def _read_deltas(provider: Provider) -> list[Delta]:
    stream: AsyncGenerator[Delta, None] = provider.stream(QUESTION)
    async with aclosing(stream) as deltas:
        return [delta async for delta in deltas]


def _words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


def _calls(deltas: list[Delta]) -> list[tuple[str, object]]:
    """Return the name and the decoded arguments of each call, joined from its pieces."""
    pieces = [d for d in deltas if isinstance(d, CallDelta)]
    names = dict[int, str]()
    arguments = dict[int, str]()
    for piece in pieces:
        assert piece.name or piece.index in names, "a call began without its name"
        names.setdefault(piece.index, piece.name)
        arguments[piece.index] = arguments.get(piece.index, "") + piece.arguments
    return [(names[i], msgspec.json.decode(arguments[i])) for i in names]
