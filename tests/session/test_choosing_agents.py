"""An agent chosen in a session: what is recorded, and what happens to the mode."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from refold.agents.registry import Registry, choose_agent
from refold.errors import BadInput
from refold.journal.events import codec
from refold.journal.events.kinds import Ended, Entry, Event, PlanAnswered, Said
from refold.journal.events.setting_events import AgentChosen, ModeChanged
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.session.inbox import PLAN_APPROVED, Inbox
from refold.session.recorder import Recorder
from refold.values.control import PlanReady
from refold.values.modes import Mode

Doing = Callable[[Inbox, Recorder], Awaitable[object]]


def record_choice(doing: Doing, mode: Mode = "default") -> tuple[list[Event], View]:
    """Return what a session of that mode records of this."""

    async def main() -> tuple[list[Event], View]:
        store = MemoryStore()
        record = Recorder(store)
        await record.open()
        await doing(Inbox(record, mode=mode), record)
        return [entry.event for entry in entries(store)], record.view

    return anyio.run(main)


def entries(store: MemoryStore) -> list[Entry]:
    return [entry for entry, _ in codec.decode(store.lines)]


def test_choosing_the_same_agent_twice_is_recorded_once() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        assert await inbox.choose_agent("review")
        assert not await inbox.choose_agent("review")

    events, view = record_choice(run_scenario)

    assert events == [AgentChosen("review")]
    assert view.session.agent == "review"


def test_choosing_the_plan_agent_enters_plan_mode() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        await inbox.choose_agent("plan", mode="plan", next_agent="main")

    events, view = record_choice(run_scenario)

    assert events == [AgentChosen("plan", "main"), ModeChanged("plan")]
    assert (view.session.after_plan, view.rights.mode) == ("main", "plan")


def test_leaving_the_plan_agent_restores_the_previous_mode() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        await inbox.set_mode("accept-edits")
        await inbox.choose_agent("plan", mode="plan", next_agent="main")
        await inbox.choose_agent("main")

    events, view = record_choice(run_scenario)

    assert events[-2:] == [AgentChosen("main"), ModeChanged("accept-edits")]
    assert (view.session.agent, view.session.after_plan) == ("main", "")


def test_plan_mode_set_by_the_user_stays_when_another_agent_is_chosen() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        await inbox.set_mode("plan")
        await inbox.choose_agent("review")

    assert record_choice(run_scenario)[0] == [ModeChanged("plan"), AgentChosen("review")]


def test_an_approved_plan_switches_to_the_main_agent_and_leaves_plan_mode() -> None:
    async def run_scenario(inbox: Inbox, record: Recorder) -> None:
        await inbox.choose_agent("plan", mode="plan", next_agent="main")
        await record(Ended("call-0", "done", "", control=PlanReady("T", "Do it.")))
        await inbox.approve_plan()

    events, view = record_choice(run_scenario)

    assert events[-4:] == [
        PlanAnswered(3, True),
        ModeChanged("default"),
        AgentChosen("main"),
        Said(PLAN_APPROVED, "person", "next"),
    ]
    assert view.session.agent == "main"


def test_choose_agent_by_name_also_sets_the_mode_of_the_agent() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        assert (await choose_agent(inbox, Registry(), "Plan")).name == "plan"

    events, _ = record_choice(run_scenario)

    assert events == [AgentChosen("plan", "main"), ModeChanged("plan")]


def test_an_agent_only_for_other_agents_cannot_be_chosen() -> None:
    async def run_scenario(inbox: Inbox, _: Recorder) -> None:
        with pytest.raises(
            BadInput, match="the agent code can be used only for other agents"
        ):
            await choose_agent(inbox, Registry(), "general")

    assert record_choice(run_scenario)[0] == []


def test_a_rejected_plan_stays_with_the_plan_agent() -> None:
    async def run_scenario(inbox: Inbox, record: Recorder) -> None:
        await inbox.choose_agent("plan", mode="plan", next_agent="main")
        await record(Ended("call-0", "done", "", control=PlanReady("T", "Do it.")))
        await inbox.reject_plan(feedback="Smaller.")

    assert record_choice(run_scenario)[1].session.agent == "plan"
