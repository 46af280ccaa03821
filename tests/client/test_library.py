"""What a program can do with the public names of refold."""

import importlib
import inspect
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

import refold
from refold import (
    Agent,
    BadInput,
    Diff,
    Effect,
    Final,
    Note,
    Profile,
    Progress,
    ProviderError,
    Question,
    Reply,
    Result,
    Session,
    TextCame,
    ToolFailed,
    Usage,
    tool,
)
from refold.testing.providers import Reply as Line
from refold.testing.providers import ScriptedProvider
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server

LOOK = ("weather", '{"city": "Oslo"}')
BOOK = ("book", '{"what": "taxi"}')


@tool(Effect.LOOK)
async def weather(city: str) -> Reply:
    """Say what the weather is in a city."""
    return Reply(f"rain in {city}", (Note(f"looked at {city}"),))


@tool(Effect.RUN)
async def book(what: str, *, orders: list[str]) -> Reply:
    """Order something."""
    orders.append(what)
    return Reply(f"{what} ordered")


@tool(Effect.LOOK)
async def wait(*, progress: Callable[[str], None], busy: anyio.Event) -> Reply:
    """Never come back."""
    progress("half way\n")
    busy.set()
    await anyio.sleep_forever()
    raise AssertionError


class World:
    """An agent with those tools, a scripted model, and the orders of the tools."""

    def __init__(self, *script: Any, **options: Any) -> None:
        self.provider, self.orders = ScriptedProvider(*script), list[str]()
        self.busy = anyio.Event()
        needs = {"orders": self.orders, "busy": self.busy}
        plain = {"tools": (weather, book, wait), "builtin": False, "dependencies": needs}
        self.agent = Agent(provider=self.provider, **{**plain, **options})

    def last_message(self, request: int = -1) -> str:
        """Return the last message of a request, as text."""
        parts = self.provider.heard[request].messages[-1].message.parts
        return " ".join(getattr(part, "text", "") for part in parts)


def in_session(
    agent: Agent, function: Callable[[Session], Awaitable[Any]], id_: str = ""
) -> Any:
    async def main() -> Any:
        async with agent.session(id_) as session:
            return await function(session)

    return anyio.run(main)


def test_agent_run_runs_a_turn_with_custom_tools() -> None:
    world = World([LOOK], "Take an umbrella.")

    result = world.agent.run("Umbrella?")

    assert result == Result(
        outcome="answered", reason="", text="Take an umbrella.",
        session_id=result.session_id, usage=Usage(fresh=20, output=33), cost=None,
        denials=(), files={},
    )  # fmt: skip
    assert world.last_message() == "rain in Oslo"


def test_an_agent_has_built_in_tools_and_custom_tools(tmp_path: Path) -> None:
    write = ("write_file", '{"path": "a.txt", "content": "hello\\n"}')
    provider = ScriptedProvider([write, LOOK], "Done.")
    agent = Agent(
        provider=provider, tools=[weather], mode="accept-edits", directory=tmp_path
    )

    result = agent.run("Write.")

    assert result.files == {"a.txt": "created"}
    assert (tmp_path / "a.txt").read_text() == "hello\n"
    assert [spec.name for spec in provider.heard[0].tools][-4:] == [
        "exit_plan_mode",
        "weather",
        "tool_search",
        "tool_call",
    ]


def test_session_stream_yields_text_and_events_of_a_turn() -> None:
    world = World([LOOK], "Take an umbrella.")

    async def follow(session: Session) -> tuple[str, list[str], str]:
        text, kinds = "", list[str]()
        async with session.stream("Umbrella?") as frames:
            async for frame in frames:
                if isinstance(frame.item, TextCame):
                    text += frame.item.text
                elif frame.n == 0:
                    kinds.append(type(getattr(frame.item, "event", None)).__name__)
        return text, kinds, session.result.outcome

    result, kinds, outcome = in_session(world.agent, follow)

    assert (result, outcome) == ("Take an umbrella.", "answered")
    assert kinds == [
        "Said", "TurnStarted", "SystemPromptSet", "Delivered", "ModelAsked", "ModelAnswered", "Judged",
        "Started", "Ended", "ModelAsked", "ModelAnswered", "TurnEnded",
    ]  # fmt: skip


def test_leaving_a_stream_early_stops_its_turn_and_keeps_the_session_open() -> None:
    world = World([("wait", "{}")], "Again.")

    async def leave(session: Session) -> tuple[str, str, str]:
        async with session.stream("Wait.") as frames:
            async for frame in frames:
                if isinstance(frame.item, Progress):
                    break
        left = session.result
        return left.outcome, left.reason, (await session.run("And now?")).text

    assert in_session(world.agent, leave) == (
        "cancelled", "no client is connected any more", "Again.",
    )  # fmt: skip


def test_exception_inside_a_stream_propagates_unchanged() -> None:
    world = World("One.", "Two.")

    async def fail(session: Session) -> str:
        async def follow() -> None:
            async with session.stream("Go.") as frames:
                async for _ in frames:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await follow()
        return (await session.run("Again.")).outcome

    assert in_session(world.agent, fail) == "answered"


@pytest.mark.parametrize(
    ("verdict", "ordered", "message"),
    [
        (True, ["taxi"], "taxi ordered"),
        (False, [], "Refused. It was not done; do not try to get round this."),
        (
            "That is not safe.",
            [],
            "Refused: That is not safe. It was not done; do not try to get round this.",
        ),
        (
            "too dear",
            [],
            "Refused: too dear. It was not done; do not try to get round this.",
        ),
    ],
)
def test_the_approve_function_allows_or_denies_a_call(
    verdict: bool | str, ordered: list[str], message: str
) -> None:
    questions = list[Question]()

    async def approve(question: Question) -> bool | str:
        questions.append(question)
        return verdict

    world = World([BOOK], "Done.", approve=approve)

    result = world.agent.run("Book.")

    assert [(q.tool, q.arguments, q.reason) for q in questions] == [
        ("book", {"what": "taxi"}, "no rule allows book here")
    ]
    assert (world.orders, world.last_message()) == (ordered, message)
    assert (result.outcome, len(result.denials)) == ("answered", 0 if ordered else 1)


def test_two_calls_of_one_response_are_both_passed_to_approve() -> None:
    async def approve(question: Question) -> bool:
        await anyio.lowlevel.checkpoint()
        return question.arguments["what"] == "taxi"

    world = World([BOOK, ("book", '{"what": "jet"}')], "Done.", approve=approve)

    result = world.agent.run("Book both.")

    assert world.orders == ["taxi"]
    assert [d.arguments for d in result.denials] == [{"what": "jet"}]


def test_session_answer_answers_a_question_before_the_approve_function() -> None:
    async def answer_never(question: Question) -> bool:
        await anyio.sleep_forever()
        raise AssertionError

    world = World([BOOK], "Done.", approve=answer_never)

    async def answer_it(session: Session) -> tuple[bool, bool]:
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, "Book.")
            while not session.questions:
                await anyio.lowlevel.checkpoint()
            (question,) = session.questions
            first = await session.answer(question.call_id, True)
            return first, await session.answer(question.call_id, False)

    assert in_session(world.agent, answer_it) == (True, False)
    assert world.orders == ["taxi"]


def test_an_exception_in_approve_propagates_to_the_caller() -> None:
    async def approve(question: Question) -> bool:
        raise LookupError(question.tool)

    with pytest.raises(LookupError, match="book"):
        World([BOOK], "Done.", approve=approve).agent.run("Book.")


def test_without_an_approve_function_a_call_that_would_ask_is_refused() -> None:
    world = World([BOOK], "I may not.")

    result = world.agent.run("Book.")

    assert world.orders == []
    assert result.denials[0].reason.startswith(
        "Refused: no rule allows book here, and no user is there to ask."
    )


def test_a_message_joins_a_running_turn_and_an_interrupt_redirects_the_turn() -> None:
    world = World([("wait", "{}")], [LOOK], "Both heard.")

    async def redirect(session: Session) -> Result:
        results = list[Result]()

        async def run() -> None:
            results.append(await session.run("Wait."))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await world.busy.wait()
            await session.steer("Look at Bergen too.")
            assert await session.interrupt("Look at Oslo.")
        return results[0]

    result = in_session(world.agent, redirect)

    text = " ".join(
        getattr(p, "text", "")
        for s in world.provider.heard[-1].messages
        for p in s.message.parts
    )
    assert (result.outcome, result.text) == ("answered", "Both heard.")
    assert "Look at Bergen too." in text
    assert "Look at Oslo." in text


def test_interrupt_without_a_running_turn_returns_false() -> None:
    async def stop(session: Session) -> bool:
        return await session.interrupt()

    assert in_session(World().agent, stop) is False


def test_a_session_continues_after_the_step_limit() -> None:
    world = World([LOOK], "One look done.", "And the rest.", settings={"limits.steps": 1})

    async def reach_the_limit_twice(session: Session) -> list[tuple[str, str]]:
        first = await session.run("Look.")
        second = await session.continue_()
        return [(r.outcome, r.text) for r in (first, second)]

    assert in_session(world.agent, reach_the_limit_twice) == [
        ("step_limit", "One look done."), ("answered", "And the rest."),
    ]  # fmt: skip


def test_a_session_is_resumed_by_its_id_in_another_agent() -> None:
    id_ = World("Hello, Ann.").agent.run("I am Ann.").session_id
    later = World("Ann.")

    async def ask(session: Session) -> tuple[str, str]:
        return session.id, (await session.run("Who am I?")).text

    assert in_session(later.agent, ask, id_[:15]) == (id_, "Ann.")
    assert len(later.provider.heard[0].messages) == 3


def test_a_resumed_session_works_in_the_directories_in_which_it_worked(
    tmp_path: Path,
) -> None:
    first, second, more = (tmp_path / name for name in ("first", "second", "more"))
    for directory in (first, second, more):
        directory.mkdir()

    async def move(session: Session) -> str:
        await session.run("Go.")
        await session.set_directory(second, (more,))
        return session.id

    async def places(session: Session) -> tuple[str, ...]:
        await session.run("Where?")
        return session.workspace.directory, *session.workspace.roots

    id_ = in_session(World("Hello.", directory=first).agent, move)

    later = World("Here.", directory=first).agent
    assert in_session(later, places, id_) == (str(second), str(more))
    assert in_session(World("Here.", directory=first).agent, places) == (str(first),)


def test_a_resumed_session_without_its_directory_uses_that_of_the_agent(
    tmp_path: Path,
) -> None:
    (tmp_path / "gone").mkdir()
    id_ = World("Hello.", directory=tmp_path / "gone").agent.run("Go.").session_id
    (tmp_path / "gone").rmdir()

    async def places(session: Session) -> tuple[str, ...]:
        return session.workspace.directory, *session.workspace.roots

    later = World("Here.", directory=tmp_path).agent
    assert in_session(later, places, id_) == (str(tmp_path),)


def test_set_directory_during_a_turn_is_refused(tmp_path: Path) -> None:
    world, texts = World([("wait", "{}")], directory=tmp_path), list[str]()

    async def run_story(session: Session) -> None:
        async with session.stream("Go."):
            await world.busy.wait()
            with pytest.raises(BadInput) as error:
                await session.set_directory(tmp_path)
            texts.append(str(error.value))

    in_session(world.agent, run_story)
    assert texts == [
        "a turn of this session is running: wait or stop it, and set the directory then"
    ]


def test_an_invalid_effort_format_or_mode_is_refused_by_the_session() -> None:
    texts = list[str]()

    async def run_story(session: Session) -> None:
        wrong: Any = "hard"
        for order in (session.set_effort, session.set_format, session.set_mode):
            with pytest.raises(BadInput) as error:
                await order(wrong)
            texts.append(str(error.value))

    in_session(World("Hi.").agent, run_story)

    assert texts[:2] == [
        "'hard' is not an effort: off, low, medium, high, max",
        "'hard' is not a format: plain, markdown, json, xml",
    ]
    assert texts[2].startswith("'hard' is not a mode: default, ")


def test_a_resumed_session_without_its_agent_uses_the_agent_main(tmp_path: Path) -> None:
    own = Profile(name="nono", description="Says no.")
    with_it = World("No.", agent="nono", agents=[own]).agent

    async def name(session: Session) -> str:
        await session.run("Go.")
        return session.agent

    async def id_and_name(session: Session) -> tuple[str, str]:
        return session.id, await name(session)

    id_, first = in_session(with_it, id_and_name)
    assert (first, in_session(World("Yes.").agent, name, id_)) == ("nono", "main")


def test_an_unknown_session_id_is_an_error_that_quotes_it() -> None:
    async def do_nothing(session: Session) -> None:
        raise AssertionError

    with pytest.raises(BadInput, match="there is no session 'nowhere'"):
        in_session(World().agent, do_nothing, "nowhere")


def test_two_agents_with_different_homes_store_sessions_separately(tmp_path: Path) -> None:
    one = World([LOOK], "One.", home=tmp_path / "one")
    two = World([LOOK], "Two.", home=tmp_path / "two", settings={"limits.steps": 7})
    results = dict[str, Result]()

    async def run_both() -> None:
        async def run(name: str, world: World) -> None:
            async with world.agent.session() as session:
                results[name] = await session.run("Go.")

        async with anyio.create_task_group() as group:
            group.start_soon(run, "one", one)
            group.start_soon(run, "two", two)

    anyio.run(run_both)

    session_names = {
        n: [p.name for p in (tmp_path / n / "sessions").iterdir()] for n in results
    }
    assert {n: r.text for n, r in results.items()} == {"one": "One.", "two": "Two."}
    assert session_names == {name: [result.session_id] for name, result in results.items()}


def test_a_concurrent_second_run_is_refused_and_its_message_is_not_sent() -> None:
    world = World("One.", "Two.")

    async def run_twice(session: Session) -> list[str]:
        texts = list[str]()

        async def run(text: str) -> None:
            try:
                texts.append((await session.run(text)).text)
            except BadInput as error:
                texts.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(run, "First.")
            group.start_soon(run, "Second.")
        return texts

    result = in_session(world.agent, run_twice)

    assert sorted(result) == [
        "One.", "a turn of this session is running already: wait, or stop it",
    ]  # fmt: skip
    requests = world.provider.heard
    assert (len(requests), world.last_message()) == (1, "First.")


def test_a_stream_during_a_run_is_refused() -> None:
    world = World([("wait", "{}")])

    async def run_twice(session: Session) -> bool:
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, "Wait.")
            await world.busy.wait()
            with pytest.raises(BadInput, match="running already"):
                await session.stream("Me too.").__aenter__()
            return await session.interrupt()  # the first is still there to be stopped

    assert in_session(world.agent, run_twice)


def test_mode_bypass_is_not_restored_in_a_resumed_session() -> None:
    world = World([BOOK], "Done.")

    async def switch(session: Session) -> str:
        await session.set_mode("bypass")
        return (await session.run("Book.")).session_id

    id_ = in_session(world.agent, switch)
    careful, explicit = World([BOOK], "No."), World([BOOK], "Done.", mode="bypass")
    for later in (careful, explicit):
        in_session(later.agent, lambda session: session.run("Again."), id_)

    assert (world.orders, careful.orders, explicit.orders) == (["taxi"], [], ["taxi"])


def server_of(monkeypatch: pytest.MonkeyPatch, replies: int) -> Iterator[Any]:
    """Yield a server in a thread of its own, for programs that run an event loop
    themselves.
    """

    @asynccontextmanager
    async def serving() -> AsyncIterator[Any]:
        answers = [answer("anthropic", Line(f"Answer {n}.")) for n in range(replies)]
        async with wire_server(*answers) as server:
            yield server

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving()) as server,
    ):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-nobody-s-key")
        yield server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from server_of(monkeypatch, 5)


def test_a_resumed_session_uses_its_last_model_unless_the_agent_names_another(
    server: Any,
) -> None:
    import json

    agent = Agent(model="anthropic/one", builtin=False)

    async def switch(session: Session) -> str:
        await session.run("Hi.")
        await session.set_model("anthropic/two")
        return (await session.run("Hi.")).session_id

    id_ = in_session(agent, switch)
    for later in (Agent(builtin=False), Agent(model="anthropic/three", builtin=False)):
        in_session(later, lambda session: session.run("Hi."), id_)

    models = [json.loads(request.body)["model"] for request in server.heard]
    assert models == ["one", "two", "two", "three"]


def test_a_tool_can_end_the_turn_with_an_answer_and_report_failures_to_the_model() -> None:
    @tool(Effect.SELF)
    async def hand_in(answer: str) -> Reply:
        """Hand the answer in."""
        if answer == "?":
            raise ToolFailed("That is no answer.")
        return Reply("taken", control=Final(answer))

    calls = [[("hand_in", f'{{"answer": "{text}"}}')] for text in ("?", "42")]
    world = World(*calls, tools=(hand_in,))

    result = world.agent.run("6 * 7?")

    assert (result.outcome, result.text) == ("final", "42")
    assert world.last_message() == "That is no answer."


def test_a_failure_of_the_model_is_an_outcome_not_an_exception() -> None:
    result = World(ProviderError("the line is dead")).agent.run("Hi.")

    assert (result.outcome, result.reason) == ("failed", "the line is dead")


def test_a_tool_name_used_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="there are two tools named 'weather'"):
        World(tools=(weather, weather)).agent.run("Hi.")


def test_function_without_the_tool_decorator_is_refused_with_advice() -> None:
    async def plain(city: str) -> Reply:
        return Reply(city)

    with pytest.raises(BadInput, match=r"plain at .* is not a tool: put @tool"):
        World(tools=(plain,)).agent.run("Hi.")


def test_a_provider_whose_stream_does_not_yield_is_refused_with_advice() -> None:
    class Silent:
        async def stream(self, request: object) -> None:
            pass

    with pytest.raises(BadInput, match="`stream` of the provider Silent has no `yield`"):
        Agent(provider=Silent()).run("Hi.")  # type: ignore[arg-type]


def test_a_function_that_is_not_async_is_a_tool_and_its_value_is_sent_as_json() -> None:
    @tool(Effect.LOOK)
    def distances(city: str) -> dict[str, int]:
        """Distances in km from a city."""
        return {f"{city} to Oslo": 3}

    world = World([("distances", '{"city": "Bergen"}')], "Far.", tools=(distances,))

    assert world.agent.run("How far?").text == "Far."
    assert world.last_message().endswith('{"Bergen to Oslo":3}')


def test_a_tool_whose_parameter_has_no_type_is_refused() -> None:
    with pytest.raises(BadInput, match=r"'city' of the tool 'w' has no type: .* city: str"):

        @tool(Effect.LOOK)
        def w(city) -> str:  # type: ignore[no-untyped-def]
            """The weather."""
            return str(city)


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"directory='.*nowhere': there is no such directory"
    ):
        World("Hi.", directory=str(tmp_path / "nowhere")).agent.run("Hi.")


def test_agent_run_within_an_event_loop_is_refused_with_advice() -> None:
    async def main() -> None:
        World("Hi.").agent.run("Hi.")

    with pytest.raises(BadInput, match=r"one runs here already: use `async with"):
        anyio.run(main)


def test_an_unknown_setting_of_an_agent_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^there is no setting 'limit.steps'"):
        World(settings={"limit.steps": 3}).agent.run("Hi.")


def test_persist_false_writes_no_file(home: Path) -> None:
    result = World("Hi.", persist=False).agent.run("Hi.")

    assert result.text == "Hi."
    assert not (home / "refold").exists()


def test_a_pending_call_is_asked_again_or_refused_without_an_approve_function() -> None:
    class Gone(Exception):
        pass

    async def leaves(question: Question) -> bool:
        raise Gone

    async def agrees(question: Question) -> bool:
        return True

    def leave_open() -> str:
        async def scenario(session: Session) -> str:
            with pytest.raises(Gone):
                await session.run("Book.")
            return session.id

        return in_session(World([BOOK], approve=leaves).agent, scenario)

    alone, together = World("I may not."), World("Booked.", approve=agrees)
    result = in_session(alone.agent, lambda session: session.continue_(), leave_open())
    allowed = in_session(together.agent, lambda session: session.continue_(), leave_open())

    assert (result.text, alone.orders) == ("I may not.", [])
    assert (allowed.text, together.orders) == ("Booked.", ["taxi"])


# The library itself. ---------------------------------------------------------------


@pytest.mark.parametrize("name", refold.__all__)
def test_every_public_name_of_refold_has_a_docstring(name: str) -> None:
    value = getattr(refold, name)

    getdoc = inspect.getdoc(value) or ""
    assert len(getdoc) > 15
    public = [m for n, m in vars(value).items() if inspect.isfunction(m) and n[0] != "_"]
    if getattr(value, "__module__", "").startswith("refold.client."):
        assert [m.__name__ for m in public if not inspect.getdoc(m)] == []


def test_an_unknown_attribute_of_refold_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(
        AttributeError, match="refold has no 'agent'; it has Agent, BadInput"
    ):
        _ = refold.agent  # pyright: ignore


def examples(text: str) -> list[str]:
    """Return the indented pieces of a docstring that are Python."""
    blocks = textwrap.dedent(text).split("\n\n")
    whole = "\n\n".join(b if b.startswith("    ") else "\0" for b in blocks)
    return [textwrap.dedent(p) for p in whole.split("\0") if p.strip()]


def test_the_example_in_the_docstring_of_the_module_agent_runs(
    server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = examples(importlib.import_module("refold.client.agent").__doc__ or "")
    module = type(sys)("example")

    exec(compile(example, "example", "exec"), module.__dict__)

    assert capsys.readouterr().out == "Answer 0.\n"


def test_the_example_of_a_stream_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = examples(inspect.getdoc(Session.stream) or "")
    source = "async def main(session):\n" + textwrap.indent(example, "    ")
    names = dict[str, Any]()
    exec(compile(source, "example", "exec"), names)

    in_session(World("Fixed.").agent, names["main"])

    assert capsys.readouterr().out.endswith("\nFixed.\n")


def test_reply_accepts_the_exported_types_diff_and_note() -> None:
    assert Reply("x", (Diff("a", "created", "+x"), Note("made a"))).shown[1] == Note(
        "made a"
    )


def test_mode_and_sandbox_set_by_a_program_apply_after_set_directory(
    tmp_path: Path,
) -> None:
    """`set_directory` reads the settings of the new one, below those of the program."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    write = ("write_file", '{"path": "a.txt", "content": "x"}')
    agent = Agent(
        provider=ScriptedProvider([write], "Done."),
        directory=tmp_path / "one",
        mode="accept-edits",
        settings={"permissions.deny": ["edit_file(*.txt)"], "sandbox.profile": "read-only"},
    )

    async def main() -> tuple[str, str]:
        async with agent.session() as session:
            await session.set_directory(tmp_path / "two")
            await session.run("Write it.")
            return session.mode, session.settings.sandbox.profile

    assert anyio.run(main) == ("accept-edits", "read-only")
    assert list((tmp_path / "two").iterdir()) == []
