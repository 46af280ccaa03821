"""refold in an editor: the official SDK's client drives `refold acp`, a process of its own.

The SDK takes long to import, in both processes: these tests are slow.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp import schema
from acp.exceptions import RequestError

from refold.acp.user_questions import Person
from refold.app.session_index import session_index
from refold.client.remote_session import attach
from refold.client.session import Session
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal.events.kinds import Said
from refold.journal.events.setting_events import ModeChanged
from refold.values.modes import MODE_MEANINGS
from tests.acp.editor import Connected, Editor, connect_editor
from tests.cli.running import call
from tests.client.test_joined_sessions import Owner, make_launch
from tests.mcp import fake_server

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def test_a_prompt_is_answered(project_directory: Path) -> None:
    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Hello there."}) as editor:
            session = await editor.new()
            ended = await editor.prompt(session, "Hi")
            assert (ended.stop_reason, editor.editor.answer) == ("end_turn", "Hello there.")

    anyio.run(check)


def test_actions_of_an_editor_are_recorded_with_its_name(project_directory: Path) -> None:
    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Hello there."}) as editor:
            session = await editor.new()
            await editor.prompt(session, "Hi")
            await editor.agent.set_session_mode(mode_id="accept-edits", session_id=session)

    anyio.run(check)

    home = session_index(paths(os.environ))
    (stored,) = home.sessions()
    entries, _ = home.entries(stored.id)
    people = {e.by for e in entries if isinstance(e.event, Said | ModeChanged)}
    assert people == {"person:Zed"}


READ = call("read_file", path="a.py")
EDIT = call("edit_file", path="a.py", old="1", new="2")
EDIT_SHOWN = ("x = 1\n", "x = 2\n")


def calls(editor: Connected) -> list[tuple[str | None, str | None]]:
    """Return the kind and the status of each tool call update, as they came."""
    return [
        (item.kind, item.status)
        for item in editor.editor.updates_of("tool_call", "tool_call_update")
    ]


def diffs(shown: Any) -> list[tuple[str, str | None, str]]:
    return [
        (item.path, item.old_text, item.new_text)
        for item in shown.content or []
        if item.type == "diff"
    ]


def test_a_change_is_shown_as_a_diff_in_the_question_and_in_the_result(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Make x 2")

            (update, options), *_ = editor.editor.asked
            names = [(option.option_id, option.kind) for option in options]
            texts = [(str(project_directory / "a.py"), *EDIT_SHOWN)]
            assert (diffs(update), names) == (
                texts,
                [
                    ("once", "allow_once"),
                    ("session", "allow_always"),
                    ("always", "allow_always"),
                    ("no", "reject_once"),
                ],
            )
            last = editor.editor.updates_of("tool_call_update")[-1]
            assert diffs(last) == texts
            assert [location.path for location in last.locations] == [
                str(project_directory / "a.py")
            ]
            assert calls(editor)[3:] == [
                ("edit", "pending"), (None, "in_progress"), (None, "completed"), (None, None),
            ]  # fmt: skip
            assert (project_directory / "a.py").read_text() == "x = 2\n"

    anyio.run(check)


def test_a_change_that_the_person_denies_is_not_made(project_directory: Path) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "I see."}, said=lambda *_: "no"
        ) as editor:
            session = await editor.new()
            ended = await editor.prompt(session, "Make x 2")
            assert len(editor.editor.asked) == 1
            assert calls(editor)[-1] == (None, "failed")
            assert (ended.stop_reason, editor.editor.answer) == ("end_turn", "I see.")
            assert (project_directory / "a.py").read_text() == "x = 1\n"

    anyio.run(check)


def test_a_call_allowed_for_the_session_is_asked_about_once(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")
    again = call("edit_file", path="a.py", old="2", new="3")

    async def check() -> None:
        replies = (READ, EDIT, again, {"text": "Done."})
        async with connect_editor(
            project_directory, *replies, said=lambda *_: "session"
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Make x 2, then 3")
            assert len(editor.editor.asked) == 1
            assert (project_directory / "a.py").read_text() == "x = 3\n"

    anyio.run(check)


def test_cancel_ends_a_running_command_and_the_turn(project_directory: Path) -> None:
    waits = call("bash", command="echo begun; sleep 600")

    async def check() -> None:
        async with connect_editor(project_directory, waits, {"text": "never"}) as editor:
            session = await editor.new()
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await editor.editor.wait_until(
                        lambda: "begun" in editor.editor.output_text
                    )
                    await editor.agent.cancel(session_id=session)

                group.start_soon(stop)
                ended = await editor.prompt(session, "Wait")
            assert ended.stop_reason == "cancelled"
            assert calls(editor)[-1] == (None, "failed")

    anyio.run(check)


def test_a_prompt_cancelled_immediately_ends(project_directory: Path) -> None:
    waits = call("bash", command="sleep 600")

    async def check() -> None:
        async with connect_editor(
            project_directory, *[waits] * 9, {"text": "Next."}
        ) as editor:
            session = await editor.new()
            for _ in range(5):  # before, while and after the turn begins
                async with anyio.create_task_group() as group:

                    async def prompt() -> None:
                        ended = await editor.prompt(session, "Wait")
                        assert ended.stop_reason == "cancelled"

                    group.start_soon(prompt)
                    await anyio.lowlevel.checkpoint()
                    await editor.agent.cancel(session_id=session)

    anyio.run(check)


def test_cancel_during_a_permission_question_ends_the_turn(project_directory: Path) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "never"}, said=lambda *_: "…"
        ) as editor:
            session = await editor.new()
            async with anyio.create_task_group() as group:

                async def stop() -> None:
                    await editor.editor.wait_until(lambda: editor.editor.asked)
                    await editor.agent.cancel(session_id=session)

                group.start_soon(stop)
                ended = await editor.prompt(session, "Make x 2")
            assert ended.stop_reason == "cancelled"
            assert (project_directory / "a.py").read_text() == "x = 1\n"

    anyio.run(check)


def test_a_session_is_loaded_with_its_history_after_a_restart(
    project_directory: Path,
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "Done."}
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Make x 2")

        async with connect_editor(project_directory, {"text": "Nothing more."}) as editor:
            sessions = await editor.agent.list_sessions(cwd=str(project_directory))
            assert [(item.session_id, item.cwd) for item in sessions.sessions] == [
                (session, str(project_directory))
            ]
            await editor.agent.load_session(
                cwd=str(project_directory), session_id=session, mcp_servers=[]
            )
            result = editor.editor.updates_of(
                "user_message_chunk", "tool_call", "agent_message_chunk"
            )
            assert [item.session_update for item in result] == [
                "user_message_chunk", "tool_call", "tool_call", "agent_message_chunk",
            ]  # fmt: skip
            assert result[0].content.text == "Make x 2"
            assert editor.editor.asked == []  # an answered question is not asked again
            ended = await editor.prompt(session, "And now?")
            assert (ended.stop_reason, editor.editor.answer) == (
                "end_turn",
                "Done.Nothing more.",
            )

    anyio.run(check)


def test_a_session_is_resumed_forked_and_closed(project_directory: Path) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, {"text": "One."}, {"text": "Two."}
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "First")
            forked = await editor.agent.fork_session(
                cwd=str(project_directory), session_id=session, mcp_servers=[]
            )
            assert forked.session_id != session
            await editor.agent.close_session(session_id=session)
            with pytest.raises(RequestError, match="is not open: load or resume it first"):
                await editor.prompt(session, "Second")
            before = len(
                editor.editor.updates_of("agent_message_chunk", "user_message_chunk")
            )
            await editor.agent.resume_session(
                cwd=str(project_directory), session_id=session, mcp_servers=[]
            )
            assert (
                len(editor.editor.updates_of("agent_message_chunk", "user_message_chunk"))
                == before
            )

    anyio.run(check)


def test_modes_models_and_effort_can_be_chosen(project_directory: Path) -> None:
    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Yes."}) as editor:
            result = await editor.agent.new_session(
                cwd=str(project_directory), mcp_servers=[]
            )
            session = result.session_id
            assert [
                available_mode.id for available_mode in result.modes.available_modes
            ] == list(MODE_MEANINGS)
            assert [config_option.id for config_option in result.config_options] == [
                "mode",
                "model",
                "effort",
            ]

            await editor.agent.set_session_mode(session_id=session, mode_id="plan")
            await editor.editor.wait_until(
                lambda: editor.editor.updates_of("current_mode_update")
            )
            chosen = await editor.agent.set_config_option(
                session_id=session, config_id="effort", value="high"
            )

            values = {
                config_option.id: config_option.current_value
                for config_option in chosen.config_options
            }
            assert (values["mode"], values["effort"]) == ("plan", "high")
            with pytest.raises(RequestError, match="'x' is not a mode"):
                await editor.agent.set_session_mode(session_id=session, mode_id="x")

    anyio.run(check)


def test_images_and_embedded_files_reach_the_model(
    project_directory: Path, home: Path
) -> None:
    file = acp.embedded_text_resource("file:///w/a%20b.py", "x = 1", mime_type="text/x")

    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Seen."}) as editor:
            session = await editor.new()
            more = (acp.resource_block(file), acp.image_block(PNG, "image/png"))
            ended = await editor.prompt(session, "Look at ", *more)
            assert ended.stop_reason == "end_turn"
            (said_event,) = [
                item for item in events(home, session) if item["kind"] == "Said"
            ]
            expected = 'Look at @"/w/a b.py"\n\n@"/w/a b.py":\n```\nx = 1\n```'
            assert (said_event["data"]["text"], len(said_event["data"]["images"])) == (
                expected,
                1,
            )

    anyio.run(check)


def test_todos_are_sent_to_the_editor_as_a_plan(project_directory: Path) -> None:
    todos = [
        {"subject": "read", "status": "completed"},
        {"subject": "write", "status": "pending"},
    ]

    async def check() -> None:
        async with connect_editor(
            project_directory, call("todo_write", todos=todos), {"text": "Done."}
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Plan it")
            (plan,) = editor.editor.updates_of("plan")
            assert [(entry.content, entry.status) for entry in plan.entries] == [
                ("read", "completed"), ("write", "pending"),
            ]  # fmt: skip

    anyio.run(check)


def events(home: Path, session: str) -> list[Any]:
    (path,) = home.rglob(f"{session}/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


ASKS = call(
    "ask_user",
    questions=[
        {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
    ],
)


def results(home: Path, session: str) -> list[str]:
    """Return the texts of the results that the model got."""
    return [
        item["data"]["text"] for item in events(home, session) if item["kind"] == "Ended"
    ]


def test_a_form_that_the_editor_refuses_is_an_error_of_the_command_that_shows_it() -> None:
    editor = Editor()
    editor.broken = "no forms today"
    person = Person(editor, "a-session", forms=True)

    with pytest.raises(BadInput, match="the editor cannot ask this: no forms today"):
        anyio.run(person.ask_text, "File:")


def test_a_question_of_the_model_is_a_form_where_the_editor_has_forms(
    project_directory: Path, home: Path
) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, ASKS, {"text": "Blue."}, elicits=True
        ) as editor:
            editor.editor.filled = {"answer1": "blue"}
            session = await editor.new()
            ended = await editor.prompt(session, "Ask me")
            (form,) = editor.editor.forms
            field = form.requested_schema.properties["answer1"]
            assert (field.title, [item.const for item in field.one_of]) == (
                "Which colour?", ["red", "blue"],
            )  # fmt: skip
            assert ended.stop_reason == "end_turn"
            assert "blue" in results(home, session)[0]

    anyio.run(check)


def test_a_question_of_the_model_is_a_choice_where_the_editor_has_no_forms(
    project_directory: Path, home: Path
) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, ASKS, {"text": "Blue."}, said=lambda *_: "1"
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Ask me")
            ((update, options),) = editor.editor.asked
            assert (update.title, [option.name for option in options]) == (
                "Which colour?", ["red", "blue"],
            )  # fmt: skip
            assert "blue" in results(home, session)[0]

    anyio.run(check)


def test_a_plan_that_is_approved_is_carried_out_in_the_same_prompt(
    project_directory: Path,
) -> None:
    plan = call("exit_plan_mode", plan="# Add a file\n\n1. Write b.py.")
    write = call("write_file", path="b.py", content="y = 1\n")

    async def check() -> None:
        lines = (plan, write, {"text": "Written."})
        async with connect_editor(
            project_directory, *lines, said=lambda *_: "accept-edits"
        ) as editor:
            session = await editor.new()
            await editor.agent.set_session_mode(session_id=session, mode_id="plan")
            ended = await editor.prompt(session, "Plan it")
            ((update, _),) = editor.editor.asked
            assert update.content[0].content.text == "# Add a file\n\n1. Write b.py."
            assert (ended.stop_reason, editor.editor.answer) == ("end_turn", "Written.")
            assert (project_directory / "b.py").read_text() == "y = 1\n"

    anyio.run(check)


def test_command_templates_are_offered_to_an_editor_and_expanded(
    project_directory: Path, home: Path
) -> None:
    commands = home / "refold" / "commands"
    commands.mkdir(parents=True)
    (commands / "fix.md").write_text(
        "---\ndescription: Fix a file\n---\nFix $ARGUMENTS now."
    )

    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Fixed."}) as editor:
            session = await editor.new()
            await editor.editor.wait_until(
                lambda: editor.editor.updates_of("available_commands_update")
            )
            (offered,) = editor.editor.updates_of("available_commands_update")
            names = {
                available_command.name: available_command.description
                for available_command in offered.available_commands
            }
            assert (names["fix"], names["compact"]) == (
                "Fix a file",
                "compact the conversation; `prune` only removes old tool results",
            )  # fmt: skip
            await editor.prompt(session, "/fix a.py")
            (result,) = [item for item in events(home, session) if item["kind"] == "Said"]
            assert result["data"]["text"] == "Fix a.py now."
            await editor.prompt(session, "/compact the colours")
            assert editor.editor.answer.startswith("Fixed.The conversation is compacted.")

    anyio.run(check)


def test_hooks_are_listed_by_a_command_that_the_model_does_not_see(
    project_directory: Path, home: Path
) -> None:
    async def check() -> None:
        async with connect_editor(project_directory) as editor:
            session = await editor.new()
            await editor.editor.wait_until(
                lambda: editor.editor.updates_of("available_commands_update")
            )
            (result,) = editor.editor.updates_of("available_commands_update")
            assert "hooks" in {
                available_command.name for available_command in result.available_commands
            }
            ended = await editor.prompt(session, "/hooks")
            assert (ended.stop_reason, editor.editor.answer) == (
                "end_turn", f"```\nStop runs: true\n    {file}\n```\n\n",
            )  # fmt: skip
            assert [item for item in events(home, session) if item["kind"] == "Said"] == []

    file = home / "refold" / "hooks.json"
    file.parent.mkdir(exist_ok=True)
    hook = {"type": "command", "command": "true"}
    file.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    anyio.run(check)


def test_commands_are_run_in_the_editor_and_never_reach_the_model(
    project_directory: Path, home: Path
) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, {"text": "Hello."}, said=lambda *_: "y"
        ) as editor:
            session = await editor.new()
            await editor.editor.wait_until(
                lambda: editor.editor.updates_of("available_commands_update")
            )
            (outcome,) = editor.editor.updates_of("available_commands_update")
            names = {
                available_command.name for available_command in outcome.available_commands
            }
            await editor.prompt(session, "Hi")
            for typed in ("/cost", "/csot", "/theme", "/clear", "/permissions", "/plan"):
                await editor.prompt(session, typed)
            await editor.prompt(session, "/rewind 2")
            said_events = [item for item in events(home, session) if item["kind"] == "Said"]

            assert {"cost", "model", "rewind"} <= names
            assert names.isdisjoint({"theme", "vi", "quit", "shell", "resume", "clear"})
            assert "10 in · 6 out" in editor.editor.answer
            assert "There is no command /csot. Did you mean /cost?" in editor.editor.answer
            assert (
                "/theme does not work here: only `refold` in a terminal has it."
                in editor.editor.answer
            )
            assert "/clear does not work here: your editor opens" in editor.editor.answer
            assert "The conversation was rewound." in editor.editor.answer
            assert [item["data"]["text"] for item in said_events] == ["Hi"]

    anyio.run(check)


def test_the_prompt_of_a_command_that_begins_a_turn_ends_with_the_turn(
    project_directory: Path, home: Path
) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, {"text": "First."}, {"text": "Second."}
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Hi")
            ended = await editor.prompt(session, "/continue")
            planned = await editor.prompt(session, "/plan")

            assert editor.editor.answer.startswith("First.Second.")
            assert (ended.stop_reason, planned.stop_reason) == ("end_turn", "end_turn")

    anyio.run(check)


def test_a_model_that_fails_ends_the_prompt_with_the_reason(
    project_directory: Path,
) -> None:
    async def check() -> None:
        async with connect_editor(project_directory) as editor:
            session = await editor.new()
            with pytest.raises(RequestError, match="the script has only 0 lines"):
                await editor.prompt(session, "Hi")

    anyio.run(check)


def test_a_second_prompt_during_a_turn_is_rejected(project_directory: Path) -> None:
    async def check() -> None:
        async with connect_editor(
            project_directory, READ, EDIT, {"text": "x"}, said=lambda *_: "…"
        ) as editor:
            (project_directory / "a.py").write_text("x = 1\n")
            session = await editor.new()
            async with anyio.create_task_group() as group:
                group.start_soon(editor.prompt, session, "Make x 2")
                await editor.editor.wait_until(lambda: editor.editor.asked)
                with pytest.raises(RequestError, match="wait for its end, or cancel it"):
                    await editor.prompt(session, "And y")
                await editor.agent.cancel(session_id=session)

    anyio.run(check)


def test_mcp_servers_of_the_editor_are_connected_and_their_calls_need_permission(
    project_directory: Path, home: Path
) -> None:
    server = schema.McpServerStdio(
        name="My server",
        command=sys.executable,
        args=[fake_server.__file__, "plain"],
        env=[],
    )
    uses = call("tool_call", name="mcp__My-server__echo", arguments={"text": "hi"})

    async def check() -> None:
        lines = (call("tool_search", query="echo"), uses, {"text": "Done."})
        async with connect_editor(project_directory, *lines) as editor:
            session = await editor.agent.new_session(
                cwd=str(project_directory), mcp_servers=[server]
            )
            await editor.prompt(session.session_id, "Use it")
            ((update, _),) = editor.editor.asked
            assert "mcp__My-server__echo" in update.title
            assert "hi" in results(home, session.session_id)[-1]

    anyio.run(check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "output", "report"),
    [
        ("progress", "1 of 2: half", ""),
        ("die", "The MCP server s failed: its process exited with code 3.",
         "refold: the MCP server s ended and was started again: its process exited with code 3"),
        ("drop", "The tool 'echo' of the MCP server s is not there",
         "refold: the MCP server s offers these tools no longer: echo"),
    ],
)  # fmt: skip
def test_progress_and_loss_of_an_mcp_server_are_shown_in_the_editor(
    project_directory: Path, mode: str, output: str, report: str
) -> None:
    server = schema.McpServerStdio(
        name="s", command=sys.executable, args=[fake_server.__file__, mode], env=[]
    )
    use = call("tool_call", name="mcp__s__echo", arguments={"text": "hi"})

    async def check() -> None:
        lines = (
            call("tool_search", query="echo"),
            use,
            use,
            {"text": "Done."},
            {"text": "Yes."},
        )
        async with connect_editor(project_directory, *lines) as editor:
            session = await editor.agent.new_session(
                cwd=str(project_directory), mcp_servers=[server]
            )
            await editor.prompt(session.session_id, "Use it")
            await anyio.sleep(2.0)  # it is started again after half a second
            await editor.prompt(session.session_id, "Well?")
            assert output in editor.editor.output_text
            thoughts = [
                part.content.text
                for part in editor.editor.updates_of("agent_thought_chunk")
            ]
            assert report in "".join(thoughts)

    anyio.run(check)


def test_questions_of_a_subagent_are_sent_to_the_editor(project_directory: Path) -> None:
    lines = (
        call("task", prompt="KID writes", agent="code"),
        {"for": "KID", **call("write_file", path="kid.txt", content="hello\n")},
        {"for": "KID", "text": "Written."},
        {"text": "All done."},
    )

    async def check() -> None:
        async with connect_editor(project_directory, *lines) as editor:
            session = await editor.new()
            ended = await editor.prompt(session, "Delegate it")
            ((update, _),) = editor.editor.asked
            assert update.title == "child-1 (code): write_file kid.txt"
            assert ended.stop_reason == "end_turn"
            assert (project_directory / "kid.txt").read_text() == "hello\n"
            of_it = [
                item.status
                for item in editor.editor.updates_of("tool_call_update")
                if item.tool_call_id == update.tool_call_id
            ]
            assert of_it == ["completed"]

    anyio.run(check)


def test_a_file_in_an_additional_directory_is_read_without_a_question(
    project_directory: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("there\n")
    reads = call("read_file", path=str(other / "b.txt"))

    async def check() -> None:
        async with connect_editor(project_directory, reads, {"text": "Read."}) as editor:
            session = await editor.new(additional_directories=[str(other)])
            await editor.prompt(session, "Read it")
            assert editor.editor.asked == []
            assert "there" in editor.editor.output_text

    anyio.run(check)


def test_a_session_that_a_terminal_has_open_is_joined(
    project_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(runtime: dict[str, str]) -> None:
        launch = make_launch(project_directory, "From the terminal.")
        here = Owner(Session(launch, await launch.start()), launch, runtime)
        async with anyio.create_task_group() as group:
            group.start_soon(here.socket.run)
            group.start_soon(here.work)
            async with connect_editor(project_directory) as editor:
                session = here.session.id
                await editor.agent.load_session(
                    cwd=str(project_directory), session_id=session, mcp_servers=[]
                )
                ended = await editor.prompt(session, "Who answers?")
                assert (ended.stop_reason, editor.editor.answer) == (
                    "end_turn", "From the terminal.",
                )  # fmt: skip
            group.cancel_scope.cancel()
        await launch.aclose()

    with tempfile.TemporaryDirectory(prefix="r") as directory:  # its path has to be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        anyio.run(check, {"XDG_RUNTIME_DIR": directory})


def test_a_terminal_joins_the_session_of_an_editor_and_answers_its_question(
    project_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")

    async def check() -> None:
        launch = make_launch(project_directory)
        lines = (READ, EDIT, {"text": "Done."})
        async with connect_editor(project_directory, *lines, said=lambda *_: "…") as editor:
            session = await editor.new()

            async def answer() -> None:
                await editor.editor.wait_until(lambda: bool(editor.editor.asked))
                async with attach(launch, session) as here:
                    (request,) = here.requests
                    assert await here.answer(request, True)

            async with anyio.create_task_group() as group:
                group.start_soon(answer)
                ended = await editor.prompt(session, "Make x 2")
            assert ended.stop_reason == "end_turn"
        await launch.aclose()

    with tempfile.TemporaryDirectory(prefix="r") as directory:  # its path has to be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        anyio.run(check)
    assert (project_directory / "a.py").read_text() == "x = 2\n"


def test_the_step_limit_ends_the_prompt(project_directory: Path, home: Path) -> None:
    (home / "refold").mkdir(exist_ok=True)
    (home / "refold" / "config.toml").write_text("[limits]\nsteps = 1\n")
    lists = call("list_files")

    async def check() -> None:
        async with connect_editor(
            project_directory, lists, lists, lists, {"text": "x"}
        ) as editor:
            session = await editor.new()
            ended = await editor.prompt(session, "List")
            assert ended.stop_reason == "max_turn_requests"

    anyio.run(check)


def test_a_command_of_several_lines_is_shown_completely_in_its_question(
    project_directory: Path,
) -> None:
    command = "echo ok\n\n\ntouch made \u202e"

    async def check() -> None:
        lines = (call("bash", command=command), {"text": "I see."})
        async with connect_editor(
            project_directory, *lines, said=lambda *_: "no"
        ) as editor:
            await editor.prompt(await editor.new(), "Go on")
            ((update, _),) = editor.editor.asked
            text = update.content[0].content.text
            assert text == "```\necho ok\n\n\ntouch made \\u202e\n```"

    anyio.run(check)


def test_an_editor_with_terminal_support_receives_the_output_of_commands(
    project_directory: Path,
) -> None:
    command = call("bash", command="printf 'a\\nb\\n'; exit 3")

    async def check() -> None:
        async with connect_editor(
            project_directory, command, {"text": "Done."}, draws=True
        ) as editor:
            session = await editor.new()
            await editor.prompt(session, "Run it")
            updates = editor.editor.updates_of("tool_call", "tool_call_update")
            metas = [item.field_meta for item in updates if item.field_meta]
            kinds = [next(iter(meta)) for meta in metas]
            output_pieces = [meta["terminal_output"]["data"] for meta in metas[1:-1]]
            assert (kinds[0], kinds[-1]) == ("terminal_info", "terminal_exit")
            assert "".join(output_pieces).startswith("a\nb\n")
            (terminal_id,) = {
                part.terminal_id
                for item in updates
                for part in item.content or []
                if part.type == "terminal"
            }
            assert (
                terminal_id
                == updates[0].tool_call_id
                == metas[0]["terminal_info"]["terminal_id"]
            )

    anyio.run(check)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("elicits", "filled", "chosen", "action"),
    [
        (True, {"name": "Ann", "mail": "a@b", "colour": "#f00", "many": 3}, "", "accept"),
        (True, None, "", "decline"),
        (
            False,
            None,
            "no",
            "decline",
        ),  # it asks questions that need forms, which this editor lacks
        (False, None, "", "cancel"),
    ],
)
def test_a_form_of_an_mcp_server_is_shown_by_the_editor(
    project_directory: Path,
    home: Path,
    elicits: bool,
    filled: dict[str, object] | None,
    chosen: str,
    action: str,
) -> None:
    server = schema.McpServerStdio(
        name="shop",
        command=sys.executable,
        args=[fake_server.__file__, "elicit-form"],
        env=[],
    )
    uses = call("tool_call", name="mcp__shop__echo", arguments={"text": "hi"})

    def choose_option(asked: Any, options: list[schema.PermissionOption]) -> str:
        return chosen if "Your order?" in asked.title else "once"

    async def check() -> None:
        lines = (call("tool_search", query="echo"), uses, {"text": "Done."})
        async with connect_editor(
            project_directory, *lines, elicits=elicits, said=choose_option
        ) as editor:
            editor.editor.filled = filled
            session = await editor.agent.new_session(
                cwd=str(project_directory), mcp_servers=[server]
            )
            await editor.prompt(session.session_id, "Order")
            answer = json.loads(results(home, session.session_id)[-1])["result"]
            assert (answer["action"], answer.get("content")) == (action, filled)
            sizes = [len(form.requested_schema.properties) for form in editor.editor.forms]
            assert sizes == ([13] if elicits else [])

    anyio.run(check)
