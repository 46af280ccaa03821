"""Every command of the table, typed in a session, and what it does. One that has no row fails.

The finer points of each stand in the tests of its own family.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from refold.commands.completion import Complete
from refold.commands.completions import completer_for
from refold.commands.table import commands
from refold.console.capabilities import TerminalCapabilities
from refold.journal.state.fold import fold
from refold.journal.store.tree_reader import entries_in
from refold.session.recorder import Recorder
from refold.testing.providers import Line, ScriptedProvider
from tests.terminal.at_home import HOSTILE, TerminalDriver
from tests.terminal.stage import handle_on, open_session

LOOK = ("read_file", '{"path": "hello.py"}')
PLAN = ("exit_plan_mode", '{"plan": "1. Say **hello**", "title": "Greet"}')
CLAIM = (
    "claim",
    '{"claims": [{"claim": "hello.py was read", "evidence": [{"path": "hello.py"}]}]}',
)
ESC = "\\u001b"  # as JSON has it
Seen = tuple[str, ...]


class CommandCase:
    """A session with these answers in which `typed` is entered; then the screen shows each
    of `seen`.
    """

    def __init__(
        self, *typed: str, answers: tuple[Line, ...] = (), seen: Seen = ()
    ) -> None:
        self.typed, self.answers, self.seen = typed, answers, seen


def case_after_exchange(
    *typed: str, seen: Seen, then: tuple[Line, ...] = ()
) -> CommandCase:
    """After one exchange, which some commands are about."""
    return CommandCase("hello", *typed, answers=("Hi there.", *then), seen=seen)


ROWS: Mapping[str, CommandCase] = {
    "help": CommandCase("/help", "/help all", "/? keys", "/help /tag", seen=(
        r"Model and agent +/model /effort .*", r"  Ctrl.O +last result in full +Ctrl.T +todo list +",
        r"  /undo +undo everything .*", "Plans and rewinding",
        "  Shift.Tab +the next mode: .*", r"  /rename \[NAME\] +show or set the name of this session",
        r"/tag \[\+TAG\|-TAG\]", "  While a turn runs, it runs at once.")),
    "sessions": CommandCase("/sessions", "1", seen=(
        r"1 +now  fence work: .*", 'Resumed "fence work".', "It is blue.")),
    "resume": CommandCase("/resume fence work", "/load nope", "/resume last", seen=(
        'Resumed "fence work".', "there is no other session of this directory", "› paint the fence", "there is no session 'nope' .*")),
    "search": CommandCase("/search fence", "1", seen=(
        "1  .* fence work: pai.*", " +2  person paint the fence", 'Resumed "fence work".')),
    "rename": CommandCase("/rename my work", "/save", '/rename ""', seen=(
        "This session is called 'my work'.", "This session has no name. .*")),
    "tag": CommandCase("/tag +a +b", "/tag -a", "/tag", seen=("#a #b", "#b")),
    "history": case_after_exchange("/history", "/history 1", seen=(r" *2  hello", r" *\d+  Hi there\.")),
    "export": case_after_exchange("/export pdf", "/export text talk.txt", seen=(
        "'pdf' is none of md, html, tar, text, script; for a file of that name, type ./pdf",
        ".*/talk.txt: 1 session, .*")),
    "fork": case_after_exchange("/fork", "/history", seen=("Forked at event .*", r" *2  hello")),
    "cd": CommandCase("/cd", "/cd .", "/cd ../none", "/cd hello.py", "/cd /tmp", "/cd", seen=(
        ".*/work", ".*/work is the working directory already.", "/cd '../none': .* does not exist",
        "/cd 'hello.py': .* is not a directory", "refold · .* · /tmp", "/tmp")),
    "add-dir": CommandCase("/add-dir", "/add-dir /tmp", "/add-dir /tmp", seen=(
        ".*/work", "and /tmp", "/tmp belongs to the workspace already.")),
    "worktree": CommandCase("/worktree", "/worktree x", seen=2 * (
        ".* is not a git repository, so no working tree can be made",)),
    "ports": CommandCase("/ports", "/ports all", seen=(
        "the workspace is on this machine, and so are its servers: open their addresses directly",
        "/ports 'all' is not a port: give a number that /ports lists")),
    "clear": case_after_exchange("/new", "/history", seen=(
        "A new session. The previous one is kept.", "There are no messages in this session yet.")),
    "continue": case_after_exchange("/continue", then=("On I go.",), seen=("On I go.",)),
    "quit": CommandCase("/q", "never read", seen=()),
    "model": CommandCase("/model", "1", "/backend", seen=(
        r"1  script/own  now .*", r"number, or words to search for.*|.*The model is still script/own.*")),
    "effort": CommandCase("/effort high", "/effort", seen=("From the next turn: high",)),
    "thinking": CommandCase("/thinking off", "/thinking", "/thinking hard", seen=(
        "From the next turn: no thinking, if the model allows it", r"off \(/thinking .*",
        r"type /thinking on\|off\|high\|max, not 'hard'")),
    "agent": CommandCase("/agent review", "/agent", seen=(r"From the next turn: review.*", r"\d  review .*")),
    "preset": CommandCase("/preset", seen=(r"\* .*", "/preset NAME chooses one.*")),
    "format": CommandCase("/format", "/format xml save", "/format", "/format odd", seen=(
        "The conversation is sent as messages.", "From the next turn: xml.", "The default of new sessions: xml",
        "The conversation is sent as xml.", "'odd' is not a format: plain.*")),
    "mode": CommandCase("/mode plan", "/mode", seen=(r"\* plan .*",)),
    "approval": CommandCase("/approval off", "/approval", seen=("off .*",)),
    "permissions": CommandCase("/permissions allow bash(make *)", "/permissions", seen=(
        r"  allow bash\(make \*\)  this session",)),
    "tools": CommandCase("/permissions allow bash(make *)", "/tools", "/tools bash", seen=(
        "  read_file +look +runs without asking", "  edit_file +change +asks",
        r"      allow bash\(make \*\)", "Run a bash command in the workspace.*")),
    "plan": CommandCase("/plan list", seen=("No plan was made in this session.",)),
    "plans": CommandCase("/mode plan", "greet", "n", "", "/plans", "/plans 1", "/plans 2",
        answers=([PLAN], "Well."), seen=(
            r" 1 \d.* Greet", r"1\. Say \*\*hello\*\*",
            "there is no plan '2' in this session: type 1 to 1")),
    "execute": CommandCase("/mode plan", "/execute", "/mode", seen=(r"\* default .*",)),
    "rewind": case_after_exchange("/rewind", "/rewind 2 conversation", "y", "/history", seen=(
        "2  .*  hello", r" +\(rewound\)")),
    "undo": case_after_exchange("/undo", "y", "/history", seen=(r" +\(rewound\)",)),
    "edit": case_after_exchange("/edit 2 good day", "/edit 99 x", "/history", seen=(
        r"Message 2 is changed\. To undo: /rewind \d+ conversation",
        "there is no message 99 in the conversation now: .*", r" *2  good day", r" +\(edited\)")),
    "delete": case_after_exchange("/delete 2", "/delete", "/history", seen=(
        r"Message 2 is deleted\. To undo: /rewind \d+ conversation",
        "type /delete N with a number from /history, not ''", r" +\(deleted\)")),
    "context": CommandCase("/context", seen=("Nothing has been sent to a model yet.",)),
    "compact": CommandCase("/compact", seen=("There are no messages yet, .*",)),
    "status": case_after_exchange("/status", "/status now", seen=(
        r"version +refold \d.*", r"session +\d{8}-.*", r"model +script/own", r"mode +default",
        r"rules +0 from settings, 0 allowed for this session", r"context +(<1% of window|[\d,]+ tokens; the size of the window is unknown)",
        "/status takes no argument, not 'now'")),
    "doctor": CommandCase("/doctor --offline", "/doctor now", seen=(
        r"ok +refold .*", "type /doctor, or /doctor --offline, not 'now'")),
    "diff": CommandCase("/diff", "/diff x", seen=("No file has changed in this session.",)),
    "todos": CommandCase("/todos", seen=("There are no todos.",)),
    "tasks": CommandCase("/tasks", "add", "/tasks", "/tasks 2", "/tasks all", "/tasks x",
        answers=([("task_create", f'{{"subject": "mow {ESC}[2J"}}'),
                  ("task_create", '{"subject": "rake", "description": "all leaves", "blocked_by": [1]}')],
                 [("task_update", '{"id": 1, "status": "cancelled"}'),
                  ("task_claim", '{"id": 2}')], "Two tasks."), seen=(
            r"There are no tasks on the board\.", r"\[>\] #2  rake  \(this session\)", "all leaves",
            r"\[-\] #1  mow \\x1b\[2J", r"1 open \(1 in progress\), 1 cancelled", "type /tasks, /tasks all or .*")),
    "cost": case_after_exchange("/cost", seen=(r".*\d+ out.*",)),
    "budget": CommandCase("/budget 2", seen=(r".*\$2.*",)),
    "iterations": CommandCase("/iterations", "/iterations 2", "look", "/iterations 0",
        "/iterations off", answers=([LOOK], [LOOK], "A summary."), seen=(
            "A turn may have any number of model responses; /iterations N limits it.",
            "A turn may have 2 model responses, set for this session.",
            "step limit: 2 responses were allowed.*", "type /iterations N, .* not '0'")),
    "timeline": CommandCase("look", "/timeline", "/timeline 1", answers=([LOOK], "Hi."), seen=(
        r"\d.* root/call-0 +done  read_file hello.py", r".* root/step-1 +done .*")),
    "verify": CommandCase("look", "/verify", "/verify 7", answers=([LOOK], "Hi."), seen=(
        "turn 1 makes no claims that can be checked",
        "there is no turn 7 in this session; the first is 1")),
    "expand": CommandCase("look", "/expand", answers=([LOOK], "Hi."), seen=(
        "read_file hello.py", r".*print\(1\)")),
    "agents": CommandCase("/agents", seen=(r"\* main .*",)),
    "tree": CommandCase("/tree", seen=("No subagents: .*",)),
    "teams": CommandCase("/teams on", "/teams on", "team", "/teams", "/teams off", "/teams x", "/teams ann Look at b.txt", answers=(
        [("spawn_teammate", '{"name": "Ann", "role": "x", "prompt": "y"}')], "No team."), seen=(
            r"Teams are on from the next turn on\.", r"Teams are on already\.", ".*cannot be called 'Ann'.*",
            r"There are no teammates in this session\.", r"Teams are on\.", "type /teams, /teams on, .*",
            "no teammate 'ann' is at work; there are no teammates")),
    "background": CommandCase("/background", "/background x", seen=(
        "Nothing runs in the background.", "type /background, not /background x.*")),
    "stop": CommandCase("/stop", seen=("no subagent is running",)),
    "hooks": CommandCase("/hooks", seen=(r"There are no hooks here\..*",)),
    "mcp": CommandCase("/mcp", seen=(r"There are no MCP servers here\..*",)),
    "skills": CommandCase("/skills", seen=(r"  /code-review \[task\] .*",)),
    "memory": CommandCase("/memory", seen=("There are no notes yet. .*",)),
    "note": CommandCase("/note tests run with make", "/memory", seen=(
        ".*tests run with make",)),
    "shell": CommandCase("!echo hi | tr h H", seen=("Hi",)),
    "config": CommandCase("/config notify_seconds", "/config no.such", "/config set notify_seconds 9",
        "/config notify_seconds", "/config set model nowhere/x", "/config set limits.steps many",
        "/config set notify_seconds", seen=(
        "notify_seconds = .*  # default", "there is no setting 'no.such'.*",
        "New sessions use notify_seconds = 9.", r"notify_seconds = 9\b.*",
        "there is no provider 'nowhere'.*", "limits.steps = 'many' cannot be saved: .*",
        "type /config set KEY VALUE; /config lists the keys")),
    "theme": CommandCase("/theme", "/theme dark save", "/theme pink", "/config terminal.theme", seen=(
        "This terminal shows no colours, so there is nothing to pick.", "It is the default of new sessions.", "type /theme .*",
        'terminal.theme = "dark"  # .*')),
    "vi": CommandCase("/vi on", seen=("this display has no line editor, .*",)),
}  # fmt: skip


@pytest.fixture
def driver(tmp_path: Path) -> Callable[..., TerminalDriver]:
    """Make a desk in a folder with a file and an earlier session named "fence work"."""

    def make_desk(look: TerminalCapabilities | None = None) -> TerminalDriver:
        here = tmp_path / "work"
        here.mkdir()
        (here / "hello.py").write_text("print(1)\n")
        driver = TerminalDriver(here, look)
        driver.tell("paint the fence", "/rename fence work", answers=("It is blue.",))
        return driver

    return make_desk


def test_every_command_has_a_row_in_the_table() -> None:
    assert set(ROWS) == {command.name for command in commands()}


@pytest.mark.parametrize("name", ROWS)
def test_every_command_prints_the_output_in_its_row(
    name: str, driver: Callable[..., TerminalDriver]
) -> None:
    row = ROWS[name]

    rows = driver().tell(*row.typed, answers=row.answers)

    assert [text for text in row.seen if not any(re.fullmatch(text, r) for r in rows)] == []
    assert not any("never read" in row for row in rows)


def test_a_configured_alias_runs_its_command(
    driver: Callable[..., TerminalDriver], home: Path
) -> None:
    file = home / "refold/config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text('[command_aliases]\nt = "/tag +x"\nu = "/u"\nhelp = "/quit"\n')

    rows = driver().tell("/t", "/t +y", "/u", "/help keys", "/tag")

    assert "#x #y" in rows
    assert "command_aliases: 'u' stands for '/u', not a command" in rows
    assert any(row.startswith("  Shift+Tab") for row in rows)


def test_help_for_a_command_shows_its_description_arguments_and_aliases(
    driver: Callable[..., TerminalDriver],
) -> None:
    by_name = {command.name: command for command in commands()}
    lines = [f"/help {word}" for name in by_name for word in (name, f"/{name.upper()}")]

    rows = driver().tell(*lines)

    expected, shown = dict[str, object](), dict[str, object]()
    for name, command in by_name.items():
        first = rows.index(f"/{name} {command.takes}".strip()) + 1
        texts = [f"  {text}" for text in (command.about, command.more) if text]
        expected[name] = (texts, 2, [])
        shown[name] = (
            rows[first : first + len(texts)],
            rows.count(f"  {command.about}"),
            [
                name
                for name in command.aliases
                if not any(f"/{name}" in row for row in rows)
            ],
        )
    assert shown == expected


def test_an_unknown_command_is_refused_with_the_nearest_name(
    driver: Callable[..., TerminalDriver],
) -> None:
    names = {name for command in commands() for name in command.names}

    rows = driver().tell(
        "/resum", "/loadd", "/plugin", "/help unknown", f"/{HOSTILE}", "/\x1b[2Jx"
    )

    assert names.isdisjoint({"plugin", "init"})
    assert rows[:4] == [
        "There is no command /resum. Did you mean /resume?",
        "There is no command /loadd. Did you mean /load?",
        "There is no command /plugin. /help lists all commands.",
        "There is no command /unknown. /help lists all commands.",
    ]
    assert "There is no command /\\x1b[2jx. /help lists all commands." in rows


@pytest.mark.parametrize("name", ["sessions", "resume", "history", "search", "rename"])
def test_every_command_escapes_control_sequences_on_a_narrow_screen(
    name: str, tmp_path: Path
) -> None:
    look = TerminalCapabilities(text_width=lambda: 20, moves=True)
    here = TerminalDriver(tmp_path, look)
    here.tell(HOSTILE, answers=("\x1b[31m",))

    rows = here.tell(HOSTILE, *ROWS[name].typed, "/search second", "1", answers=("\x9b1m",))

    # A status line may stand before.
    texts = [row.rpartition("\r\x1b[K")[2] for row in rows]
    assert [row for row in texts if not row.isprintable()] == []


def test_completion_after_a_command_uses_the_table_of_commands(tmp_path: Path) -> None:
    driver = TerminalDriver(tmp_path)
    driver.tell("a title", "/rename work", answers=("Yes.",))

    async def completing() -> Complete:
        engine = await open_session(ScriptedProvider(), tmp_path)
        handle = handle_on(engine, ScriptedProvider(), tmp_path, keep=True)
        return completer_for(handle, lambda: str(tmp_path))

    complete = anyio.run(completing)

    def complete_after(typed: str) -> list[str]:
        return [offer.text for offer in complete(typed)]

    assert complete_after("/mode pla") == ["plan"]
    assert (
        complete_after("/backend ")
        == complete_after("/model ")
        == ["script/one", "script/two"]
    )
    assert complete_after("/load ti") == complete_after("/resume wor") == ["work"]
    assert complete_after("/? ren") == ["rename"]
    assert [
        text for command in commands() for text in complete_after(f"/{command.name} \0")
    ] == []
    assert [
        command.name
        for command in commands()
        if f"/{command.name}" not in complete_after("/")
    ] == []


def test_resume_refuses_a_session_that_another_process_has_open(
    driver: Callable[..., TerminalDriver],
) -> None:
    here = driver()

    with start_blocking_portal() as elsewhere:
        record = Recorder(here.home.store(here.ids[0]))
        elsewhere.call(record.open)
        rows = here.tell("/resume fence work", "hello", "/history", answers=("Yes.",))
        elsewhere.call(record.close)

    assert any("is being written" in row or "holds" in row for row in rows)
    assert "2  hello" in rows


def test_a_session_that_is_not_saved_lists_no_other_sessions(
    driver: Callable[..., TerminalDriver],
) -> None:
    rows = driver().tell(
        "/sessions", "/resume", "/resume x", "/search y", "/timeline", keep=False
    )

    nowhere = "this session is not saved, so there are no other sessions"
    assert rows == [nowhere] * 4 + ["There are no calls in this session yet."]


def test_switching_sessions_records_each_message_in_the_session_where_it_was_typed(
    driver: Callable[..., TerminalDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = driver()
    monkeypatch.chdir(here.here)

    rows = here.tell(
        "hello", "/rename other", "/resume fence", "/resume other", "/resume fence",
        "and now?", answers=("Hi.", "Dry."),
    )  # fmt: skip

    first, left = (fold(entries_in(here.home.path(id_))[0]) for id_ in here.ids)
    assert [user_message.text for user_message in first.conversation.user_messages] == [
        "paint the fence",
        "and now?",
    ]
    assert [user_message.text for user_message in left.conversation.user_messages] == [
        "hello"
    ]
    went = [
        'Resumed "fence work".',
        'Resumed "other".',
        'Resumed "fence work".',
    ]
    assert [row for row in rows if row.startswith("Resumed ")] == went
    assert rows[-1] == f"To resume: refold -c   (or refold -r {here.ids[0]})"


def test_the_current_session_is_not_offered_for_resume(tmp_path: Path) -> None:
    rows = TerminalDriver(tmp_path).tell(
        "hello", "/rename mine", "/sessions", "/resume mine", "/search hello", "7",
        answers=("Hi.",),
    )  # fmt: skip

    assert "there is no other session of this directory" in rows
    assert any(row.endswith(" is this session") for row in rows)
    assert "'7' is not a number from 1 to 1" in rows


def test_history_with_a_number_shows_that_many_exchanges_and_counts_their_calls(
    driver: Callable[..., TerminalDriver],
) -> None:
    rows = driver().tell("one", "two", "/history 1", answers=("First.", [LOOK], "Second."))

    parts = [row.split(maxsplit=1) for row in rows[-4:-1]]
    assert [words[-1] for words in parts] == ["two", "call)", "Second."]
    assert parts[0][0].isdecimal()
    assert " out · " in rows[-5]  # of the turn before it
