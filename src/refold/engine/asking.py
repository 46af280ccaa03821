"""The seam's other half: a model call. `Asked` was its start; its end is made here.

The answer and the starts of its calls are one batch, so a step waits for the
disk once.
"""

from contextlib import aclosing

import anyio
from msgspec.structs import replace

from refold.engine import calls
from refold.engine.charging import Measured
from refold.engine.draft import EMPTY, Draft
from refold.engine.request import build_request
from refold.engine.saving import begin_saving
from refold.engine.world import Record, World
from refold.errors import ProviderError
from refold.journal.events import Event, Traced
from refold.journal.fold import View
from refold.provider.port import Came, Delta, Request, Retrying, Sent
from refold.values.live import CallComing, Waiting


async def ask(world: World, record: Record) -> None:
    """Ask the model what the view says, and record what it answered."""
    draft = draft_of(record.view, world)
    try:
        request = await _request(world, record)
        async with aclosing(world.mind.provider.stream(request)) as deltas:
            async for delta in deltas:
                _hear(delta, draft, world, record)
    except ProviderError as error:
        failed = draft.failed(str(error), type(error).__name__)
        await record(*await _traced(world, record), failed)
    except anyio.get_cancelled_exc_class():
        # Stopped by a person, who has read this far. After a crash we ask again.
        if record.view.turn.stopped:
            with anyio.CancelScope(shield=True):
                partial = draft.partial()
                news = [*await _traced(world, record), *([partial] if partial else [])]
                await record(*news)
        raise
    else:
        await _answered(draft, world, record)


def draft_of(view: View, world: World) -> Draft:
    """An answer to what the view says, of which nothing has come yet."""
    reached = world.names if world.deferred else ()  # by way of another
    talk = view.talk
    sent = Measured(
        talk.size + talk.told, pictures=len(talk.pictures), limit=talk.briefed.output
    )
    return Draft(view.account.calls, talk.briefed.model, world.mind.price, reached, sent)


def _hear(delta: Delta, draft: Draft, world: World, record: Record) -> None:
    match delta:
        case Retrying(wait, reason):
            record.tell(Waiting(wait, reason))
        case Sent() | Came():
            if world.mind.trace:
                world.mind.trace.take(delta)
        case _:
            if live := draft.add(delta):
                record.tell(live)
            if isinstance(live, CallComing):
                begin_saving(world.tool(live.name), world)


async def _request(world: World, record: Record) -> Request:
    """What the view says, with the pictures it names and what the world adds."""
    request = build_request(record.view)
    if world.mind.trace:
        request = replace(request, trace=True)
    if names := record.view.talk.pictures:
        request = replace(request, pictures=await world.album.of(names, record))
    return request


async def _answered(draft: Draft, world: World, record: Record) -> None:
    asked = record.view.turn.asking
    answer = draft.whole(calls=asked is None or asked.tools)
    traced = await _traced(world, record)
    if answer is None:
        await record(*traced, draft.failed(EMPTY, "ProviderError"))
        return
    made = answer.message.calls
    opening: list[Event] = [*traced, answer]
    for call in made:
        opening += calls.begin(call, world, record.view)
    await record(*opening, kept=calls.must_keep(opening, made, world))


async def _traced(world: World, record: Record) -> list[Traced]:
    return await world.mind.trace.told(record) if world.mind.trace else []
