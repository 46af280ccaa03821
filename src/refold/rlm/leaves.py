"""Models that code asks: each question is one call, set aside and settled like any other.

They are leaves of the tree: what one is asked and answers stands in the journal of the
session whose code asks, and never in its talk. A question that was answered before a
crash is not asked again. What a leaf is told says `question`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext

import anyio
from msgspec import Struct
from msgspec.structs import replace

from refold.agents.profile import Leash
from refold.engine.charging import A_TOKEN
from refold.engine.spending import ANSWER, NOTHING_LEFT, WholeAnswer, heard, reserve
from refold.engine.tracing import Trace
from refold.engine.world import Mind, World
from refold.errors import ProviderError, Refused
from refold.journal.events import Reserved, Settled
from refold.journal.fold import View
from refold.provider.port import Request
from refold.rlm.joined import Joined
from refold.rlm.memo import Memo
from refold.rlm.port import HostFailed
from refold.rlm.question import ModelQuestion, Wrong, request
from refold.rlm.rate import Rate
from refold.rlm.under_way import Call, UnderWay
from refold.rlm.within import Journal, ModelReply, Within
from refold.values.usage import Usage

_INLINE = 4_096  # characters of an answer; a longer one is a blob
_WORDS = 80  # characters of a question that a tree of calls shows
_ANSWERS = 2  # of a model that has to match a schema, at most


class LeafFailed(HostFailed):
    """Nothing came of it. `again`: the same may go well the next time."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


class _Asking(Struct, frozen=True):
    """A question, and which one it is of all that this call asks."""

    question: ModelQuestion
    key: str
    n: int
    within: Within


class Leaves:
    """Of one session. `memo` None: nothing is remembered."""

    def __init__(
        self,
        record: Journal,
        world: Callable[[], World],
        leash: Leash,
        rate: Rate,
        memo: Memo | None = None,
    ) -> None:
        self._record, self._world, self._leash = Joined(record, "code"), world, leash
        self._rate, self._memo = rate, memo
        self._slots = anyio.CapacityLimiter(leash.at_once)
        self._under_way = UnderWay()
        self._same = dict[str, anyio.Lock]()  # equal questions wait for the first, then

    async def ask(self, question: ModelQuestion, within: Within) -> str:
        """What a model answers. Raises `LeafFailed`."""
        (found,) = await self.ask_all([question], within)
        if isinstance(found, LeafFailed):
            raise found
        return found

    async def ask_all(
        self, questions: Sequence[ModelQuestion], within: Within
    ) -> list[str | LeafFailed]:
        """What a model answers to each, in their order; those that failed once more."""
        asking: list[_Asking] = []
        for each in questions:
            key = each.key()
            asking.append(_Asking(each, key, within.n(key), within))
        aide = self._world().helper()
        found: list[str | LeafFailed] = [LeafFailed("it was not asked")] * len(asking)

        async def fill(slot: int) -> None:
            try:
                found[slot] = await self._answer(asking[slot], aide)
            except LeafFailed as error:
                found[slot] = error

        async def fill_all(slots: Sequence[int]) -> None:
            async with anyio.create_task_group() as group:
                for slot in slots:
                    group.start_soon(fill, slot)

        await fill_all(range(len(asking)))
        again = [n for n, e in enumerate(found) if isinstance(e, LeafFailed) and e.again]
        await fill_all(again)
        return found

    async def _answer(self, asking: _Asking, aide: Mind) -> str:
        if told := asking.within.answer(asking.key, asking.n):
            return await told.read(self._record)
        async with self._alone(asking.key):
            if told := await self._remembered(asking, aide):
                return told
            _check_size(asking.question, aide)
            wrong: Wrong | None = None
            for _ in range(_ANSWERS):
                answer = await self._asked(asking, aide, wrong)
                problem = asking.question.problem(answer)
                if not problem:
                    return answer
                wrong = Wrong(answer, problem)
        problem = wrong.problem if wrong else ""
        raise LeafFailed(f"the answer does not match the schema: {problem}")

    async def _remembered(self, asking: _Asking, aide: Mind) -> str:
        """An answer that is known; it costs nothing, and is told like any other."""
        memo = self._memo
        told = await memo.get(aide.model, asking.key) if memo is not None else None
        if told is None:
            return ""
        text = await told.read(self._record)
        if asking.question.problem(text):
            return ""
        settled = await self._settled(text)

        def news(view: View) -> tuple[Reserved, Settled]:
            reserved = _reserved(view, asking, aide.model, 0.0, 0)
            of_it = replace(settled, reserved=view.seq + 1, remembered=True)
            return reserved, replace(of_it, model=aide.model, cost=0.0)

        await self._record.weigh(news)
        return text

    async def _asked(self, asking: _Asking, aide: Mind, wrong: Wrong | None) -> str:
        """One call of the model, paid for. Raises `LeafFailed`; what fits not is told, too."""
        if aide.trace is not None:  # those at work beside it have one of their own
            aide = replace(aide, trace=Trace())
        asked = request(asking.question, aide.model.partition("/")[2], wrong)
        asked = replace(asked, trace=aide.trace is not None)
        with self._under_way.call() as call:
            async with self._slots:
                await self._rate.wait(aide.model)
                at = await self._reserve(asking, aide, call)
                came = await self._heard(asked, aide)
            if isinstance(came, LeafFailed):
                failed = str(came)
                await self._record(Settled(at, model=aide.model, failed=failed))
                raise came
            return await self._settle(at, came, asking, aide)

    async def _heard(self, asked: Request, aide: Mind) -> WholeAnswer | LeafFailed:
        try:
            with anyio.fail_after(self._leash.call):
                return await heard(asked, aide)
        except TimeoutError:
            return LeafFailed(f"no answer within {self._leash.call:g} seconds")
        except ProviderError as error:
            return LeafFailed(str(error), again=not isinstance(error, Refused))
        finally:
            if aide.trace is not None:
                await self._record(*await aide.trace.told(self._record))

    async def _reserve(self, asking: _Asking, aide: Mind, call: Call) -> int:
        """Set its money aside; as long as others are under way, some may be left over."""
        usage = Usage(fresh=asking.question.size // A_TOKEN, output=ANSWER)
        dollars, world = aide.price(aide.model, usage), self._world()

        def wanted(view: View) -> Reserved:
            return _reserved(view, asking, aide.model, dollars, usage.uncached)

        while True:
            look = self._under_way.look()
            try:
                at = await reserve(wanted, world.budget, self._record, world.lineage.purse)
            except ProviderError as error:
                if not await look.worth_another():
                    raise LeafFailed(str(error) or NOTHING_LEFT) from error
            else:
                call.begin()
                return at

    async def _settle(self, at: int, came: WholeAnswer, asking: _Asking, aide: Mind) -> str:
        text, done, paid = came.text, came.done, came.charged(aide)
        problem = asking.question.problem(text)
        failed = f"the answer does not match the schema: {problem}" if problem else ""
        if done.stop == "refused":
            failed = f"the model refused{f': {done.why}' if done.why else ''}"
        elif done.stop == "length" and asking.question.shape is None:
            failed = "the output limit cut the answer off: ask for less at once"
        settled = await self._settled(text)
        settled = replace(settled, reserved=at, usage=paid.usage, model=paid.model)
        await self._record(replace(settled, cost=paid.cost, failed=failed))
        if failed and not problem:
            raise LeafFailed(failed)
        if self._memo is not None and not failed:
            told = ModelReply(settled.text, settled.whole)
            await self._memo.put(aide.model, asking.key, told)
        return text

    async def _settled(self, text: str) -> Settled:
        if len(text) <= _INLINE:
            return Settled(0, text=text)
        return Settled(0, whole=await self._record.put(text.encode()))

    @asynccontextmanager
    async def _alone(self, key: str) -> AsyncGenerator[None, None]:
        """With a memo, the second of two that ask the same hears what the first heard."""
        lock = self._same.setdefault(key, anyio.Lock()) if self._memo else nullcontext()
        async with lock:
            yield


def _reserved(
    view: View, asking: _Asking, model: str, dollars: float | None, tokens: int
) -> Reserved:
    words = " ".join(asking.question.query[: 2 * _WORDS].split())[:_WORDS]
    return Reserved(
        "leaf",
        model,
        dollars,
        tokens,
        leaf=view.family.leaves + 1,
        call_id=asking.within.call_id,
        key=asking.key,
        n=asking.n,
        words=words,
    )


def _check_size(question: ModelQuestion, aide: Mind) -> None:
    """A text that cannot fit is not sent. Raises `LeafFailed`."""
    if aide.window and question.least_tokens > aide.window:
        raise LeafFailed(
            f"the text has about {question.least_tokens:,} tokens, and the model reads "
            f"{aide.window:,}: cut it into pieces, and ask about each with map_lm"
        )
