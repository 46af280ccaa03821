"""Does with refold what each name of a library of agents in Go does.

`USES` has a function for each group of names in `seeds_data/evva_api.go`, which does their work with
refold and a scripted model. `NOT_HERE` has the names without such a use, with the reason.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold import Agent, BadInput, Effect, Profile, Question, TextCame, tool
from refold.testing.providers import ScriptedProvider

READ = ("read_file", '{"path": "a.txt"}')
WRITE = ("write_file", '{"path": "b.txt", "content": "b\\n"}')
PLAN = ("exit_plan_mode", '{"plan": "1. Make b.txt.", "title": "A file"}')
ASK = ("ask_user", '{"questions": [{"question": "Which?", "options": [{"label": "red"}]}]}')
SEARCH = ("tool_search", '{"query": "select:calc"}')
CALC = ("tool_call", '{"name": "calc", "arguments": {"expression": "6*7"}}')

Use = Callable[[Path], Awaitable[None]]
USES: list[tuple[Use, tuple[str, ...]]] = []
# Each of these names belongs to the construction of the Go library, and not to its use.
NOT_HERE = {
    "Broker": "a question comes to `approve`, and no object stands between",
    "PermissionBroker": "as Broker",
    "WithPermissionBroker": "as Broker",
    "WithQuestionBroker": "as Broker",
    "SetPrePlanMode": "the mode before the plan is part of the fold, and no program sets it",
    "Option": "options are keyword arguments",
    "AgentType": "an agent is known by its name",
    "String": "of AgentType",
    "NewAgentRegistry": "the agents of a session are a tuple",
}


def example_of(*names: str) -> Callable[[Use], Use]:
    def add(function: Use) -> Use:
        USES.append((function, names))
        return function

    return add


def make_agent(directory: Path, *script: Any, **fields: Any) -> Agent:
    """Return an agent with a scripted model, which may run commands and edit without asking."""
    options: dict[str, Any] = {"provider": ScriptedProvider(*script), "mode": "bypass"}
    return Agent(directory=directory, **options | fields)


def provider_of(made: Agent) -> ScriptedProvider:
    assert isinstance(made.provider, ScriptedProvider)
    return made.provider


@tool(Effect.LOOK)
async def weather(city: str) -> str:
    """Say what the weather is in a city."""
    return f"rain in {city}"


@example_of("New", "Agent", "Run", "AgentID", "Session", "Status", "Model", "Workdir", "Effort",
     "SetEffort", "MaxIterations", "SetMaxIterations", "WithMaxIterations", "WithName", "Logger")  # fmt: skip
async def run_a_turn_and_read_the_session(directory: Path) -> None:
    agent = make_agent(directory, "Four.", settings={"limits.steps": 7})
    async with agent.session() as session:
        await session.set_effort("high")
        assert session.steps == 7
        await session.set_steps(9)
        await session.rename("sums")
        result = await session.run("What is 2+2?")

        assert (result.outcome, result.text, result.session_id) == (
            "answered",
            "Four.",
            session.id,
        )
        assert [m.message.text for m in session.view.conversation.messages] == [
            "What is 2+2?",
            "Four.",
        ]
        assert (session.effort, session.steps, session.status.running) == ("high", 9, False)
        assert session.workspace.directory == str(directory)
        assert session.view.session.name == "sums"


@example_of("ErrIterLimit", "Continue")
async def pause_at_the_step_limit_and_continue(directory: Path) -> None:
    agent = make_agent(
        directory, [READ], "So far.", "And the rest.", settings={"limits.steps": 1}
    )
    async with agent.session() as session:
        first = await session.run("Look.")
        second = await session.continue_()

    assert (first.outcome, second.outcome, second.text) == (
        "step_limit",
        "answered",
        "And the rest.",
    )


@example_of("ErrRunInProgress")
async def refuse_a_second_run(directory: Path) -> None:
    async with (
        make_agent(directory, "One.", "Two.").session() as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(session.run, "First.")
        await anyio.wait_all_tasks_blocked()
        for order in (
            session.run,
            session.set_model,
            session.set_agent,
            session.set_directory,
        ):
            if session.running:
                with pytest.raises(BadInput, match="run"):
                    await order("plan")


@example_of("Sink", "WithSink", "WithStream", "WithAsync", "IsAsync")
async def watch_from_two_places(directory: Path) -> None:
    async with make_agent(directory, "Hello.").session() as session:
        texts = list[str]()

        async def watch() -> None:
            async with session.stream("Hi.") as frames:
                async for frame in frames:
                    if isinstance(frame.item, TextCame):
                        texts.append(frame.item.text)

        events = list[object]()
        session.on_event(lambda entry: events.append(entry.event))
        await watch()

    assert "".join(texts) == "Hello."
    assert events


@example_of("Compact")
async def compact_by_hand(directory: Path) -> None:
    (directory / "a.txt").write_text("a\n")
    async with make_agent(
        directory, [READ], "It says a.", "The summary."
    ).session() as session:
        await session.run("Read.")
        await session.compact("the file")
        await session.settle()

        assert any(
            "The summary." in m.message.text for m in session.view.conversation.messages
        )


@example_of("PermissionMode", "PermissionModeName", "SetPermissionMode", "CyclePermissionMode",
     "WithPermissionMode", "PermissionStore", "WithPermissionStore")  # fmt: skip
async def change_the_mode_and_the_rules(directory: Path) -> None:
    async with make_agent(directory, mode="default").session() as session:
        assert session.mode == "default"
        for mode in ("accept-edits", "plan", "default"):
            await session.set_mode(mode)
            assert session.mode == session.permissions.mode == mode
        await session.permissions.allow("bash(make test)")
        assert session.permissions.grants == ("bash(make test)",)


@example_of("RespondPermission", "RespondQuestion")
async def answer_for_the_user(directory: Path) -> None:
    async def approve(question: Question) -> bool | list[str]:
        return ["red"] if question.asks else True

    agent = make_agent(directory, [WRITE], [ASK], "Red.", mode="default", approve=approve)
    async with agent.session() as session:
        result = await session.run("Write, then ask.")

    assert (result.text, result.denials, (directory / "b.txt").read_text()) == (
        "Red.",
        (),
        "b\n",
    )


@example_of("PlanModeState", "PrePlanMode")
async def plan_and_return_to_the_mode_before(directory: Path) -> None:
    agent = make_agent(directory, [PLAN], [WRITE], "Made.", mode="accept-edits")
    async with agent.session() as session:
        await session.set_mode("plan")
        assert session.permissions.mode_after_planning == "accept-edits"
        planned = await session.run("Plan a file.")
        assert session.plan is not None
        done = await session.approve_plan()

        assert (planned.outcome, done.text, session.mode) == (
            "plan_ready",
            "Made.",
            "accept-edits",
        )


@example_of("DeferredNames", "Describe", "ResolveTool", "Tool", "ToolState")
async def find_a_deferred_tool(directory: Path) -> None:
    agent = make_agent(directory, [SEARCH], [CALC], "42.")
    async with agent.session() as session:
        assert "calc" in {item.name for item in session.reports.next_tools().deferred}
        result = await session.run("6 times 7?")

        described, called = (
            provider_of(agent).heard[n].messages[-1].message.parts[0] for n in (1, 2)
        )
        assert "expression" in described.text  # type: ignore[union-attr]
        assert called.text == "6*7 = 42"  # type: ignore[union-attr]
        assert (session.tool("calc") is not None, session.tool("nothing")) == (True, None)
        assert (session.view.conversation.todos, result.text) == ((), "42.")


@example_of("WithCustomTool")
async def add_a_tool(directory: Path) -> None:
    agent = make_agent(
        directory, [("weather", '{"city": "Oslo"}')], "Rain.", tools=[weather]
    )
    async with agent.session() as session:
        assert (await session.run("Umbrella?")).text == "Rain."
    with pytest.raises(BadInput, match="weather"):
        async with make_agent(directory, tools=[weather, weather]).session():
            pass


@example_of("Profile", "ProfileName", "SwitchProfile", "WithPersona", "AgentRegistry", "All", "Get",
     "Register", "ListMain", "ListSubagent", "ListMainProfiles", "SubagentTypes", "WithAgentRegistry",
     "BuildAgentRegistry", "ResolveMainProfile")  # fmt: skip
async def choose_among_agents(directory: Path) -> None:
    folder = directory / "home/agents/nono"
    folder.mkdir(parents=True)
    (folder / "meta.yml").write_text("description: Says no.\nas: [main, subagent]\n")
    (folder / "system_prompt.md").write_text("You say no.\n")
    poet = Profile(
        name="poet", description="Writes.", prompt="You are a poet.", tools=("read_file",)
    )
    agent = make_agent(
        directory,
        "Rain, rain.",
        "No.",
        agents=[poet],
        agent="poet",
        home=directory / "home",
    )
    async with agent.session() as session:
        data = {profile.name: profile.use for profile in session.agents.profiles()}
        assert {"main", "explore", "plan", "nono", "poet"} <= set(data)
        assert (data["nono"], data["main"]) == ("both", "main")
        assert (await session.run("Write.")).text == "Rain, rain."
        assert [spec.name for spec in provider_of(agent).heard[0].tools] == ["read_file"]
        await session.set_agent("nono")
        assert (await session.run("Yes?")).text == "No."
        assert session.agent == "nono"
        with pytest.raises(BadInput, match="there is no agent 'nonono'"):
            await session.set_agent("nonono")


@example_of("Main", "Explore", "General", "Plan")
async def the_built_in_agents_have_their_tools(directory: Path) -> None:
    async with make_agent(directory).session() as session:
        profiles = {profile.name: profile for profile in session.agents.profiles()}

    assert Effect.CHANGE not in profiles["explore"].effects | profiles["plan"].effects
    assert profiles["main"].deferred
    assert Profile(name="narrow", description="", tools=("read_file",)).deferred == ()


@example_of("Spawn", "IsSubagent", "ParentID")
async def start_a_subagent(directory: Path) -> None:
    task = ("task", '{"agent": "explore", "prompt": "Look around.", "level": "big"}')
    agent = make_agent(directory, [task], "Nothing there.", "It found nothing.")
    async with agent.session() as session:
        assert (await session.run("Look around.")).text == "It found nothing."
        tree = await session.reports.tree()

    assert [child.address for child in tree.children] == ["root/child-1"]
    parent, child = (
        {spec.name: spec for spec in request.tools}
        for request in provider_of(agent).heard[:2]
    )
    assert all(
        name in str(parent["task"]) for name in ("explore", "code", "plan", "research")
    )
    assert "task" not in child


@example_of("ListSessions", "ResumeSession", "ResumeSnapshot")
async def resume_a_session(directory: Path) -> None:
    agent = make_agent(directory, "Noted.", "17.")
    async with agent.session() as session:
        await session.run("Remember 17.")
    assert [card.id for card in await agent.sessions()] == [session.id]
    async with agent.session(session.id) as again:
        assert (await again.run("Which number?")).text == "17."
        assert len(again.view.conversation.messages) == 4


@example_of("SwitchLLM")
async def change_the_model(directory: Path) -> None:
    agent = Agent(model="ollama/llama3", directory=directory)
    async with agent.session() as session:
        await session.set_model("openai/gpt-4o")
        assert session.model == "openai/gpt-4o"


@example_of("SwitchWorkdir")
async def change_the_directory(directory: Path) -> None:
    (directory / "other").mkdir()
    async with make_agent(directory, "One.").session() as session:
        await session.run("First.")
        await session.set_directory(str(directory / "other"))
        assert session.workspace.directory == str(directory / "other")
        assert len(session.view.conversation.messages) == 2


@example_of("BeginWorktreeSession", "EndWorktreeSession", "WorktreeSession")
async def enter_and_leave_a_worktree(directory: Path) -> None:
    script = (
        [("enter_worktree", '{"name": "side"}')],
        [("exit_worktree", '{"action": "keep"}')],
        "Back.",
    )
    await anyio.run_process(["git", "init", "-q", str(directory)])
    await anyio.run_process(
        ["git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a",
         "--allow-empty"])  # fmt: skip
    agent = make_agent(directory, *script)
    async with agent.session() as session:
        result = await session.run("Go aside.")

        assert result.text == "Back."
        assert session.view.session.worktree is None
        assert session.workspace.directory == str(directory)


@example_of("Skills", "WithSkillRefs", "WithSkillRegistry", "WithMemorySnapshot")
async def offer_skills_and_notes(directory: Path) -> None:
    agent = make_agent(directory, "So.")
    async with agent.session() as session:
        assert session.skills is not None
        names = {name for name, _ in session.skills.descriptions()}
        assert session.memory is not None
        session.memory.add("the tests run with pytest")
        await session.run("Hi.")

    assert "code-review" in names
    assert "- code-review: " in provider_of(agent).heard[0].system


@example_of("WithConfig")
async def work_beside_an_agent_with_another_home(directory: Path) -> None:
    one = make_agent(
        directory, "One.", home=directory / "one", settings={"limits.steps": 3}
    )
    two = make_agent(directory, "Two.", home=directory / "two")
    async with one.session() as first, two.session() as second:
        assert ((await first.run("a")).text, (await second.run("b")).text) == (
            "One.",
            "Two.",
        )
        assert (first.steps, second.steps) == (3, 50)


NAMES: Mapping[str, str] = {
    name: function.__name__ for function, names in USES for name in names
}
