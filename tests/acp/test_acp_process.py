"""`refold acp` as a process: its streams, its end, and what it leaves behind."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp.exceptions import RequestError

from tests.acp.editor import connect_editor
from tests.cli.running import call, command, script, start_refold
from tests.journal_files import find_journals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def request_line(id_: int | None, method: str, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    return json.dumps({k: v for k, v in message.items() if v is not None}).encode() + b"\n"


def ask(process: "subprocess.Popen[bytes]", data: bytes) -> Any:
    """Return the next line of stdout after this was written to stdin."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(data)
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_an_invalid_message_gets_an_error_and_the_next_message_is_handled() -> None:
    with start_refold("acp", stdin=subprocess.PIPE) as process:
        broken = ask(process, b"{not json\n")
        not_an_object = ask(process, b"[1]\n")
        unknown = ask(process, request_line(1, "no/such"))
        wrong = ask(process, request_line(2, "session/new", cwd=7))
        initialized = ask(process, request_line(3, "initialize", protocolVersion=1))

    codes = [item["error"]["code"] for item in (broken, not_an_object, unknown, wrong)]
    assert codes == [-32700, -32600, -32601, -32602]
    assert initialized["result"]["agentInfo"]["name"] == "refold"


def test_acp_exits_when_its_input_ends_and_prints_only_responses() -> None:
    with start_refold("acp", stdin=subprocess.PIPE) as process:
        result = ask(process, request_line(1, "initialize", protocolVersion=1))
        out, err = process.communicate(timeout=60)

    assert result["id"] == 1
    assert (process.returncode, out, err) == (0, b"", b"")


def test_deleting_a_session_is_permanent_and_deleting_an_unknown_one_succeeds(
    project_directory: Path, home: Path
) -> None:
    kept = home / "sessions" / "kept"
    kept.mkdir(parents=True)
    answers = script(project_directory.parent, {"text": "Hi."})
    with start_refold("acp", "--script", answers, stdin=subprocess.PIPE) as process:
        result = ask(process, request_line(1, "initialize", protocolVersion=1))
        reply = ask(
            process,
            request_line(2, "session/new", cwd=str(project_directory), mcpServers=[]),
        )
        id_ = reply["result"]["sessionId"]
        asked_of = {"..": "..", "path": "../sessions", "child": f"{id_}/child-1", "": ""}
        others = [
            delete_session(process, n, name) for n, name in enumerate(asked_of.values(), 3)
        ]
        there = [path.parent.name for path in find_journals(home)]
        twice = [delete_session(process, n, id_) for n in (20, 21)]
        listed = answer(process, 22, request_line(22, "session/list"))
        wrong = answer(process, 23, request_line(23, "session/delete", session=id_))

    assert result["result"]["agentCapabilities"]["sessionCapabilities"]["delete"] == {}
    assert (others, there) == ([{}] * len(others), [id_])
    assert (twice, listed["result"]["sessions"]) == ([{}, {}], [])
    assert wrong["error"]["code"] == -32602
    assert [item.name for item in (home / "sessions").iterdir() if item.is_dir()] == [
        "kept"
    ]


def delete_session(process: "subprocess.Popen[bytes]", id_: int, session: str) -> Any:
    return answer(process, id_, request_line(id_, "session/delete", sessionId=session))[
        "result"
    ]


def answer(process: "subprocess.Popen[bytes]", id_: int, data: bytes) -> Any:
    """Return the response to this request; updates of sessions come between."""
    result = ask(process, data)
    while result.get("id") != id_:
        result = ask(process, b"")
    return result


@pytest.mark.parametrize("name", ["../elsewhere", "{}/child-1", "no", "a" * 5000, "a\0b"])
def test_invalid_and_unknown_session_ids_are_not_loaded(
    project_directory: Path, home: Path, name: str
) -> None:
    async def check() -> None:
        async with connect_editor(project_directory, {"text": "Hi."}) as editor:
            session = await editor.new()
            await editor.prompt(session, "Hi")
            (journal,) = find_journals(home)
            elsewhere = journal.parents[2] / "elsewhere"
            shutil.copytree(journal.parent, elsewhere)
            shutil.copytree(elsewhere, journal.parent / "children" / "child-1")
            wanted = name.format(session)
            with pytest.raises(RequestError, match="there is no session"):
                await editor.agent.load_session(
                    cwd=str(project_directory), session_id=wanted, mcp_servers=[]
                )

    anyio.run(check)


def test_acp_ends_on_sigterm_while_a_command_runs(
    project_directory: Path, home: Path
) -> None:
    waits = call("bash", command="echo begun; sleep 600")

    async def check() -> int:
        async with connect_editor(project_directory, waits) as editor:
            session = await editor.new()

            async def prompt() -> None:
                with pytest.raises((ConnectionError, anyio.get_cancelled_exc_class())):
                    await editor.prompt(session, "Wait")

            async with anyio.create_task_group() as group:
                group.start_soon(prompt)
                await editor.editor.wait_until(lambda: "begun" in editor.editor.output_text)
                editor.process.send_signal(signal.SIGTERM)
                await editor.process.wait()
            return editor.process.returncode

    assert anyio.run(check) == 0
    (journal,) = find_journals(home)
    events = [json.loads(item) for item in journal.read_text().splitlines()]
    reasons = [e["data"]["reason"] for e in events if e["kind"] == "Stopped"]
    assert (reasons, events[-1]["kind"]) == (["the editor ended refold"], "TurnEnded")


def test_a_question_left_open_by_a_crash_is_asked_again_with_the_next_prompt(
    project_directory: Path, home: Path
) -> None:
    (project_directory / "a.py").write_text("x = 1\n")
    edit = call("edit_file", path="a.py", old="1", new="2")
    sessions = list[str]()

    async def crash() -> None:
        async with connect_editor(
            project_directory,
            call("read_file", path="a.py"),
            edit,
            said=lambda *_: "…",
            code=-9,
        ) as editor:
            sessions.append(await editor.new())

            async def prompt() -> None:
                with pytest.raises((ConnectionError, anyio.get_cancelled_exc_class())):
                    await editor.prompt(sessions[0], "Make x 2")

            async with anyio.create_task_group() as group:
                group.start_soon(prompt)
                await editor.editor.wait_until(lambda: editor.editor.asked)
                editor.process.kill()
                await editor.process.wait()

    async def resume() -> None:
        async with connect_editor(
            project_directory, {"text": "Done."}, {"text": "Yes."}
        ) as editor:
            await editor.agent.load_session(
                cwd=str(project_directory), session_id=sessions[0], mcp_servers=[]
            )
            assert editor.editor.asked == []
            await editor.prompt(sessions[0], "Is it done?")
            assert len(editor.editor.asked) == 1

    anyio.run(crash)
    anyio.run(resume)
    assert (project_directory / "a.py").read_text() == "x = 2\n"


def test_without_the_acp_extra_an_error_explains_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "acp.py").write_text("raise ImportError('not here')\n")
    done = subprocess.run(
        command("acp"), env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.decode() == (
        "refold: editors need a package that is not installed here: pip install "
        "'refold[acp]', or, in a checkout, make run (not here)\n"
    )
