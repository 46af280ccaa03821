"""A model server that caches prompts by its provider's rules, and counts the tokens.

    model = CachingModel("anthropic", lambda n: Reply("Yes."))
    async with wire_server(model) as server:
        ... ask server.url ...
    assert model.cached >= 0.95 * model.repeated

A token is four bytes of JSON, so only ratios are meaningful. Cache entries never expire.
Responses report the same counts in their usage, so that a test can compare what a client
reads there.

https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching,
https://platform.openai.com/docs/guides/prompt-caching and
https://ai.google.dev/gemini-api/docs/caching
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2s
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.testing.providers import Reply
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import Answer, ReceivedRequest
from refold.values.usage import Usage

LEAST = 1024  # tokens; a shorter beginning is not kept
STEP = 128  # tokens; where no breakpoints are set, beginnings are stored in such steps
LOOKED_BACK = 20  # blocks that Anthropic looks at, from each breakpoint
MOST_MARKS = 4  # breakpoints in one request to Anthropic


class Counted(Struct, frozen=True):
    """One request, in tokens. `repeated`: the tokens at its beginning that an earlier
    request had, too."""

    body: dict[str, Any]
    size: int
    repeated: int
    cached: int
    written: int


class CachingModel:
    """Answers the n-th request, n from 0, with `reply(n)`; for a `wire_server`."""

    def __init__(self, wire: WireName, reply: Callable[[int], Reply]) -> None:
        if wire == "ollama":
            raise ValueError("Ollama tells nothing of its cache")
        self._wire: WireName = wire
        self._reply = reply
        self._kept = set[bytes]()
        self._seen = set[bytes]()
        self.requests: list[Counted] = []

    @property
    def repeated(self) -> int:
        return sum(request.repeated for request in self.requests)

    @property
    def cached(self) -> int:
        return sum(request.cached for request in self.requests)

    def __call__(self, request: ReceivedRequest) -> Answer:
        body = msgspec.json.decode(request.body)
        prompt = _PROMPT_READERS[self._wire](body)
        if len(prompt.marks) > MOST_MARKS:
            error = {"type": "invalid_request_error", "message": "too many cache_control"}
            return Answer(msgspec.json.encode({"type": "error", "error": error}), 400)
        reply = self._reply(len(self.requests))
        counted = self._count(body, prompt)
        self.requests.append(counted)
        words = len(reply.text) + sum(len(arguments) for _, arguments in reply.calls)
        usage = Usage(
            fresh=counted.size - counted.cached - counted.written,
            cached=counted.cached,
            cache_write=counted.written,
            output=1 + words // 4,
        )
        return answer(self._wire, replace(reply, usage=usage))

    def _count(self, body: dict[str, Any], prompt: "_Prompt") -> Counted:
        plain = [*_beginnings([item for item in prompt.items if item.counts])]
        repeated = [size for digest, size in plain if digest in self._seen]
        self._seen.update(digest for digest, _ in plain)
        marked = self._wire == "anthropic"
        cached, written = (self._tokens_at_marks if marked else self._tokens_in_steps)(
            prompt
        )
        size = plain[-1][1] if plain else 0
        return Counted(body, size, max(repeated, default=0), cached, written)

    def _tokens_at_marks(self, prompt: "_Prompt") -> tuple[int, int]:
        """Return the numbers of tokens that are read from the cache and written to it.

        A beginning is cached if it ends at a mark. It is looked up at each mark, and a few
        items before it.
        """
        beginnings = [*_beginnings(prompt.items)]
        cached, longest = 0, 0
        for mark in prompt.marks:
            for digest, size in beginnings[max(mark + 1 - LOOKED_BACK, 0) : mark + 1]:
                if digest in self._kept:
                    cached = max(cached, size)
        for mark in prompt.marks:
            digest, size = beginnings[mark]
            if size >= LEAST:
                self._kept.add(digest)
                longest = max(longest, size)
        return cached, max(longest - cached, 0)

    def _tokens_in_steps(self, prompt: "_Prompt") -> tuple[int, int]:
        """Return the tokens that are read from the cache and written to it: writes are 0."""
        whole = b"".join(item.data for item in prompt.items)
        step = 4 * STEP
        parts = [
            whole[start : start + step] for start in range(0, len(whole) - step + 1, step)
        ]
        items = [_Item(prompt.model_files, counts=False), *map(_Item, parts)]
        beginnings = [*_beginnings(items)]
        cached = max(
            (size for digest, size in beginnings if digest in self._kept), default=0
        )
        self._kept.update(digest for digest, _ in beginnings)
        return (cached if cached >= LEAST else 0), 0


class _Item(Struct, frozen=True):
    """A piece of a prompt. A piece that does not count only separates what follows it."""

    data: bytes
    counts: bool = True


class _Prompt(Struct, frozen=True):
    items: Sequence[_Item]
    marks: Sequence[int] = ()  # the items at which a beginning may end
    model_files: bytes = b""  # what is kept apart from all else


def _beginnings(items: Iterable[_Item]) -> Iterator[tuple[bytes, int]]:
    """A digest of the prompt up to each item, and its size."""
    so_far, size = blake2s(), 0
    for item in items:
        so_far.update(len(item.data).to_bytes(8) + item.data)
        size += len(item.data) if item.counts else 0
        yield so_far.digest(), size // 4


def _item(*values: object) -> _Item:
    return _Item(msgspec.json.encode(values))


def _anthropic(body: dict[str, Any]) -> _Prompt:
    """Tools, system, messages, in this order, block by block.

    A change of the tool choice or of thinking changes what comes before the messages, and
    so invalidates what was cached of them.
    """
    system = body.get("system", [])
    system = [{"type": "text", "text": system}] if isinstance(system, str) else system
    blocks: list[Any] = [*body.get("tools", []), *system]
    apart = [body.get("tool_choice", {"type": "auto"}), body.get("thinking")]
    messages = [
        ({"role": message["role"]}, block)
        for message in body["messages"]
        for block in _blocks(message["content"])
    ]
    items = [_item(_without_mark(block)) for block in blocks]
    items.append(_Item(msgspec.json.encode(apart), counts=False))
    items += [_item(role, _without_mark(block)) for role, block in messages]
    everything = [*blocks, {}, *(block for _, block in messages)]
    marks = {n for n, block in enumerate(everything) if "cache_control" in block}
    last = len(everything) - 1
    mark_itself = 1 if "cache_control" in body and last not in marks else 0
    return _Prompt(items, [*sorted(marks), *([last] * mark_itself)])


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _without_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _chat(body: dict[str, Any]) -> _Prompt:
    apart = _item(body.get("response_format"), body.get("tools"))
    items = [apart, *(_item(message) for message in body["messages"])]
    return _Prompt(items, model_files=_cache_key(body))


def _responses(body: dict[str, Any]) -> _Prompt:
    apart = _item(body.get("text"), body.get("tools"), body.get("instructions"))
    return _Prompt(
        [apart, *(_item(item) for item in body["input"])], model_files=_cache_key(body)
    )


def _gemini(body: dict[str, Any]) -> _Prompt:
    apart = _item(body.get("tools"), body.get("systemInstruction"))
    parts = ((turn["role"], part) for turn in body["contents"] for part in turn["parts"])
    return _Prompt([apart, *(_item(role, part) for role, part in parts)])


def _cache_key(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode([body["model"], body.get("prompt_cache_key")])


_PROMPT_READERS: dict[WireName, Callable[[dict[str, Any]], _Prompt]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
