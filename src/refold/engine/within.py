"""Calls that code makes, within a call of the model: each goes through the seam like any.

The model is told of the outer call only. The same call made again, by code that runs
again after a crash, is not made twice: its end stands in the journal.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec import Raw

from refold.engine import calls
from refold.engine.world import Record, World
from refold.journal.events import CallMade
from refold.journal.fold import View
from refold.journal.talk import OpenCall
from refold.values.messages import ToolCall, ToolResult


def key_of(*parts: str) -> str:
    """What makes two wishes the same: a short hash of all that they are made of."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


async def call_within(
    name: str,
    arguments: Mapping[str, object],
    within: str,
    n: int,
    world: World,
    record: Record,
) -> ToolResult:
    """Make a call for the code of the call `within`, and wait for what it comes to.

    `n` says how often the very same one was made by this code before. It may have to
    wait for a person.
    """
    encoded = msgspec.json.encode(arguments)
    key = key_of(name, encoded.decode())

    def news(view: View) -> tuple[CallMade, ...]:
        if _found(view, within, key, n) is not None:
            return ()
        many = sum(1 for c in view.talk.within if c.made and c.made.within == within)
        call = ToolCall(f"{within}.{many + 1}", name, Raw(encoded))
        return (CallMade(call, within, key, n),)

    await record.weigh(news, by="code")
    while (found := _found(record.view, within, key, n)) and found.result is None:
        seen = record.view.seq
        await calls.run_alone(found.call, world, record)
        now = record.view.talk.call(found.call.id)
        if now is not None and now.result is None and record.view.seq == seen:
            await record.news(after=seen)
    if found is None or found.result is None:
        return ToolResult("", "Not done: the call that it belongs to has ended.", True)
    return found.result


def _found(view: View, within: str, key: str, n: int) -> OpenCall | None:
    for call in view.talk.within:
        made = call.made
        if made is not None and (made.within, made.key, made.n) == (within, key, n):
            return call
    return None
