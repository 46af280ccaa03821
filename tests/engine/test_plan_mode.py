"""Plan mode and questions: the user decides, and nothing happens before."""

from collections.abc import Collection, Sequence

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.policies.plan_mode import PLAN_INSTRUCTIONS
from refold.journal.events.kinds import Ended, Judged, PlanAnswered
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.place.port import Commit, FileChange, ReportProgress, SnapshotTaken, Trees
from refold.session.pending_requests import PlanToJudge, Questions, requests
from refold.session.recorder import Recorder
from refold.session.redactor import Redactor
from refold.session.session import Session, SessionOptions
from refold.testing.providers import ScriptedProvider
from refold.tools.plan import ask_user, enter_plan_mode, exit_plan_mode
from refold.values.modes import Mode
from tests.engine.house import BOOK, entries, open_session, world

TOOLS = (enter_plan_mode, exit_plan_mode, ask_user)
ENTER = ("enter_plan_mode", "{}")
PLAN = ("exit_plan_mode", '{"plan": "# Taxi\\n1. Order a taxi."}')
ASKED = (
    "ask_user",
    '{"questions": [{"question": "Which?", "options": [{"label": "red"}]},'
    ' {"question": "When?"}]}',
)


def planning_world(provider: ScriptedProvider, orders: list[str], **options: object):
    scripted_world = world(provider, orders, **options)
    return replace(scripted_world, tools=(*scripted_world.tools, *TOOLS))


async def send(session: Session, text: str) -> View:
    await session.inbox.say(text)
    return await session.run_turns()


def texts(store: MemoryStore) -> Sequence[str]:
    return [e.event.text for e in entries(store) if isinstance(e.event, Ended)]


@pytest.mark.parametrize("mode", ["default", "bypass", "accept-edits", "rules-only"])
def test_plan_mode_denies_changes_that_were_allowed_before(mode: Mode) -> None:
    orders: list[str] = []
    store = MemoryStore()

    async def main() -> View:
        provider = ScriptedProvider([ENTER], [BOOK], [PLAN])
        session = await open_session(store, planning_world(provider, orders))
        await session.inbox.set_mode(mode)
        return await send(session, "Plan it")

    view = anyio.run(main)

    assert orders == []
    assert (view.turn.outcome, view.rights.mode) == ("plan_ready", "plan")
    assert view.plans.waiting is not None
    assert (view.plans.waiting.title, view.turn.answer) == (
        "Taxi",
        "# Taxi\n1. Order a taxi.",
    )
    verdicts = [e.event for e in entries(store) if isinstance(e.event, Judged)]
    assert [v.verdict for v in verdicts] == ["allow", "deny", "allow"]


def test_approved_plan_is_carried_out_in_the_previous_mode() -> None:
    orders: list[str] = []

    async def main() -> View:
        provider = ScriptedProvider([ENTER], [PLAN], [BOOK], "Done.")
        session = await open_session(MemoryStore(), planning_world(provider, orders))
        await session.inbox.set_mode("bypass")
        await send(session, "Plan it")
        (request,) = requests(session.view)
        assert isinstance(request, PlanToJudge)
        assert orders == []
        assert await session.inbox.approve_plan(request.plan.seq)
        assert not await session.inbox.approve_plan(request.plan.seq)
        return await session.run_turns()

    view = anyio.run(main)

    assert (orders, view.rights.mode, view.turn.answer) == (["taxi"], "bypass", "Done.")
    assert [plan.state for plan in view.plans.made] == ["approved"]
    assert requests(view) == ()


def test_plan_is_approved_as_edited_or_sent_back_and_the_model_is_notified() -> None:
    async def main() -> tuple[Sequence[str], View]:
        provider = ScriptedProvider([ENTER], [PLAN], [PLAN], "Done.")
        session = await open_session(MemoryStore(), planning_world(provider, []))
        await send(session, "Plan it")
        await session.inbox.reject_plan(feedback="Too dear.")
        view = await session.run_turns()
        assert view.turn.outcome == "plan_ready"
        assert view.rights.mode == "plan"
        await session.inbox.approve_plan(text="1. Walk.")
        view = await session.run_turns()
        return [s.message.text for s in view.conversation.messages], view

    messages, view = anyio.run(main)

    assert any("Too dear." in text for text in messages)
    assert any(text.endswith("Carry it out:\n\n1. Walk.") for text in messages)
    assert [(p.state, p.text[:7]) for p in view.plans.made] == [
        ("rejected", "# Taxi\n"),
        ("approved", "1. Walk"),
    ]


def test_plan_waits_for_approval_across_a_restart() -> None:
    store, orders = MemoryStore(), list[str]()

    async def main() -> View:
        scripted_world = planning_world(
            ScriptedProvider([ENTER], [PLAN], [BOOK], "Done."), orders
        )
        first = await open_session(store, scripted_world)
        await send(first, "Plan it")
        await first.close()
        again = await open_session(store, scripted_world)
        (request,) = requests(again.view)
        assert isinstance(request, PlanToJudge)
        await again.inbox.set_mode("plan")  # already on: nothing changes
        await again.inbox.approve_plan(request.plan.seq)
        return await again.run_turns()

    view = anyio.run(main)

    assert view.rights.mode == "default"
    assert [
        c.call.name for c in view.conversation.calls if c.stage == "asked"
    ] == [] or orders == []
    assert any(isinstance(e.event, PlanAnswered) for e in entries(store))


def test_plan_mode_instructions_are_sent_once_and_not_after_it_is_off() -> None:
    async def main() -> Sequence[str]:
        provider = ScriptedProvider([("weather", '{"city": "Oslo"}')], "Rain.", "Yes.")
        session = await open_session(MemoryStore(), planning_world(provider, []))
        await session.inbox.set_mode("plan")
        await send(session, "Look")
        await session.inbox.set_mode("default")
        view = await send(session, "And now?")
        return [
            s.message.text for s in view.conversation.messages if s.message.role == "user"
        ]

    result = anyio.run(main)

    assert sum(PLAN_INSTRUCTIONS in text for text in result) == 1


@pytest.mark.parametrize("mode", ["default", "bypass", "plan", "rules-only"])
def test_questions_wait_for_the_user_in_every_mode_and_answers_reach_the_model(
    mode: Mode,
) -> None:
    store = MemoryStore()

    async def main() -> View:
        provider = ScriptedProvider([ASKED], "Red it is.")
        session = await open_session(store, planning_world(provider, []))
        await session.inbox.set_mode(mode)
        await send(session, "Ask me")
        (request,) = requests(session.view)
        assert isinstance(request, Questions)
        assert [q.question for q in request.questions] == ["Which?", "When?"]
        assert await session.inbox.answer(request.id, allowed=True, answers=("red", ""))
        return await session.run_turns()

    view = anyio.run(main)

    assert view.turn.answer == "Red it is."
    assert texts(store) == ["Which?\n  red\nWhen?\n  (no answer)"]


def test_question_to_an_absent_user_is_refused_with_the_reason() -> None:
    store = MemoryStore()

    async def main() -> View:
        provider = ScriptedProvider([ASKED], "I guess.")
        session = await open_session(store, planning_world(provider, [], attended=False))
        return await send(session, "Ask me")

    view = anyio.run(main)

    assert view.turn.answer == "I guess."
    assert "no user is there to ask" in texts(store)[0]


def test_leaving_plan_mode_that_is_off_does_nothing() -> None:
    store = MemoryStore()

    async def main() -> View:
        provider = ScriptedProvider([PLAN], "Right.")
        return await send(await open_session(store, planning_world(provider, [])), "Hi")

    view = anyio.run(main)

    assert view.turn.outcome == "answered"
    assert texts(store) == ["Not in plan mode; continue with the task."]


class SlowToTake:
    """Begins a snapshot at `take`, and ends it at `go`."""

    is_behind, notice = False, ""

    def __init__(self) -> None:
        self.began, self.go = anyio.Event(), anyio.Event()

    def begin(self) -> None: ...
    def note_change(self) -> None: ...
    def forget(self) -> None: ...
    def report_failure(self, reason: str) -> None: ...

    async def secure(
        self, arguments: bytes, report: ReportProgress | None = None
    ) -> None: ...

    async def take(self, report: ReportProgress | None = None) -> SnapshotTaken:
        self.began.set()
        await self.go.wait()
        return SnapshotTaken(())

    def commits(self, head: str) -> tuple[Commit, ...]:
        return ()

    def commit_trees(self, commit: str) -> Trees:
        return ()

    def patch(
        self, before: Trees, after: Trees, paths: Collection[str] = ()
    ) -> tuple[tuple[FileChange, str], ...]:
        raise NotImplementedError

    def changes(self, before: Trees, after: Trees) -> tuple[FileChange, ...]:
        return ()

    async def restore(self, current: Trees, to: Trees, paths: Collection[str] = ()) -> int:
        return 0


def test_plan_mode_denies_an_allowed_call_that_has_not_started() -> None:
    orders: list[str] = []

    async def main() -> View:
        snapshots = SlowToTake()
        scripted_world = planning_world(ScriptedProvider([BOOK], "Oh."), orders)
        session = await open_session(
            MemoryStore(), replace(scripted_world, snapshots=snapshots)
        )

        async def switch() -> None:
            await snapshots.began.wait()
            await session.inbox.set_mode("plan")
            snapshots.go.set()

        async with anyio.create_task_group() as group:
            group.start_soon(switch)
            await send(session, "Book")
        return session.view

    view = anyio.run(main)

    assert orders == []
    assert ["in plan mode" in denied.reason for denied in view.turn.denials] == [True]


def test_bypass_mode_from_before_a_restart_is_not_restored_by_a_plan() -> None:
    store = MemoryStore()

    async def main() -> View:
        scripted_world = planning_world(ScriptedProvider([PLAN], "Done."), [])
        first = await open_session(store, scripted_world)
        await first.inbox.set_mode("bypass")
        await first.inbox.set_mode("plan")
        await send(first, "Plan it")
        await first.close()
        again = await open_session(store, scripted_world)
        await again.inbox.approve_plan()
        return await again.run_turns()

    assert anyio.run(main).rights.mode == "default"


def test_mode_chosen_after_leaving_plan_mode_is_kept_when_the_plan_is_approved() -> None:
    async def main() -> View:
        provider = ScriptedProvider([PLAN], "Done.")
        session = await open_session(MemoryStore(), planning_world(provider, []))
        await session.inbox.set_mode("bypass")
        await session.inbox.set_mode("plan")
        await send(session, "Plan it")
        await session.inbox.set_mode("rules-only")
        await session.inbox.approve_plan()
        return await session.run_turns()

    assert anyio.run(main).rights.mode == "rules-only"


def test_plan_followed_by_a_new_message_can_no_longer_be_approved() -> None:
    async def main() -> tuple[bool, View]:
        provider = ScriptedProvider([PLAN], "Rain.")
        session = await open_session(MemoryStore(), planning_world(provider, []))
        await session.inbox.set_mode("plan")
        await send(session, "Plan it")
        view = await send(session, "What is the weather?")
        return await session.inbox.approve_plan(), view

    approved, view = anyio.run(main)

    assert not approved
    assert [plan.state for plan in view.plans.made] == ["left"]


def test_mode_from_the_settings_is_recorded_and_applies_after_a_resume() -> None:
    store, orders = MemoryStore(), list[str]()

    async def main() -> View:
        scripted_world = planning_world(
            ScriptedProvider([BOOK], "Oh."), orders, mode="plan"
        )
        record = Recorder(store, masks=Redactor(()), clock=lambda: 0.0)
        first = await Session.open(
            record, lambda _: scripted_world, session_options=SessionOptions("plan")
        )
        await first.close()
        later = planning_world(ScriptedProvider([BOOK], "Oh."), orders)
        return await send(await open_session(store, later), "Book")

    view = anyio.run(main)

    assert (orders, view.rights.mode) == ([], "plan")
