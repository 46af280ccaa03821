"""A model server for tests that caches prompts by its provider's rules, and counts tokens.

    model = CachingModel("anthropic", lambda n: Reply("Yes."))
    async with wire_server(model) as server:
        ... ask server.url ...
    assert model.cached >= 0.95 * model.repeated

Four bytes of JSON count as one token, so only ratios of counts are meaningful. Cache entries
never expire. Each response reports its counts as usage, so that a test can compare the usage
that a client reads with the counts of the server. The rules are documented here:

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

MIN_CACHED_TOKENS = 1024  # a shorter beginning is not cached
STEP_TOKENS = 128  # without breakpoints, beginnings are stored in such steps
LOOKBACK_BLOCKS = 20  # blocks that Anthropic examines before each breakpoint
MAX_BREAKPOINTS = 4  # breakpoints in one request to Anthropic


class Counted(Struct, frozen=True):
    """A request, and its counts in tokens.

    `size` is the whole prompt. `repeated` is its longest beginning that an earlier request had,
    too. `cached` was read from the cache, `written` was added to it.
    """

    body: dict[str, Any]
    size: int
    repeated: int
    cached: int
    written: int


class CachingModel:
    """The answers of a `wire_server`. The n-th request, counted from 0, gets `reply(n)`."""

    def __init__(self, wire: WireName, reply: Callable[[int], Reply]) -> None:
        if wire == "ollama":
            raise ValueError("Ollama tells nothing of its cache")
        self._wire: WireName = wire
        self._reply = reply
        self._kept = set[bytes]()  # digests of beginnings in the cache
        self._seen = set[bytes]()  # digests of all beginnings that were sent
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
        if len(prompt.marks) > MAX_BREAKPOINTS:
            error = {"type": "invalid_request_error", "message": "too many cache_control"}
            return Answer(msgspec.json.encode({"type": "error", "error": error}), 400)
        reply = self._reply(len(self.requests))
        counted = self._count(body, prompt)
        self.requests.append(counted)
        call_chars = sum(len(arguments) for _, arguments in reply.calls)
        usage = Usage(
            fresh=counted.size - counted.cached - counted.written,
            cached=counted.cached,
            cache_write=counted.written,
            output=1 + (len(reply.text) + call_chars) // 4,
        )
        return answer(self._wire, replace(reply, usage=usage))

    def _count(self, body: dict[str, Any], prompt: "_Prompt") -> Counted:
        """Return the request with its counts in tokens, and remember its beginnings."""
        plain = [*_beginnings([item for item in prompt.items if item.counts])]
        repeated = [size for digest, size in plain if digest in self._seen]
        self._seen.update(digest for digest, _ in plain)
        if self._wire == "anthropic":
            cached, written = self._tokens_at_marks(prompt)
        else:
            cached, written = self._tokens_in_steps(prompt)
        size = plain[-1][1] if plain else 0
        return Counted(body, size, max(repeated, default=0), cached, written)

    def _tokens_at_marks(self, prompt: "_Prompt") -> tuple[int, int]:
        """Return the numbers of tokens that are read from the cache and written to it.

        The beginning of the prompt up to each mark is cached. A cached beginning is found if it
        ends at a mark, or up to `LOOKBACK_BLOCKS` items before it.
        """
        beginnings = [*_beginnings(prompt.items)]
        cached, longest = 0, 0
        for mark in prompt.marks:
            end = mark + 1
            start = max(end - LOOKBACK_BLOCKS, 0)
            for digest, size in beginnings[start:end]:
                if digest in self._kept:
                    cached = max(cached, size)
        for mark in prompt.marks:
            digest, size = beginnings[mark]
            if size >= MIN_CACHED_TOKENS:
                self._kept.add(digest)
                longest = max(longest, size)
        return cached, max(longest - cached, 0)

    def _tokens_in_steps(self, prompt: "_Prompt") -> tuple[int, int]:
        """Return the number of tokens that are read from the cache, and 0.

        The beginnings of the prompt are cached in steps of `STEP_TOKENS`. The 0 stands for
        written tokens, which these providers do not count.
        """
        whole = b"".join(item.data for item in prompt.items)
        step = 4 * STEP_TOKENS
        parts = [
            whole[start : start + step] for start in range(0, len(whole) - step + 1, step)
        ]
        items = [_Item(prompt.model_files, counts=False), *map(_Item, parts)]
        beginnings = [*_beginnings(items)]
        cached = max(
            (size for digest, size in beginnings if digest in self._kept), default=0
        )
        self._kept.update(digest for digest, _ in beginnings)
        return (cached if cached >= MIN_CACHED_TOKENS else 0), 0


class _Item(Struct, frozen=True):
    """A piece of a prompt. If `counts` is false, its tokens are not counted.

    Even then, two prompts have a longer beginning in common only if they both have this piece.
    """

    data: bytes
    counts: bool = True


class _Prompt(Struct, frozen=True):
    """A prompt as a sequence of pieces, for the comparison with cached prompts."""

    items: Sequence[_Item]
    marks: Sequence[int] = ()  # the items at which a beginning may end
    model_files: bytes = b""  # caches with different values are separate


def _beginnings(items: Iterable[_Item]) -> Iterator[tuple[bytes, int]]:
    """Yield the digest and the size in tokens of each beginning of a prompt that ends with an
    item.
    """
    hash_so_far, size = blake2s(), 0
    for item in items:
        hash_so_far.update(len(item.data).to_bytes(8) + item.data)
        size += len(item.data) if item.counts else 0
        yield hash_so_far.digest(), size // 4


def _item(*values: object) -> _Item:
    return _Item(msgspec.json.encode(values))


def _anthropic(body: dict[str, Any]) -> _Prompt:
    """Return the prompt of a request: its tools, system prompt and messages, block by block.

    The options for tool choice and thinking come before the messages. So a change of an option
    invalidates the cached beginnings that contain messages, and no others.
    """
    system = body.get("system", [])
    system = [{"type": "text", "text": system}] if isinstance(system, str) else system
    blocks: list[Any] = [*body.get("tools", []), *system]
    options = [body.get("tool_choice", {"type": "auto"}), body.get("thinking")]
    messages = [
        ({"role": message["role"]}, block)
        for message in body["messages"]
        for block in _blocks(message["content"])
    ]
    items = [_item(_without_mark(block)) for block in blocks]
    items.append(_Item(msgspec.json.encode(options), counts=False))
    items += [_item(role, _without_mark(block)) for role, block in messages]
    no_block = dict[str, Any]()  # in the place of the options
    all_blocks = [*blocks, no_block, *(block for _, block in messages)]
    marks = {n for n, block in enumerate(all_blocks) if "cache_control" in block}
    if "cache_control" in body:  # the server itself marks the last block
        marks.add(len(all_blocks) - 1)
    return _Prompt(items, sorted(marks))


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _without_mark(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block without its mark for caching."""
    return {name: value for name, value in block.items() if name != "cache_control"}


def _chat(body: dict[str, Any]) -> _Prompt:
    head = _item(body.get("response_format"), body.get("tools"))
    items = [head, *(_item(message) for message in body["messages"])]
    return _Prompt(items, model_files=_cache_key(body))


def _responses(body: dict[str, Any]) -> _Prompt:
    head = _item(body.get("text"), body.get("tools"), body.get("instructions"))
    return _Prompt(
        [head, *(_item(item) for item in body["input"])], model_files=_cache_key(body)
    )


def _gemini(body: dict[str, Any]) -> _Prompt:
    head = _item(body.get("tools"), body.get("systemInstruction"))
    parts = ((turn["role"], part) for turn in body["contents"] for part in turn["parts"])
    return _Prompt([head, *(_item(role, part) for role, part in parts)])


def _cache_key(body: dict[str, Any]) -> bytes:
    """Return a value that differs for requests that do not share a cache."""
    return msgspec.json.encode([body["model"], body.get("prompt_cache_key")])


_PROMPT_READERS: dict[WireName, Callable[[dict[str, Any]], _Prompt]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
