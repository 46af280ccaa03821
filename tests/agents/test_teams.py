"""Teams: teammates share a board and exchange mail, also over a crash."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from refold.agents.child import ChildSpec
from refold.agents.children import Children
from refold.agents.team import Team
from refold.errors import BadInput, ToolFailed
from refold.journal.board.task_graph import Board, BoardEvent, fold_board
from refold.journal.events.kinds import (
    ChildBorn,
    ChildEnded,
    Delivered,
    MailSent,
    Said,
    TeammateIdled,
    TurnStarted,
)
from refold.provider.port import Delta, Provider, Request
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import (
    Line,
    ScriptedConversations,
    as_reply,
    deltas,
    first_words,
    response_count,
)
from refold.tools.team import LEAD_NAME, TEAM_TOOLS
from refold.tools.todo import task_claim, task_create, task_list, task_update
from refold.values.control import BoardTask, NewTask, TaskChange
from refold.values.messages import Text, ToolResult
from tests.agents.families import TOOLS, Call, Tree, run_turn, tool_call

ON_BOARD = (task_create, task_claim, task_update, task_list)


class LoggedBoard:
    """The board of a tree. Its changes are lines of the same log, so that a test can cut
    it.
    """

    def __init__(
        self, log: list[tuple[str, str]], events: Sequence[BoardEvent] = ()
    ) -> None:
        self._log, self.events = log, list(events)
        self.board = fold_board(Board(), events)

    async def add(self, task: NewTask, author: str, key: str) -> BoardTask:
        event = self._decide(lambda: self.board.addition(task, key))
        return self.board.task(event.id if event else self.board.calls[key])

    async def change(self, id_: int, change: TaskChange, author: str) -> BoardTask:
        self._decide(lambda: self.board.update(id_, change, author))
        return self.board.task(id_)

    async def claim(self, id_: int, author: str, key: str) -> BoardTask:
        await anyio.lowlevel.checkpoint()
        event = self._decide(lambda: self.board.claim(id_, author, key))
        return self.board.task(event.id if event else id_ or self.board.calls[key])

    async def task(self, id_: int) -> BoardTask:
        return self.board.task(id_)

    async def tasks(self) -> Sequence[BoardTask]:
        return self.board.tasks

    def _decide(self, decide: Callable[[], BoardEvent | None]) -> BoardEvent | None:
        try:
            event = decide()
        except BadInput as error:
            raise ToolFailed(f"{error}.") from error
        if event is not None:
            self.events.append(event)
            self._log.append(("board", type(event).__name__))
            self.board = fold_board(self.board, [event])
        return event


class TeamTree(Tree):
    """A tree whose root may lead a team."""

    def __init__(self, provider: Provider, **world: Any) -> None:
        super().__init__(provider, **world)
        self.tools = (*TOOLS, *TEAM_TOOLS, *ON_BOARD)
        self.board = LoggedBoard(self.log)
        self.patience = (60.0, 5.0)

    def tool_extensions(
        self, children: Children, record: Recorder, id_: str, child: ChildSpec | None
    ) -> dict[str, object]:
        children.board, children.patience = self.board, self.patience
        lead = Team(record, LEAD_NAME, children.spawn)
        return {"board": self.board, "team": child.team if child else lead}

    def after(self, writes: int, provider: Provider) -> "TeamTree":
        tree = super().after(writes, provider)
        assert isinstance(tree, TeamTree)
        total = sum(1 for name, _ in tree.log if name == "board")
        tree.board = LoggedBoard(tree.log, self.board.events[:total])
        tree.patience = self.patience
        return tree

    def mail(self, id_: str) -> list[str]:
        """Return the messages of others to this session, in order."""
        events = self.events(id_, Said)
        return [item.text for item in events if item.text.startswith("<mail")]


def spawn(name: str, prompt: str = "Work.", agent: str = "worker") -> Call:
    return tool_call(
        "spawn_teammate", name=name, role=f"the {name}", prompt=prompt, agent=agent
    )


def mail(to: str, content: str, **arguments: object) -> Call:
    return tool_call("send_message", to=to, content=content, **arguments)


def mail_of(sender: str, text: str, kind: str = "") -> str:
    return f'<mail from="{sender}"{kind}>\n{text}\n</mail>'


def run(tree: TeamTree, text: str = "Go.") -> Session:
    async def run_bounded() -> Session:
        with anyio.fail_after(30):
            return await run_turn(tree, text)

    return anyio.run(run_bounded)


def teammate_ends(tree: Tree) -> dict[str, tuple[str, str]]:
    """Return how each teammate ended, by its name."""
    names = {born.child: born.teammate for born in tree.events("root", ChildBorn)}
    events = tree.events("root", ChildEnded)
    return {names[item.child]: (item.status, item.text) for item in events}


TALK = {
    "Go": [
        [spawn("ann"), spawn("bob")], [tool_call("broadcast", content="Begin")], "I wait.",
        "Thanks.", "All is done.", "Truly.", "Yes.", "Yes.", "Yes.",
    ],
    "You are ann": ["Ready.", [mail("bob", "Are you there?")], "Asked.", "Good.", "Good."],
    "You are bob": ["Ready.", [mail("ann", "I am."), mail("lead", "Met ann.")], "Told.", "Ok."],
}  # fmt: skip


def test_teammates_exchange_mail_and_all_end_when_no_work_is_left() -> None:
    tree = TeamTree(ScriptedConversations(TALK))

    session = run(tree)

    assert tree.mail("root/child-1") == [
        mail_of("lead", "Begin"), mail_of("bob", "I am."),
    ]  # fmt: skip
    assert sorted(tree.mail("root/child-2")) == [
        mail_of("ann", "Are you there?"), mail_of("lead", "Begin"),
    ]  # fmt: skip
    assert tree.mail("root") == [mail_of("bob", "Met ann.")]
    assert {name: status for name, (status, _) in teammate_ends(tree).items()} == {
        "ann": "done", "bob": "done",
    }  # fmt: skip
    assert session.view.turn.outcome == "answered"
    assert session.view.children.running == ()


class Crew:
    """A leader that puts tasks on the board and starts teammates, who do them one by one.

    The next response of each depends only on its last message.
    """

    def __init__(self, members: int, tasks: int) -> None:
        self.names = [f"mate-{n}" for n in range(members)]
        self.tasks = tasks
        self.asked = 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        leads = first_words(request).startswith("Go")
        line = self._lead(request) if leads else self._member(request)
        for delta in deltas(as_reply(line), response_count(request)):
            await anyio.lowlevel.checkpoint()
            yield delta

    def _lead(self, request: Request) -> Line:
        match response_count(request):
            case 0:
                return [
                    tool_call("task_create", subject=f"task {n}") for n in range(self.tasks)
                ]
            case 1:
                return [spawn(name) for name in self.names]
            case _:
                return "I wait."

    def _member(self, request: Request) -> Line:
        last = request.messages[-1].message.parts[-1]
        text = last.text if isinstance(last, Text | ToolResult) else ""
        if match := re.search(r"(?:Yours now: #|Task #)(\d+)", text):
            return [tool_call("book", what=f"task {match[1]}")]
        if match := re.fullmatch(r"task (\d+) ordered", text):
            return [tool_call("task_update", id=int(match[1]), status="done")]
        if "no task is free" in text:
            return "There is nothing left."
        return [tool_call("task_claim")]


@pytest.mark.slow
def test_five_teammates_racing_for_twenty_tasks_do_each_task_once() -> None:
    tree = TeamTree(Crew(5, 20))

    run(tree)

    assert sorted(tree.orders) == sorted(f"task {n}" for n in range(1, 21))
    assert {task.status for task in tree.board.board.tasks} == {"done"}
    assert len({task.owner for task in tree.board.board.tasks}) == 5
    assert [status for status, _ in teammate_ends(tree).values()] == ["done"] * 5


def outcome(tree: TeamTree) -> tuple[object, ...]:
    """Return the result, however often the process was killed."""
    tasks = [(t.id, t.status) for t in tree.board.board.tasks]
    children = {name for name in tree.stores if name != "root"}
    born = [b.teammate for b in tree.events("root", ChildBorn)]
    return tasks, children, sorted(born), sorted(teammate_ends(tree))


@pytest.mark.slow
@pytest.mark.parametrize("step", [23, 1])
def test_after_a_crash_at_any_line_every_task_is_done_once(step: int) -> None:
    """A command that a crash interrupted may have had its effect; it is not repeated."""
    whole = TeamTree(Crew(3, 6))
    run(whole)
    for cut in range(step, len(whole.log), step):
        tree = whole.after(cut, Crew(3, 6))
        label = f"cut at {cut}: {whole.log[cut - 1]}"

        run(tree) if not tree.stores else anyio.run(resume_tree, tree)

        assert outcome(tree) == outcome(whole), label
        events = [type(e).__name__ for e in tree.board.events]
        assert events.count("TaskAdded") == 6, label


async def resume_tree(tree: TeamTree) -> Session:
    with anyio.fail_after(30):
        session = await tree.open_session()
        view = session.view
        if not (view.conversation.user_messages or view.conversation.undelivered):
            await session.inbox.say("Go.")
        await session.run_turns()
        return session


@pytest.mark.slow
@pytest.mark.parametrize("step", [17, 1])
def test_after_a_crash_at_any_line_mail_arrives_once_and_in_order(step: int) -> None:
    whole = TeamTree(ScriptedConversations(TALK))
    run(whole)
    for cut in range(step, len(whole.log), step):
        tree = whole.after(cut, ScriptedConversations(TALK))
        label = f"cut at {cut}: {whole.log[cut - 1]}"
        before = tree.events("root", MailSent) if tree.stores else []

        anyio.run(resume_tree, tree)

        again = tree.events("root", MailSent)
        assert again[: len(before)] == before, label
        assert len({item.key for item in again}) == len(again), label
        assert {"ann", "bob"} <= {item.to for item in again}, label
        for name, id_ in (
            ("ann", "root/child-1"),
            ("bob", "root/child-2"),
            ("lead", "root"),
        ):
            expected = [mail_of(m.sender, m.text) for m in again if m.to == name]
            assert tree.mail(id_) == expected, label
        assert {status for status, _ in teammate_ends(tree).values()} == {"done"}, label


def test_mail_wakes_an_idle_teammate_and_a_waiting_leader() -> None:
    tree = TeamTree(ScriptedConversations({
        "Go": [[spawn("ann")], "I wait.", [mail("ann", "Count again.")], "I wait.", "Two it is.", "End.", "End."],
        "You are ann": [[mail("lead", "One.")], "Told.", [mail("lead", "Two.")], "Told again.", "Yes."],
    }))  # fmt: skip

    session = run(tree)

    assert tree.mail("root") == [mail_of("ann", "One."), mail_of("ann", "Two.")]
    assert tree.mail("root/child-1") == [mail_of("lead", "Count again.")]
    assert session.view.turn.outcome == "answered"


class SlowBoard(LoggedBoard):
    """A board on a disk: it is read in another thread, and other tasks run meanwhile."""

    def __init__(self, log: list[tuple[str, str]], random: Random) -> None:
        super().__init__(log)
        self._random = random

    async def tasks(self) -> Sequence[BoardTask]:
        for _ in range(self._random.randrange(60)):
            await anyio.lowlevel.checkpoint()
        return await super().tasks()

    async def claim(self, id_: int, author: str, key: str) -> BoardTask:
        for _ in range(self._random.randrange(60)):
            await anyio.lowlevel.checkpoint()
        return await super().claim(id_, author, key)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", [0, 1])
def test_mail_that_arrives_while_a_teammate_looks_for_work_starts_a_turn(
    hundred: int,
) -> None:
    """The leader sends it before its last message, when all others are idle."""
    lost = list[int]()
    for seed in range(hundred * 100, hundred * 100 + 100):
        tree = TeamTree(ScriptedConversations({
            "Go": [[spawn("ann"), spawn("bob")], *[[tool_call("list_teammates")]] * (seed % 8),
                   [mail("ann", "More."), mail("bob", "More.")], *["End."] * 6],
            "You are ann": ["First.", "Did more.", "Did more."],
            "You are bob": ["First.", "Did more.", "Did more."],
        }))  # fmt: skip
        tree.board = SlowBoard(tree.log, Random(seed))

        run(tree)

        for member in ("root/child-1", "root/child-2"):
            seqs = {
                seq for event in tree.events(member, Delivered) for seq in event.messages
            }
            message_seqs = {
                e.seq for e in tree.entries(member) if isinstance(e.event, Said)
            }
            if len(tree.mail(member)) != 1 or message_seqs - seqs:
                lost.append(seed)

    assert lost == []


def test_a_teammate_asked_to_shut_down_ends_after_a_last_answer() -> None:
    tree = TeamTree(ScriptedConversations({
        "Go": [[spawn("ann"), spawn("bob")], [tool_call("shutdown_teammate", name="ann", reason="Enough.")],
               [tool_call("list_teammates")], "I wait.", "Good.", "Good."],
        "You are ann": ["Ready.", "I leave nothing behind."],
        "You are bob": ["Ready."],
    }))  # fmt: skip

    run(tree)

    assert teammate_ends(tree)["ann"][0] == "done"
    (result,) = [m for m in tree.events("root", MailSent) if m.kind == "shutdown"]
    assert (result.sender, result.to, result.text) == ("lead", "ann", "Enough.")


def test_a_plan_is_sent_and_reviewed_by_mail() -> None:
    review = tool_call("review_plan", name="ann", approve=False, feedback="Smaller.")
    tree = TeamTree(ScriptedConversations({
        "Go": [[spawn("ann")], "I wait.", [tool_call("list_teammates")], [review], "I wait.", "Well.", "Well."],
        "You are ann": [[mail("lead", "1. All", kind="plan")], "I wait.", "Smaller, then."],
    }))  # fmt: skip

    session = run(tree)

    assert tree.mail("root") == [
        mail_of("ann", "This plan waits for review_plan.\n1. All", ' kind="plan"')
    ]
    assert tree.mail("root/child-1") == [
        mail_of("lead", "Your plan is not approved: revise it.\nSmaller.", ' kind="review"')
    ]
    results = [
        part.text
        for message in session.view.conversation.messages
        for part in message.message.parts
        if isinstance(part, ToolResult)
    ]
    assert any("its plan waits for review" in text for text in results)


@pytest.mark.parametrize(("calls", "why"), [
    ([spawn("Ann")], "A teammate cannot be called 'Ann'"),
    *(([spawn(name)], f"A teammate cannot be called {name!r}") for name in (
        "lead", "user", "system", "root", "person", "parent", "child-2", "child1", "shell", "board",
        "assistant", "background-1", "hook", "mail",
    )),
    ([spawn("ann"), spawn("ann")], "There is or was a teammate 'ann': give another name."),
    ([spawn(f"m{n}") for n in range(6)], "A team has 5 teammates at most: one must end first."),
    ([mail("eve", "Hello.")], "There is no teammate 'eve'. There are no others."),
    ([spawn("ann"), mail("lead", "x" * 8_001)], "The mail has 8,001 characters"),
])  # fmt: skip
def test_impossible_team_calls_fail_with_the_reason(calls: list[Call], why: str) -> None:
    mates = {f"You are m{n}": ["Ok."] for n in range(6)} | {"You are ann": ["Ok."]}
    tree = TeamTree(ScriptedConversations({"Go": [calls, *["I wait."] * 8], **mates}))

    session = run(tree)

    failed = [
        part.text
        for message in session.view.conversation.messages
        for part in message.message.parts
        if isinstance(part, ToolResult) and part.failed
    ]
    assert [text for text in failed if why in text] != []
    assert len(failed) == 1


def test_a_teammate_cannot_start_subagents_or_teammates() -> None:
    cast = ScriptedConversations(
        {"Go": [[spawn("ann")], "I wait.", "Ok."], "You are ann": ["Ready."]}
    )

    run(TeamTree(cast))

    tools = {tool.name for tool in cast.requests_of("You are ann")[0].tools}
    assert tools & {"task", "spawn_teammate", "shutdown_teammate", "review_plan"} == set()
    assert {"send_message", "read_inbox", "list_teammates", "task_claim"} <= tools


def test_the_idle_tool_ends_a_turn_and_mail_starts_the_next() -> None:
    cast = ScriptedConversations({
        "Go": [[spawn("ann")], "I wait.", [mail("ann", "Count again.")], "I wait.", "End.", "End."],
        "You are ann": [
            [mail("lead", "One."), tool_call("idle")], [tool_call("idle", report="Two it is.")], "Never said.",
        ],
    })  # fmt: skip
    tree = TeamTree(cast)

    run(tree)

    assert tree.mail("root") == [mail_of("ann", "One.")]
    assert tree.mail("root/child-1") == [mail_of("lead", "Count again.")]
    assert teammate_ends(tree) == {"ann": ("done", "Two it is.")}
    assert len(cast.requests_of("You are ann")) == 2


def test_a_subagent_of_the_task_tool_has_no_team_tools() -> None:
    give = tool_call("task", prompt="Work", agent="worker")
    cast = ScriptedConversations({"Go": [[give], "Ok."], "Work": ["Done."]})

    run(TeamTree(cast))

    tools = {tool.name for tool in cast.requests_of("Work")[0].tools}
    assert tools & {tool.name for tool in TEAM_TOOLS} == set()


def holding(*lines: Line) -> dict[str, Sequence[Line]]:
    return {
        "Go": [[tool_call("task_create", subject="it")], [spawn("ann")], "I wait.", "I see.", "I see."],
        "You are ann": [[tool_call("task_claim")], *lines],
    }  # fmt: skip


def test_a_failed_teammate_frees_its_task_and_its_report_names_the_task() -> None:
    # It has no second line, and so it fails.
    tree = TeamTree(ScriptedConversations(holding()))

    run(tree)

    assert [(t.status, t.owner) for t in tree.board.board.tasks] == [("pending", "")]
    (end,) = tree.events("root", ChildEnded)
    assert end.status == "failed"
    assert end.reason.endswith("; what it had not completed is free again: #1")
    (report,) = [s.text for s in tree.events("root", Said) if s.sender == "child-1"]
    assert "free again: #1" in report


def test_a_stopped_teammate_frees_its_task() -> None:
    tree = TeamTree(ScriptedConversations(holding([tool_call("wait")])))

    async def run_story() -> None:
        session = await tree.open_session()
        await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            while not tree.at_work:
                await anyio.lowlevel.checkpoint()
            await session.inbox.stop_child("child-1")

    run_with_time_limit(run_story)

    assert [(t.status, t.owner) for t in tree.board.board.tasks] == [("pending", "")]
    assert tree.events("root", ChildEnded)[0].outcome == "cancelled"


def test_mail_of_the_user_reaches_one_teammate_once_and_wakes_it() -> None:
    tree = TeamTree(ScriptedConversations({
        "Go": [[spawn("ann"), spawn("bob")], "I wait.", "Yes.", "Yes."],
        "You are ann": [[tool_call("wait")]],
        "You are bob": ["Ready.", "I look at b.txt."],
    }))  # fmt: skip
    accepted = list[bool]()

    async def run_story() -> None:
        session = await tree.open_session()
        await session.inbox.say("Go.")

        async def until(right: Callable[[], bool]) -> None:
            while not right():
                await anyio.lowlevel.checkpoint()

        def bob_is_idle() -> bool:
            return any(c.idle for c in session.view.children.team)

        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            await until(lambda: bool(tree.at_work) and bob_is_idle())
            for key in ("k1", "k1", "k2"):
                accepted.append(await session.inbox.mail("bob", f"Look: {key}", key))
            accepted.append(await session.inbox.mail("ann", "Wait no more.", ""))
            accepted.append(await session.inbox.mail("zoe", "Who are you?", "k3"))
            await until(lambda: len(tree.mail("root/child-1")) == 1)
            await until(lambda: len(tree.mail("root/child-2")) == 2)
            await until(lambda: not bob_is_idle())
            await session.inbox.stop_child("child-1")
            accepted.append(await session.inbox.mail("ann", "Too late.", "k4"))

    run_with_time_limit(run_story)

    assert accepted == [True, False, True, True, False, False]
    assert tree.mail("root/child-1") == [mail_of("person", "Wait no more.")]
    assert tree.mail("root/child-2") == [
        mail_of("person", "Look: k1"), mail_of("person", "Look: k2"),
    ]  # fmt: skip
    assert tree.mail("root") == []
    assert len(tree.events("root/child-2", TurnStarted)) == 2


def test_unread_mail_of_a_stopped_teammate_is_reported_to_the_leader() -> None:
    tree = TeamTree(ScriptedConversations({
        "Go": [[spawn("ann")], "I wait.", "I see."],
        "You are ann": [[tool_call("wait")]],
    }))  # fmt: skip

    async def run_story() -> None:
        session = await tree.open_session()
        await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            while not tree.at_work:
                await anyio.lowlevel.checkpoint()
            await session.inbox.mail("ann", "Look at\nb.txt.", "k1")
            await session.inbox.mail("ann", "And at c.txt.", "k2")
            await session.inbox.stop_child("child-1")

    run_with_time_limit(run_story)

    (end,) = tree.events("root", ChildEnded)
    assert end.reason == (
        "stopped by the person; it has not read its mail: "
        'from person, "Look at b.txt."; from person, "And at c.txt."'
    )
    (report,) = [s.text for s in tree.events("root", Said) if s.sender == "child-1"]
    assert "And at c.txt." in report


def run_with_time_limit(story: Callable[[], Any]) -> None:
    async def run_bounded() -> None:
        with anyio.fail_after(30):
            await story()

    anyio.run(run_bounded)


def test_an_idle_teammate_is_reminded_of_its_task_in_progress() -> None:
    tree = TeamTree(ScriptedConversations(holding(
        "Done, I think.", [tool_call("task_update", id=1, status="done")], "Now it is.",
    )))  # fmt: skip

    run(tree)

    assert [t.status for t in tree.board.board.tasks] == ["done"]


def test_an_idle_teammate_ends_while_its_leader_is_busy() -> None:
    cast = ScriptedConversations({
        "Go": [[spawn("ann")], "I wait.", "I heard it.", "I heard it."], "You are ann": ["Ready."],
    })  # fmt: skip
    tree = TeamTree(cast)
    tree.patience = (0.05, 0.01)

    async def run_story() -> None:
        session = await tree.open_session()
        await session.inbox.say("Go.")
        async with anyio.create_task_group() as group:
            group.start_soon(session.run_turns)
            while not session.view.children.children:
                await session.record.wait_for_event(after=session.view.seq)
            cast.holding.add("Go")
            while not tree.events("root", ChildEnded):
                await session.record.wait_for_event(after=session.view.seq)
            cast.holding.clear()

    run_with_time_limit(run_story)

    assert [e.idle for e in tree.events("root", TeammateIdled)] == [True]
    assert tree.events("root", ChildEnded)[0].status == "done"
