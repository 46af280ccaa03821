"""A session that only makes model calls, and records each question, price and answer.

So `refold cost` and `refold tree` show the expenses, and paid answers survive a kill, because
an answer is in the journal before it is used. `recover_answers` moves the answers of a killed
session to the cache, where the next session finds them.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from refold.agents.profile import CodeLimits
from refold.engine.budget import NOTHING_LEFT
from refold.engine.world import Model, World
from refold.errors import JournalError
from refold.journal.events.kinds import Said, SessionStarted, TurnEnded, TurnStarted
from refold.journal.store.port import Store
from refold.rlm.call_context import CallContext, ModelReply, successful_leaves
from refold.rlm.leaf_calls import LeafFailed, Leaves, ModelQuestion
from refold.rlm.memo import Memo, ProjectMemo
from refold.rlm.rate_limit import RateLimit
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.values.modes import Outcome
from refold.values.usage import Budget, Spent

_CALL_ID = "map"
_KILLED_REASON = "refold was killed"


class LeafSetup(Struct, frozen=True):
    """The model that is asked, the limits of its calls, and the directory with paid answers."""

    model: Model
    budget: Budget
    limits: CodeLimits
    rate: RateLimit
    masks: Redactor
    memo_directory: Path


class LeafSession:
    """A session that only makes model calls. `open_leaf_session` opens it."""

    def __init__(self, record: Recorder, setup: LeafSetup) -> None:
        self._record, self.id = record, record.view.session.id
        world = World(setup.model, budget=setup.budget)
        memo = ProjectMemo(setup.memo_directory, record)
        self._leaves = Leaves(record, lambda: world, setup.limits, setup.rate, memo)
        self._within = CallContext(_CALL_ID, record.view.conversation)
        self.outcome: Outcome = "answered"
        self.reason = ""

    async def ask_all(self, questions: Sequence[ModelQuestion]) -> list[str | LeafFailed]:
        """Return the answer to each question, or the error.

        Afterwards `outcome` shows whether the budget is spent.
        """
        answers = await self._leaves.ask_all(questions, self._within)
        problems = [str(answer) for answer in answers if isinstance(answer, LeafFailed)]
        if NOTHING_LEFT in problems:
            self.outcome, self.reason = "budget", NOTHING_LEFT
        return answers

    @property
    def spent(self) -> Spent:
        return self._record.view.turn.spent

    @property
    def is_over_budget(self) -> bool:
        return self.outcome == "budget"


@asynccontextmanager
async def open_leaf_session(
    store: Store, start: SessionStarted, purpose: str, setup: LeafSetup
) -> AsyncGenerator[LeafSession]:
    """Open a new session in `store`, which begins with the event `start`.

    Lists of sessions show `purpose`.
    """
    record = Recorder(store, masks=setup.masks)
    await record.open()
    try:
        await record(start, author="map")
        view = await record(Said(purpose, sender="map"), author="map")
        await record(TurnStarted(view.seq), author="map", kept=True)
        session = LeafSession(record, setup)
        try:
            yield session
        except BaseException as error:
            is_cancellation = not isinstance(error, Exception)
            session.outcome = "cancelled" if is_cancellation else "failed"
            session.reason = type(error).__name__
            raise
        finally:
            await record(
                TurnEnded(session.outcome, session.reason), author="map", kept=True
            )
    finally:
        await record.close()


async def recover_answers(store: Store, setup: LeafSetup) -> None:
    """Move the paid answers of a killed session to the cache, and end its turn.

    Do nothing if its journal cannot be read, or if it has no open turn.
    """
    record = Recorder(store, masks=setup.masks)
    try:
        view = await record.open()
        if not view.turn.seq:
            return
        memo: Memo = ProjectMemo(setup.memo_directory, record)
        for asked, settled in successful_leaves(await record.entries()):
            answer = ModelReply(settled.text, settled.full_blob)
            await memo.put(asked.model, asked.key, answer)
        await record(TurnEnded("cancelled", _KILLED_REASON), author="map")
    except JournalError:  # the journal is damaged or held, so its questions are asked again
        return
    finally:
        await record.close()
