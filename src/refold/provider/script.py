"""A provider whose responses are in a file, for the flag `--script`. Requests are not compared.

`cassette_format` reads the file; `cassette` replays a file and compares requests.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from refold.errors import ProviderError, Refused
from refold.provider.cassette_format import Response, read
from refold.provider.port import (
    CallDelta,
    Delta,
    Done,
    Request,
    RequestSent,
    ResponseBytes,
    Stop,
    TextDelta,
    ThinkingDelta,
)
from refold.values.messages import Text
from refold.values.usage import Usage


class Reply(Struct, frozen=True):
    """One response: thinking, text, and calls, each a tool's name and JSON arguments."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    stop: Stop | None = None
    usage: Usage | None = None
    paused: bool = False


class Script:
    """A provider that yields the responses in `file`, in order and at their pace.

    A response with the key `for` is chosen by the number of earlier responses in its
    conversation, and any other response by the number of earlier requests. Raises `BadInput` if
    the file cannot be read.
    """

    def __init__(self, file: Path) -> None:
        self._by_conversation: dict[str, list[Response]] = {"": []}
        for response in read(file, "script").responses:
            self._by_conversation.setdefault(response.conversation, []).append(response)
        self._requests = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        response, step = self._next_response(request)
        if request.trace:
            yield RequestSent("script", _as_json(request))
        if response is None:
            raise self._end_error(request)
        async with aclosing(play(response, step, self._name(request))) as pieces:
            async for delta in pieces:
                if request.trace:
                    yield ResponseBytes(msgspec.json.encode(delta) + b"\n")
                yield delta

    def _next_response(self, request: Request) -> tuple[Response | None, int]:
        """Return the response to a request, or None if there are no further responses.

        The second value is the index of the response in its conversation.
        """
        conversation = self._conversation(request)
        if conversation:
            step = response_count(request)
        else:
            step = self._requests
            self._requests += 1
        responses = self._by_conversation[conversation]
        return (responses[step] if step < len(responses) else None), step

    def _conversation(self, request: Request) -> str:
        """Return the longest `for` that begins the conversation, or "" without one."""
        words = first_words(request)
        beginnings = [key for key in self._by_conversation if words.startswith(key)]
        return max(beginnings, key=len)  # "" is always one of them

    def _name(self, request: Request) -> str:
        conversation = self._conversation(request)
        return f"the script {conversation!r}" if conversation else "the script"

    def _end_error(self, request: Request) -> ProviderError:
        lines = self._by_conversation[self._conversation(request)]
        return ProviderError(f"{self._name(request)} has only {lines_in(lines)}")


async def play(response: Response, step: int, name: str) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a response at its pace.

    `step` is the number of responses before it, and `name` names the script in errors.
    """
    due = anyio.current_time()
    for delta in _pieces(response, step):
        await anyio.lowlevel.checkpoint()
        due += response.pace
        wait = due - anyio.current_time() if response.pace else response.pause
        if wait > 0:
            await anyio.sleep(wait)
        yield delta
    if response.error is not None:
        raise response.error.as_error()
    if response.stopped:
        raise Refused(f"{name}: its recording was stopped, so it is incomplete")


def lines_in(lines: Sequence[object]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"


def _pieces(response: Response, step: int) -> Sequence[Delta]:
    """Return the recorded or written deltas. Written ones lack `Done` if an error follows."""
    if response.deltas is not None:
        return response.deltas
    calls = tuple((call.tool, bytes(call.arguments).decode()) for call in response.calls)
    reply = Reply(response.text, calls, response.thinking, response.stop)
    pieces = deltas(reply, step)  # the last one is `Done`
    return pieces if response.error is None else pieces[:-1]


def deltas(reply: Reply, step: int) -> list[Delta]:
    """Return the deltas of a response, one for each character, as a model would send them.

    `step` is the number of responses before it.
    """
    pieces: list[Delta] = [ThinkingDelta(c) for c in reply.thinking]
    pieces += [TextDelta(c) for c in reply.text]
    for n, (name, arguments) in enumerate(reply.calls):
        pieces.append(CallDelta(n, id=f"theirs-{step}-{n}", name=name))
        pieces += [CallDelta(n, c) for c in arguments]
    characters = len(reply.text) + sum(len(arguments) for _, arguments in reply.calls)
    usage = reply.usage or Usage(fresh=10, output=characters)
    stop: Stop = reply.stop or ("calls" if reply.calls else "end")
    return [*pieces, Done(usage, stop, paused=reply.paused)]


def _as_json(request: Request) -> bytes:
    """Return the request as JSON for the request log, because a script sends no request."""
    return msgspec.json.encode(
        {
            "model": request.model,
            "system": request.system,
            "messages": [stored.message for stored in request.messages],
            "tools": request.tools,
        }
    )


def first_words(request: Request) -> str:
    """Return the first text of the conversation, or "" if it has none."""
    messages = request.messages
    parts = messages[0].message.parts if messages else ()
    return next((part.text for part in parts if isinstance(part, Text)), "")


def response_count(request: Request) -> int:
    """Return the number of responses of the model in the conversation."""
    return sum(stored.message.role == "assistant" for stored in request.messages)
