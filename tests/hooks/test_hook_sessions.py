"""Hooks in sessions: each event fires, and what a hook says counts as documented."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold import Agent, Effect, Reply, tool
from refold.client.questions import Question
from refold.client.session import Session
from refold.config.project import content_lines, read_project
from refold.config.trusted_folders import TrustedFolders
from refold.journal.events.child_events import HookRan
from refold.journal.events.kinds import Compacted, Ended, Entry, TurnEnded
from refold.process_groups import is_alive
from refold.testing.providers import Line, ScriptedProvider
from tests.cli.running import call, script, start_refold
from tests.place.walled import needs_bubblewrap
from tests.server.serving import open_server, read_until, send_order
from tests.terminal.at_home import TerminalDriver

pytestmark = pytest.mark.slow  # each hook is a program

LOG = 'cat >> "$CLAUDE_PROJECT_DIR/log"; echo >> "$CLAUDE_PROJECT_DIR/log"'


@tool(Effect.RUN)
async def act(what: str) -> Reply:
    """Do something."""
    return Reply(f"did {what}")


class Place:
    """A home with hooks of the user's own, and a workspace."""

    def __init__(self, directory: Path) -> None:
        self.home, self.work = directory / "home", directory / "work"
        self.home.mkdir()
        self.work.mkdir()

    def hooks(self, **events: object) -> None:
        (self.home / "hooks.json").write_text(json.dumps({"hooks": events}))

    def agent(self, *lines: Line, **options: Any) -> Agent:
        options.setdefault("settings", {"permissions.allow": ["act"]})
        options.setdefault("provider", ScriptedProvider(*lines))
        return Agent(
            directory=self.work,
            home=self.home,
            tools=[act],
            **options,
        )

    @property
    def log(self) -> list[dict[str, Any]]:
        text = (self.work / "log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def run(self, agent: Agent, *messages: str) -> list[Entry]:
        async def use_session() -> list[Entry]:
            async with agent.session() as session:
                for message in messages:
                    await session.run(message)
                return await entries_of(session)

        return anyio.run(use_session)


async def entries_of(session: Session) -> list[Entry]:
    return list(await session.reports.entries())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def events_of_kind(entries: Sequence[Entry], kind: type) -> list[Any]:
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def command_hook(line: str, matcher: str = "", **fields: object) -> list[object]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": line, **fields}]}]


CALL: Line = [("act", '{"what": "it"}')]


def test_each_hook_event_of_a_turn_fires_with_its_document(place: Place) -> None:
    every = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop",
        "SessionEnd",
    )  # fmt: skip
    place.hooks(**{event: command_hook(LOG) for event in every})

    place.run(place.agent(CALL, "Done."), "Go.")

    assert [data["hook_event_name"] for data in place.log] == list(every)
    before = place.log[2]
    assert (before["tool_name"], before["tool_input"]) == ("act", {"what": "it"})
    assert place.log[3]["tool_response"] == {"text": "did it", "success": True}


def test_exit_code_2_of_a_hook_refuses_a_call_and_the_model_reads_the_reason(
    place: Place,
) -> None:
    place.hooks(PreToolUse=command_hook("echo not today >&2; exit 2", "act"))

    entries = place.run(place.agent(CALL, "Done."), "Go.")

    (end,) = events_of_kind(entries, Ended)
    assert end.outcome == "refused"
    assert "not today" in end.text


def test_the_decision_allow_of_a_hook_does_not_allow_a_call(place: Place) -> None:
    data = {"hookSpecificOutput": {"permissionDecision": "allow"}}
    place.hooks(PreToolUse=command_hook(f"echo '{json.dumps(data)}'"))

    entries = place.run(place.agent(CALL, "Done.", settings={}), "Go.")

    assert [end.outcome for end in events_of_kind(entries, Ended)] == ["refused"]


def test_the_decision_ask_of_a_hook_asks_about_a_call_that_a_rule_allows(
    place: Place,
) -> None:
    data = {
        "hookSpecificOutput": {
            "permissionDecision": "ask",
            "permissionDecisionReason": "big",
        }
    }
    place.hooks(PreToolUse=command_hook(f"echo '{json.dumps(data)}'"))
    asked_questions = list[tuple[str, str]]()

    async def answer_yes(question: Question) -> bool:
        asked_questions.append((question.tool, question.reason))
        return True

    entries = place.run(place.agent(CALL, "Done.", approve=answer_yes), "Go.")

    assert [end.outcome for end in events_of_kind(entries, Ended)] == ["done"]
    assert len(asked_questions) == 1
    assert asked_questions[0][0] == "act"
    assert asked_questions[0][1].startswith("the hook `echo ")
    assert asked_questions[0][1].endswith("…`: big")


def test_approval_is_requested_for_the_command_as_changed_by_a_hook(place: Place) -> None:
    data = {"hookSpecificOutput": {"updatedInput": {"command": "echo changed > made"}}}
    place.hooks(PreToolUse=command_hook(f"echo '{json.dumps(data)}'", "Bash"))
    shown_arguments = list[object]()

    async def answer_yes(question: Question) -> bool:
        shown_arguments.append(question.arguments)
        return True

    line: Line = [("bash", '{"command": "echo model"}')]
    place.run(place.agent(line, "Done.", approve=answer_yes), "Go.")

    assert shown_arguments == [{"command": "echo changed > made"}]
    assert (place.work / "made").read_text() == "changed\n"


def test_a_command_changed_by_a_hook_is_refused_if_no_rule_allows_it(place: Place) -> None:
    data = {"hookSpecificOutput": {"updatedInput": {"command": "touch made"}}}
    place.hooks(PreToolUse=command_hook(f"echo '{json.dumps(data)}'", "Bash"))
    rules = {"permissions.allow": ["bash(echo *)"]}

    line: Line = [("bash", '{"command": "echo model"}')]
    entries = place.run(place.agent(line, "Done.", settings=rules), "Go.")

    assert [end.outcome for end in events_of_kind(entries, Ended)] == ["refused"]
    assert not (place.work / "made").exists()


def test_a_notification_hook_runs_at_a_permission_prompt(place: Place) -> None:
    place.hooks(Notification=command_hook(LOG))

    async def answer_no(question: Question) -> bool:
        return False

    place.run(place.agent(CALL, "Done.", settings={}, approve=answer_no), "Go.")

    (data,) = place.log
    assert data["notification_type"] == "permission_prompt"
    assert data["message"] == "refold needs your permission to use act"


@pytest.mark.parametrize(
    ("line", "more", "reason"),
    [
        ("sleep 600", {"timeout": 0.3}, "it ran longer than 0.3 seconds, and was killed"),
        ("kill -9 $$", {}, "it ended with status 137"),
        ("no-such-program", {}, "it ended with status 127"),
        ("echo '{garbage'", {}, "it printed something that is not JSON"),
        ("yes", {}, "it printed more than 1024 KiB, and was killed"),
        ("yes >&2; exit 1", {"timeout": 1}, "it ran longer than 1 seconds, and was killed"),
        ("exec <&-; exit 3", {}, "it ended with status 3"),
    ],
)
@pytest.mark.parametrize("required", [True, False])
def test_a_failed_hook_is_reported_and_refuses_the_call_if_it_is_required(
    place: Place, line: str, more: dict[str, Any], reason: str, required: bool
) -> None:
    place.hooks(PreToolUse=command_hook(line, **more, required=required))

    entries = place.run(place.agent(CALL, "Done."), "Go.")

    (ran,) = events_of_kind(entries, HookRan)
    assert (ran.hook, ran.outcome) == (line, "blocked" if required else "failed")
    assert ran.by_failure is required
    assert ran.reason.startswith(reason)
    assert [e.outcome for e in events_of_kind(entries, Ended)] == [
        "refused" if required else "done"
    ]


def test_a_message_is_refused_when_its_hook_fails(place: Place) -> None:
    place.hooks(UserPromptSubmit=command_hook("exit 1", name="checks"))
    provider = ScriptedProvider("Never.")

    place.run(place.agent(provider=provider), "Go.")

    assert provider.heard == []


@pytest.mark.parametrize("on", ["Stop", "PostToolUse", "SessionStart"])
def test_a_failed_session_start_post_tool_use_or_stop_hook_is_only_reported(
    place: Place, on: str
) -> None:
    place.hooks(**{on: command_hook("exit 1")})

    entries = place.run(place.agent(CALL, "Done."), "Go.")

    assert [(ran.on, ran.outcome) for ran in events_of_kind(entries, HookRan)] == [
        (on, "failed")
    ]
    assert [end.outcome for end in events_of_kind(entries, Ended)] == ["done"]
    assert [end.outcome for end in events_of_kind(entries, TurnEnded)] == ["answered"]


LEFT_BEHIND = [
    "sleep 600 &",
    "(sleep 600 &)",
    "setsid -f sleep 600;",
    "nohup sleep 600 & disown;",
    "yes >&2 &",
    "(while :; do echo more; done) &",
    "coproc sleep 600;",
    "exec 9>&1; sleep 600 >&9 2>&1 &",
]


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("child", LEFT_BEHIND)
def test_a_hook_ends_with_its_process_while_background_children_still_run(
    place: Place, child: str, sandbox: bool
) -> None:
    line = f"{child} echo no >&2; exit 2"
    place.hooks(PreToolUse=command_hook(line, timeout=50, sandbox=sandbox))

    entries = place.run(place.agent(CALL, "Done."), "Go.")

    (ran,) = events_of_kind(entries, HookRan)
    assert (ran.outcome, ran.by_failure) == ("blocked", False)
    assert [end.outcome for end in events_of_kind(entries, Ended)] == ["refused"]


def test_all_output_before_the_exit_of_a_hook_is_read(place: Place) -> None:
    text = "x" * 9000
    place.hooks(
        UserPromptSubmit=command_hook(
            f"printf %s {text}; cat >/dev/null & sleep 600 & exit 0"
        ),
        PreToolUse=command_hook(
            """exec python3 -c "import os; os.write(1, b'{}'); os._exit(0)" """
        ),
    )

    entries = place.run(place.agent(CALL, "Done."), "Go.")

    result, passed = events_of_kind(entries, HookRan)
    assert (result.context, passed.outcome) == (text, "passed")


def test_a_hook_that_does_not_read_a_long_stdin_is_not_waited_for(
    place: Place,
) -> None:
    place.hooks(PreToolUse=command_hook("exit 2", timeout=50))
    long: Line = [("act", json.dumps({"what": "x" * 500_000}))]

    entries = place.run(place.agent(long, "Done."), "Go.")

    (ran,) = events_of_kind(entries, HookRan)
    assert (ran.outcome, ran.by_failure) == ("blocked", False)


def test_background_processes_of_a_hook_are_killed(place: Place) -> None:
    pid = place.work / "pid"
    place.hooks(
        PreToolUse=command_hook(
            f"setsid sleep 600 >/dev/null 2>&1 & echo $! > {pid}", sandbox=False
        )
    )

    place.run(place.agent(CALL, "Done."), "Go.")

    assert not is_alive(int(pid.read_text()))


def test_no_key_reaches_a_hook(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789012345678901234567890123")
    monkeypatch.setenv("COLOUR_OF_MINE", "red")
    line = 'env > "$CLAUDE_PROJECT_DIR/$REFOLD_HOOK_EVENT"'
    place.hooks(SessionStart=command_hook(line), Stop=command_hook(line, sandbox=False))

    place.run(place.agent("Done."), "Go.")

    inside = (place.work / "SessionStart").read_text()
    outside = (place.work / "Stop").read_text()
    assert "COLOUR_OF_MINE" not in inside
    assert "COLOUR_OF_MINE=red" in outside
    assert "sk-0123" not in inside + outside


def test_a_hook_writes_outside_the_workspace_only_with_sandbox_false(
    place: Place,
) -> None:
    needs_bubblewrap()
    outside = place.home / "made"
    place.hooks(
        SessionStart=command_hook(f"touch {outside}"),
        Stop=command_hook(f"touch {outside}-2", sandbox=False),
    )

    entries = place.run(place.agent("Done."), "Go.")

    first, second = events_of_kind(entries, HookRan)
    assert (first.outcome, second.outcome) == ("failed", "passed")
    assert first.reason.endswith("(it ran in the sandbox)")
    assert not outside.exists()
    assert (place.home / "made-2").exists()


def test_a_stop_hook_can_make_the_model_continue_once(place: Place) -> None:
    line = "grep -q '\"stop_hook_active\":true' || { echo run the tests >&2; exit 2; }"
    place.hooks(Stop=command_hook(line))
    provider = ScriptedProvider("Done.", "Now really.")

    place.run(place.agent(provider=provider), "Go.")

    assert len(provider.heard) == 2
    last = provider.heard[1].messages[-1].message.parts[-1]
    assert "run the tests" in getattr(last, "text", "")


def test_a_pre_compact_hook_can_prevent_compaction(place: Place) -> None:
    place.hooks(PreCompact=command_hook(f"{LOG}; exit 2", "manual"))

    async def use_session() -> list[Entry]:
        async with place.agent("One.", "Two.").session() as session:
            await session.run("Go.")
            await session.compact()
            return await entries_of(session)

    entries = anyio.run(use_session)

    assert [data["trigger"] for data in place.log] == ["manual"]
    assert events_of_kind(entries, Compacted) == []


@pytest.mark.parametrize("line", ["exit 1", "no-such-program-anywhere", "echo {; exit 0"])
@pytest.mark.parametrize("trigger", ["manual", "auto"])
def test_a_failed_pre_compact_hook_is_reported_and_compaction_happens(
    place: Place, line: str, trigger: str
) -> None:
    place.hooks(PreCompact=command_hook(line, trigger))

    async def use_session() -> list[Entry]:
        settings = {} if trigger == "manual" else {"context.default_window_tokens": 2_500}
        agent = place.agent(
            "word " * 1_500, "Two.", "Summary.", "Three.", settings=settings
        )
        async with agent.session() as session:
            await session.run("Go.")
            if trigger == "manual":
                await session.compact()
            else:
                await session.run("Go on. " * 300)
            return await entries_of(session)

    entries = anyio.run(use_session)

    assert {(h.on, h.outcome) for h in events_of_kind(entries, HookRan)} == {
        ("PreCompact", "failed")
    }
    assert "full" in [item.kind for item in events_of_kind(entries, Compacted)]
    assert {item.outcome for item in events_of_kind(entries, TurnEnded)} == {"answered"}


TASK: Line = [("task", '{"agent": "code", "prompt": "Do it."}')]


def test_each_hook_event_fires_in_a_subagent(place: Place) -> None:
    every = (
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop",
        "SessionEnd", "Stop",
    )  # fmt: skip
    place.hooks(**{event: command_hook(LOG) for event in every})

    place.run(place.agent(TASK, CALL, "Child is done.", "Done."), "Go.")

    child = [e["hook_event_name"] for e in place.log if e["agent"] != "root"]
    root = [e["hook_event_name"] for e in place.log if e["agent"] == "root"]
    assert child == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "SubagentStop",
        "SessionEnd",
    ]  # fmt: skip
    assert root == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip


def test_a_hook_refuses_the_call_of_a_subagent(place: Place) -> None:
    place.hooks(PreToolUse=command_hook("exit 2", "act"))

    place.run(place.agent(TASK, CALL, "It may not.", "Done."), "Go.")

    (journal,) = place.home.rglob("child-1/events.jsonl")
    assert b'"refused"' in journal.read_bytes()


def test_hooks_of_a_folder_run_only_if_the_folder_is_trusted(place: Place) -> None:
    file = place.work / ".claude" / "settings.json"
    file.parent.mkdir()
    hooks = {"hooks": {"SessionStart": command_hook(LOG)}}
    file.write_text(json.dumps(hooks))

    place.run(place.agent("Done."), "Go.")
    before = (place.work / "log").exists()
    folder = read_project(place.work, place.home / "config.toml")
    TrustedFolders(place.home / "folders.toml").trust(folder)
    place.run(place.agent("Done."), "Go.")
    trusted = len(place.log)
    file.write_text(json.dumps({"hooks": {"SessionStart": command_hook(f"{LOG} ")}}))
    place.run(place.agent("Done."), "Go.")

    assert not before
    assert content_lines(folder) == (
        ".claude/settings.json:",
        f"  SessionStart runs: {LOG}",
    )
    assert trusted == len(place.log) == 1


def test_each_hook_event_fires_for_a_client_of_the_server(
    home: Path, tmp_path: Path
) -> None:
    """The server's sessions have the home of the test."""
    (home / "refold").mkdir(parents=True, exist_ok=True)
    every = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    )
    hooks = {event: command_hook(LOG) for event in every} | {
        "Notification": command_hook(LOG)
    }
    (home / "refold" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    line = [("bash", '{"command": "touch made"}')]

    async def use_session() -> None:
        async with open_server(tmp_path, line, "Done.") as client:
            id_ = await client.begin()
            async with client.follow(id_) as socket:
                await send_order(socket, "user_message", text="Hi.", client_key="k1")
                data = (await read_until(socket, "tool_approval_request"))[-1]
                await send_order(
                    socket, "tool_approval_response",
                    call_id=data["call_id"], hash=data["hash"], allowed=True,
                )  # fmt: skip
                await read_until(socket, "result")

    anyio.run(use_session)

    (log,) = tmp_path.rglob("log")
    fired = [
        json.loads(row)["hook_event_name"] for row in log.read_text().split("\n") if row
    ]
    assert fired == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "Notification", "PostToolUse",
        "Stop", "SessionEnd",
    ]  # fmt: skip


def test_each_hook_event_fires_at_a_terminal(home: Path, tmp_path: Path) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    every = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    )
    hooks = {event: command_hook(LOG) for event in every} | {
        "PreCompact": command_hook(LOG)
    }
    (home / "refold" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    answers: tuple[Line, ...] = ([("bash", '{"command": "echo hi"}')], "Done.", "Summary.")

    rows = TerminalDriver(tmp_path).tell("Go.", "/hooks", "/compact", answers=answers)

    fired = [
        json.loads(row)["hook_event_name"]
        for row in (tmp_path / "log").read_text().split("\n")
        if row
    ]
    assert fired == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact",
        "SessionEnd",
    ]  # fmt: skip
    assert f"SessionStart runs: {LOG}" in "".join(rows)


def test_each_hook_event_fires_in_a_process_without_a_user(
    home: Path, tmp_path: Path
) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    every = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
    )
    hooks = {event: command_hook(LOG) for event in every}
    (home / "refold" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    script_path = script(tmp_path, call("bash", command="echo hi"), {"text": "Done."})

    with start_refold("-p", "Go.", "--script", script_path, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)

    fired = [
        json.loads(row)["hook_event_name"]
        for row in (tmp_path / "log").read_text().split("\n")
        if row
    ]
    assert (process.returncode, out, err) == (0, b"Done.\n", b"")
    assert fired == list(every)


def test_without_a_user_each_hook_that_failed_is_a_warning(
    home: Path, tmp_path: Path
) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    hooks = {
        "PreToolUse": command_hook("nope-guard", sandbox=False),
        "SessionEnd": command_hook("exit 3", sandbox=False, name="bye"),
    }
    (home / "refold" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    script_path = script(tmp_path, call("bash", command="echo hi"), {"text": "Done."})
    missing = (
        f"{home / 'refold' / 'hooks.json'}: the program 'nope-guard' of the PreToolUse hook "
        "`nope-guard` is missing, so each call that it is run for is refused: install it, "
        'remove the hook, or give it "required": false'
    )
    before = (
        "the PreToolUse hook `nope-guard` failed: it ended with status 127: bash: line 1: "
        "nope-guard: command not found"
    )
    after = "the SessionEnd hook `bye` failed: it ended with status 3"
    json_too = ("--output-format", "json")

    with start_refold("-p", "Go.", "--script", script_path, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    with start_refold(
        "-p", "Go.", "--script", script_path, *json_too, cwd=tmp_path
    ) as process:
        document, _ = process.communicate(timeout=60)

    assert out == b"Done.\n"
    assert err.decode().splitlines() == [
        f"refold: {missing}",
        f"refold: {before}",
        "refold: denied: bash echo hi",
        "refold: a hook refused this; --output-format json has the reasons",
        f"refold: {after}",
    ]
    assert json.loads(document)["warnings"] == [before]


def test_without_a_user_a_refusal_by_a_hook_suggests_no_permission_flag(
    home: Path, tmp_path: Path
) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    hooks = {"PreToolUse": command_hook("echo no >&2; exit 2", sandbox=False)}
    (home / "refold" / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    script_path = script(tmp_path, call("bash", command="echo hi"), {"text": "Done."})

    with start_refold("-p", "Go.", "--script", script_path, cwd=tmp_path) as process:
        _, err = process.communicate(timeout=60)

    assert err.decode().splitlines() == [
        "refold: denied: bash echo hi",
        "refold: a hook refused this; --output-format json has the reasons",
    ]


@pytest.mark.parametrize(
    ("matcher", "sources"),
    [("", ["startup", "resume"]), ("resume", ["resume"]), ("startup", ["startup"])],
)
def test_session_start_hooks_of_a_resumed_session_run_before_its_next_request(
    place: Place, matcher: str, sources: list[str]
) -> None:
    place.hooks(SessionStart=command_hook(LOG, matcher))

    async def run_story() -> None:
        agent = place.agent("One.", "Two.")
        async with agent.session() as session:
            await session.run("a")
        async with agent.session(session.id) as resumed:
            await resumed.run("b")

    anyio.run(run_story)

    assert [data["source"] for data in place.log] == sources
