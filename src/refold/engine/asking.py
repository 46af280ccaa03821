"""The seam's other half: a model call. `Asked` was its start; its end is made here.

The answer and the starts of its calls are one batch, so a step waits for the
disk once.
"""

from contextlib import aclosing

import anyio

from refold.engine import calls
from refold.engine.draft import Draft
from refold.engine.request import build_request
from refold.engine.world import Record, World
from refold.errors import ProviderError
from refold.journal.events import Event, ModelFailed
from refold.provider.port import Retrying
from refold.values.live import Waiting

EMPTY = "the model's answer was empty"


async def ask(world: World, record: Record) -> None:
    """Ask the model what the view says, and record what it answered."""
    view = record.view
    draft = Draft(view.account.calls, view.talk.briefed.model)
    try:
        async with aclosing(world.provider.stream(build_request(view))) as deltas:
            async for delta in deltas:
                if isinstance(delta, Retrying):
                    record.tell(Waiting(delta.wait, delta.reason))
                elif live := draft.add(delta):
                    record.tell(live)
    except ProviderError as error:
        await record(_failed(str(error), type(error).__name__, draft))
    except anyio.get_cancelled_exc_class():
        # Stopped by a person, who has read this far. After a crash we ask again.
        if record.view.turn.stopped and (partial := draft.partial()):
            await record(partial)
        raise
    else:
        await _answered(draft, world, record)


async def _answered(draft: Draft, world: World, record: Record) -> None:
    asked = record.view.turn.asking
    answer = draft.whole(calls=asked is None or asked.tools)
    if answer is None:
        await record(_failed(EMPTY, "ProviderError", draft))
        return
    made = answer.message.calls
    opening: list[Event] = []
    for call in made:
        opening += calls.begin(call, world, record.view)
    await record(answer, *opening, kept=calls.must_keep(opening, made, world))


def _failed(reason: str, kind: str, draft: Draft) -> ModelFailed:
    shown = draft.text if draft.text.strip() else ""
    return ModelFailed(reason, kind, shown)
