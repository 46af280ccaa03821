"""One task without a terminal: output, saved files, exit codes."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Agent
from refold.cli.main import main
from refold.testing.providers import ScriptedProvider
from tests.cli.contract import check_document
from tests.journal.journals import prompts_in
from tests.sandbox_notice import without_sandbox_notice


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory to work in, and nothing on stdin."""
    monkeypatch.chdir(tmp_path)
    stdin = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr("select.select", is_readable_now)
    return tmp_path


def is_readable_now(*_: object) -> tuple[list[object], list[object], list[object]]:
    """Something can be read, and be it the end."""
    return [sys.stdin], [], []


def script(directory: Path, *lines: dict[str, Any]) -> str:
    path = directory / "script.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    return str(path)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "arguments": arguments}]}


WRITE = call("write_file", path="a.txt", content="hello\n")


def documents(text: str) -> list[dict[str, Any]]:
    parsed_documents = [json.loads(line) for line in text.splitlines()]
    return [check_document(item) if "type" in item else item for item in parsed_documents]


def test_print_mode_writes_only_the_answer_to_stdout(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["-p", "Hi", "--script", script(workspace, {"text": "Hello."})])

    out, err = capfd.readouterr()
    assert (code, out, without_sandbox_notice(err)) == (0, "Hello.\n", "")


def test_print_mode_denies_an_unapproved_write_and_lists_it_in_denials(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, WRITE, {"text": "I may not."})

    code = main(["-p", "Write", "--script", path, "--output-format", "json"])

    (document,) = documents(capfd.readouterr().out)
    assert (code, document["outcome"], document["text"]) == (4, "answered", "I may not.")
    assert [d["tool"] for d in document["denials"]] == ["write_file"]
    assert not (workspace / "a.txt").exists()


def test_text_output_lists_denied_calls_on_stderr(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = [call("bash", command=f"touch {n}") for n in range(7)]
    path = script(workspace, {"calls": calls[0]["calls"]}, {"text": "I may not."})
    many = [item for one in calls for item in one["calls"]]

    main(["-p", "Write", "--script", path])
    one = capfd.readouterr()
    main(["-p", "Write", "--script", script(workspace, {"calls": many}, {"text": "No."})])
    more = without_sandbox_notice(capfd.readouterr().err).splitlines()

    lines = without_sandbox_notice(one.err).splitlines()
    assert (one.out, lines[0]) == ("I may not.\n", "refold: denied: bash touch 0")
    assert "--allow" in lines[1]
    assert len(more) == 6
    assert more[5].startswith("refold: 2 more were denied; ")


@pytest.mark.parametrize(
    "rights",
    [
        ["--yolo"],
        ["--permission-mode", "acceptEdits"],
        ["--permission-mode", "bypass"],
        ["--allow", "write_file(a.txt)"],
        ["--allowedTools", "write_file"],
    ],
)
def test_json_result_lists_the_file_that_an_allowed_call_created(
    workspace: Path, capfd: pytest.CaptureFixture[str], rights: list[str]
) -> None:
    path = script(workspace, WRITE, {"text": "Done."})

    code = main(["-p", "Write", "--script", path, "--output-format", "json", *rights])

    (document,) = documents(capfd.readouterr().out)
    assert (code, document["files"], document["denials"]) == (
        0,
        [{"path": "a.txt", "kind": "created"}],
        [],
    )
    assert (workspace / "a.txt").read_text() == "hello\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_background_command_stopped_at_the_end_of_the_task_is_a_warning(
    workspace: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    start = {"name": "background_run", "arguments": {"command": "sleep 994"}}
    calls = {"calls": [{"tool": "tool_call", "arguments": start}]}
    path = script(workspace, calls, {"text": "It runs."})

    main(["-p", "Run", "--script", path, "--yolo", "--output-format", form])

    out, err = capfd.readouterr()
    warning = "background-1 still ran and was stopped with the answer: sleep 994"
    if form == "json":
        assert documents(out)[0]["warnings"] == [warning]
    else:
        assert f"refold: {warning}\n" in err


@pytest.mark.parametrize("flag", ["--deny", "--disallowedTools", "--ask"])
def test_a_deny_or_ask_rule_wins_over_bypass(workspace: Path, flag: str) -> None:
    path = script(workspace, WRITE, {"text": "I may not."})

    main(["-p", "Write", "--script", path, "--yolo", flag, "write_file(*.txt)"])

    assert not (workspace / "a.txt").exists()


def test_json_output_is_one_result_document_with_usage_cost_and_files(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Four."})

    main(["-p", "2+2", "--script", path, "--output-format", "json"])

    (document,) = documents(capfd.readouterr().out)
    assert {k: v for k, v in document.items() if k not in ("session_id", "duration_seconds")} == {
        "type": "result", "outcome": "answered", "reason": "", "text": "Four.",
        "model": "script/script.jsonl", "steps": 1, "cost": None, "denials": [], "files": [],
        "warnings": [],
        "usage": {"fresh": 10, "cached": 0, "cache_write": 0, "output": 5, "reasoning": 0, "estimated": False},
    }  # fmt: skip


def test_stream_json_begins_with_a_system_document_and_ends_with_the_result(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, WRITE, {"text": "Done."})

    main(["-p", "Write", "--script", path, "--yolo", "--output-format", "stream-json"])

    json_documents = documents(capfd.readouterr().out)
    assert [d["type"] for d in json_documents] == [
        "system", "user_message", "turn_start", "delivered", "model_start",
        "assistant_message", "tool_call", "tool_approval_result", "tool_start", "checkpoint",
        "tool_result", "diff", "model_start", "assistant_message", "checkpoint", "turn_end",
        "result",
    ]  # fmt: skip
    seqs = [d["seq"] for d in json_documents if "seq" in d]
    assert seqs == sorted(seqs)
    assert json_documents[0]["session_id"] == json_documents[-1]["session_id"]


def test_include_partial_messages_streams_text_and_thinking_deltas(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Hello.", "thinking": "Hm."})
    flags = ["--output-format", "stream-json", "--include-partial-messages"]

    main(["-p", "Hi", "--script", path, *flags])

    json_documents = documents(capfd.readouterr().out)
    text = "".join(d["text"] for d in json_documents if d["type"] == "text_delta")
    thought = "".join(d["text"] for d in json_documents if d["type"] == "thinking_delta")
    assert (text, thought) == ("Hello.", "Hm.")


def test_at_the_step_limit_a_summary_is_printed_and_the_session_can_be_continued(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    look = call("list_files", path=".")
    summary = {"text": "One look done."}  # requested at the limit, and not counted
    path = script(workspace, look, summary)
    first = main(["-p", "Look", "--script", path, "--max-turns", "1"])
    output = capfd.readouterr()
    path = script(workspace, {"text": "And the rest."})

    second = main(["-p", "-c", "--script", path])

    assert (first, output.out) == (2, "One look done.\n")
    assert without_sandbox_notice(output.err) == (
        "refold: step_limit: 1 response was allowed; continue the session for more\n"
    )
    assert (second, capfd.readouterr().out) == (0, "And the rest.\n")


def test_continue_flag_ignores_sessions_of_other_directories(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = script(workspace, {"text": "One."})
    main(["-p", "Hi", "--script", here])
    (workspace / "other").mkdir()
    monkeypatch.chdir(workspace / "other")

    code = main(["-p", "-c", "Again", "--script", here])

    assert code == 1
    assert "no session was started in" in capfd.readouterr().err


def test_a_failed_model_is_exit_code_1_with_its_reason_on_stderr(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace)

    code = main(["-p", "Hi", "--script", path])

    out, err = capfd.readouterr()
    assert (code, out, without_sandbox_notice(err)) == (
        1, "", "refold: failed: the script has only 0 lines\n",
    )  # fmt: skip


def test_repeated_denied_calls_are_exit_code_4(workspace: Path) -> None:
    lines = [call("bash", command=f"touch {n}") for n in range(3)]

    assert main(["-p", "Hi", "--script", script(workspace, *lines)]) == 4


def test_timeout_of_a_turn_is_exit_code_3(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "slow", "pause": 30})

    code = main(["-p", "Hi", "--script", path, "--timeout", "0.05"])

    assert code == 3
    assert "took longer than 0.05 s" in capfd.readouterr().err


def test_print_mode_without_a_prompt_reads_the_prompt_from_stdin(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"What is it?")))
    path = script(workspace, {"text": "It."})

    main(["-p", "--script", path, "--output-format", "stream-json"])

    json_documents = documents(capfd.readouterr().out)
    assert json_documents[1]["text"] == "What is it?"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p"], "the task is missing: give it"),
        (["-p", "Hi"], "no model is configured: set ANTHROPIC_API_KEY"),
        (["-p", "Hi", "-m", "antropic/x"], "there is no provider 'antropic'; did you mean"),
        (["-p", "Hi", "-m", "anthropic/x"], "there is no key for Anthropic"),
        (["-p", "Hi", "-m", "local/qwen2.5-coder-0.5b"], "is not installed: `refold local"),
        (["-p", "Hi", "--nonsense"], "unknown option --nonsense"),
        (["-p", "Hi", "--modle", "x"], "unknown option --modle; did you mean --model?"),
        (
            ["-p", "Hi", "--timeout", "0"],
            "'0' is not a number of seconds above 0 (see refold",
        ),
        (
            ["-p", "Hi", "--max-turn=3"],
            "unknown option --max-turn; did you mean --max-turns?",
        ),
        (
            ["-p", "--output-format", "jsn"],
            "(there are text, json, stream-json); did you mean json?",
        ),
        (["memory", "shwo"], "update, diff, path); did you mean show?"),
        (["-p", "Hi", "-r", "2020"], "there is no session '2020'"),
        (["-p", "Hi", "--allow", "no rule!"], "'no rule!' is not a permission rule"),
        (["-p", "Hi", "--add-dir", "nowhere"], "--add-dir 'nowhere': there is no such"),
        (["-p", "Hi", "--script", "none.jsonl"], "none.jsonl cannot be read"),
        (["-p", "-c", "--no-session"], "--no-session keeps no journal"),
        (
            ["-p", "Hi", "--timeout", "nan"],
            "--timeout: 'nan' is not a number of seconds above 0",
        ),
        (
            ["-p", "Hi", "--timeout", "-1"],
            "--timeout: '-1' is not a number of seconds above 0",
        ),
        (
            ["-p", "Hi", "--max-turns", "0"],
            "'0' is not a number of model responses: 1 or more",
        ),
        (["sessions", "show", "2020"], "there is no session '2020'"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr_and_exit_code_1(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code = main(arguments)

    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith("refold: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_an_invalid_script_is_reported_with_path_and_line(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "One."}, {"txet": "Two."})

    assert main(["-p", "Hi", "--script", path]) == 1
    errors = capfd.readouterr().err
    assert f"{path}, line 2: Object contains unknown field `txet`" in errors
    assert "a line has text, thinking, calls" in errors


def test_a_script_may_begin_with_a_byte_order_mark(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = Path(script(workspace, {"text": "One."}))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert (main(["-p", "Hi", "--script", str(path)]), capfd.readouterr().out) == (
        0,
        "One.\n",
    )


def test_no_session_flag_writes_no_session(workspace: Path) -> None:
    path = script(workspace, {"text": "Hello."})

    assert main(["-p", "Hi", "--script", path, "--no-session"]) == 0

    assert not Path(os.environ["REFOLD_HOME"], "sessions").exists()


def test_flags_replace_and_append_to_the_system_prompt(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Hello."})
    own = ["--system-prompt", "Be a parrot.", "--append-system-prompt", "Say it twice."]
    main(["-p", "Hi", "--script", path, *own])

    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    (prompt,) = prompts_in(journal)
    system = prompt.system
    assert system.startswith("Be a parrot.\n\nYou work in: ")
    assert system.endswith("Say it twice.")


def test_add_dir_flag_adds_a_directory_to_the_workspace(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    write = call("write_file", path=str(other / "a.txt"), content="x")
    flags = ["--permission-mode", "accept-edits"]
    path = script(workspace, write, {"text": "Done."})

    main(["-p", "Write", "--script", path, *flags])
    is_absent = not (other / "a.txt").exists()
    main(["-p", "Write", "--script", path, *flags, "--add-dir", str(other)])

    assert is_absent
    assert (other / "a.txt").read_text() == "x"


@pytest.mark.parametrize("arguments", [["plans"], ["sessions", "list"]])
def test_an_empty_list_prints_a_notice_on_stderr(
    workspace: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    main(arguments)

    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"no {arguments[0]} in this directory (--all")


def test_sessions_are_listed_shown_and_checked(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    main(["-p", "Say\x1b]0;hello", "--script", script(workspace, {"text": "Hello."})])
    capfd.readouterr()

    main(["sessions", "list", "--json"])
    (row,) = documents(capfd.readouterr().out)
    main(["sessions", "show", "last"])
    output = capfd.readouterr().out
    main(["sessions", "show", row["id"], "--json"])
    events = documents(capfd.readouterr().out)
    whole = main(["sessions", "check", row["id"]])

    assert (row["outcome"], row["directory"]) == ("answered", str(workspace))
    assert "‹ Hello." in output
    assert "\x1b" not in output
    assert [e["type"] for e in events] == [
        "user_message", "turn_start", "delivered", "model_start", "assistant_message",
        "turn_end",
    ]  # fmt: skip
    assert whole == 0


def test_sessions_check_reports_a_damaged_session_and_resume_refuses_it(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Hello."})
    main(["-p", "Hi", "--script", path])
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b'"Hi"', b'"Ho"'))
    id_ = journal.parent.name
    capfd.readouterr()

    checked = main(["sessions", "check", id_])
    output = capfd.readouterr().out
    continued = main(["-p", "Again", "-r", id_, "--script", path])

    assert (checked, continued) == (1, 1)
    assert "line 2" in output
    damage = capfd.readouterr().err
    assert "line 2 of the journal is damaged" in damage
    assert "add --fork --at 1 to continue in a copy of what stands before it" in damage


def test_a_damaged_session_continues_in_the_fork_named_by_the_error(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Hello."})
    main(["-p", "Hi", "--script", path])
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    *before, last = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*before, b"\0" * 9 + b"\n", last]))
    id_ = journal.parent.name
    main(["-p", "Again", "-r", id_, "--script", path])
    (event,) = re.findall(r"--fork --at (\d+)", capfd.readouterr().err)

    code = main(["-p", "Again", "-r", id_, "--fork", "--at", event, "--script", path])

    assert (code, event) == (0, str(len(before)))
    assert capfd.readouterr().out.strip() == "Hello."


def test_config_show_names_the_source_of_each_value(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(os.environ["REFOLD_HOME"], "config.toml")
    file.parent.mkdir()
    file.write_text('model = "ollama/llama"\n[limits]\nsteps = 9\n')
    monkeypatch.setenv("REFOLD_LIMITS__WRAP_UP_STEPS", "2")

    assert main(["config", "show"]) == 0

    lines = capfd.readouterr().out.splitlines()
    assert f'models.main = "ollama/llama"  # user {file}:1' in lines
    assert (
        "limits.wrap_up_steps = 2  # environment variable REFOLD_LIMITS__WRAP_UP_STEPS"
        in lines
    )
    assert "limits.repeated_calls = 3  # default" in lines


PLAN = call("exit_plan_mode", plan="# Paint\n\n1. Buy paint", title="Paint it")


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_plan_is_the_answer_of_a_task_in_plan_mode(
    workspace: Path, capfd: pytest.CaptureFixture[str], format_: str
) -> None:
    path = script(workspace, WRITE, PLAN)

    flags = ["--permission-mode", "plan", "--output-format", format_]
    code = main(["-p", "Paint", "--script", path, *flags])

    out, err = capfd.readouterr()
    assert (code, (workspace / "a.txt").exists()) == (0, False)
    if format_ == "text":
        assert (out, without_sandbox_notice(err)) == ("# Paint\n\n1. Buy paint\n", "")
        return
    (document,) = documents(out)
    assert (document["outcome"], document["text"]) == (
        "plan_ready",
        "# Paint\n\n1. Buy paint",
    )
    assert document["plan"] == {
        "title": "Paint it",
        "text": "# Paint\n\n1. Buy paint",
        "id": document["plan"]["id"],
    }
    assert [d["tool"] for d in document["denials"]] == ["write_file"]


def test_print_mode_ignores_settings_of_a_folder_until_it_is_trusted(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (workspace / ".refold").mkdir()
    rules = '[permissions]\nallow = ["write_file(a.txt)"]\n'
    (workspace / ".refold/config.toml").write_text(rules)
    path = script(workspace, WRITE, {"text": "Well."})

    assert main(["-p", "Write", "--script", path]) == 4
    errors = capfd.readouterr().err
    assert not (workspace / "a.txt").exists()
    assert "not trusted" in errors
    assert main(["-p", "Write", "--script", path, "--trust"]) == 0
    assert (workspace / "a.txt").exists()
    assert "not trusted" not in capfd.readouterr().err


def refold(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "refold", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, **options,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_the_turn_and_the_stream_ends_with_a_result(
    workspace: Path, number: signal.Signals
) -> None:
    path = script(workspace, call("bash", command="echo started; sleep 60"))
    flags = ["--yolo", "--output-format", "stream-json", "--include-partial-messages"]

    with refold("-p", "Wait", "--script", path, *flags, cwd=workspace) as process:
        assert process.stdout
        lines = list[str]()
        for line in process.stdout:
            lines.append(line)
            if "tool_progress" in line:
                process.send_signal(number)
    json_documents = documents("".join(lines))

    assert process.returncode == 130
    assert (json_documents[-1]["type"], json_documents[-1]["outcome"]) == (
        "result",
        "interrupted",
    )
    assert json_documents[-1]["reason"] == f"stopped by {number.name}"


@pytest.mark.slow
def test_a_task_does_not_wait_for_an_open_stdin_pipe_without_data(workspace: Path) -> None:
    path = script(workspace, {"text": "Hello."})
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "refold", "-p", "Hi", "--script", path],
            stdin=reading, capture_output=True, text=True, cwd=workspace, timeout=60,
            check=False,
        )  # fmt: skip
    finally:
        os.close(reading)
        os.close(writing)

    assert (done.returncode, done.stdout) == (0, "Hello.\n")


@pytest.mark.slow
def test_print_mode_ends_without_a_traceback_when_its_reader_closes_the_pipe(
    workspace: Path,
) -> None:
    path = script(workspace, *[call("think", thought="x" * 99_000)] * 3, {"text": "x"})

    with refold("-p", "Hi", "--script", path, "--output-format", "stream-json",
                cwd=workspace) as process:  # fmt: skip
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()

    assert "Traceback" not in errors
    assert process.returncode != 0


def test_a_failed_start_creates_no_session(workspace: Path) -> None:
    main(["-p", "Hi", "--script", script(workspace, {"text": "Hello."})])
    before = list(Path(os.environ["REFOLD_HOME"]).glob("sessions/*"))

    assert main(["-p", "Hi", "-m", "antropic/x"]) == 1

    assert list(Path(os.environ["REFOLD_HOME"]).glob("sessions/*")) == before


def test_print_mode_denies_a_pending_call_of_a_resumed_session(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def leave(_: object) -> bool:
        raise LookupError

    provider = ScriptedProvider([("write_file", '{"path": "a.txt", "content": "x"}')])
    with pytest.raises(LookupError):
        Agent(provider=provider, approve=leave, directory=workspace).run("Write.")

    code = main(["-p", "-c", "--script", script(workspace, {"text": "I may not."})])

    assert (code, capfd.readouterr().out) == (4, "I may not.\n")
    assert not (workspace / "a.txt").exists()


def test_list_files_without_its_optional_path_succeeds(workspace: Path) -> None:
    path = script(workspace, call("list_files"), {"text": "Listed."})

    assert main(["-p", "Look", "--script", path]) == 0


def test_a_resumed_session_runs_commands_in_its_original_directory(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(workspace, {"text": "Hello."})
    main(["-p", "Hi", "--script", path])
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    other = workspace / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    path = script(workspace, call("bash", command="pwd > here"), {"text": "Done."})

    code = main(["-p", "Where?", "-r", journal.parent.name, "--script", path, "--yolo"])

    assert code == 0
    assert (workspace / "here").read_text().strip() == str(workspace)


def test_result_contains_the_text_that_was_streamed_before_the_timeout(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "abcdefghij" * 20, "pause": 0.02})

    main(["-p", "Hi", "--script", path, "--timeout", "0.3", "--output-format", "json"])

    (data,) = documents(capfd.readouterr().out)
    assert data["outcome"] == "cancelled"
    assert data["text"].startswith("abc")


@pytest.mark.slow
def test_print_mode_reports_a_full_disk_on_stdout_in_one_sentence(workspace: Path) -> None:
    path = script(workspace, {"text": "Hello."})

    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "refold", "-p", "Hi", "--script", path],
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
            cwd=workspace, check=False,
        )  # fmt: skip

    text = "refold: the output cannot be written: No space left on device\n"
    assert (done.returncode, without_sandbox_notice(done.stderr)) == (1, text)


@pytest.mark.slow
def test_print_mode_works_with_closed_stdin(workspace: Path) -> None:
    path = script(workspace, {"text": "Hello."})
    command = f'exec {sys.executable} -m refold -p Hi --script "{path}" <&-'

    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        cwd=workspace,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "Hello.\n")


def test_a_denied_call_of_a_subagent_is_listed_with_its_address(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = (
        call("task", prompt="Tidy up.", agent="code"),
        {"for": "Tidy up.", **call("task", prompt="Remove it.", agent="code")},
        {"for": "Remove it.", **call("bash", command="rm -r build")},
        {"for": "Remove it.", "text": "I may not."},
        {"for": "Tidy up.", "text": "It may not."},
        {"text": "Nothing was done."},
    )
    path = script(workspace, *lines)

    main(["-p", "Go", "--script", path, "--output-format", "json"])
    (data,) = documents(capfd.readouterr().out)
    main(["-p", "Go", "--script", path])
    err = capfd.readouterr().err

    assert [(d["call_id"], d["tool"]) for d in data["denials"]] == [
        ("child-1/child-1/call-0", "bash")
    ]
    assert "refold: denied: bash rm -r build\n" in err


@pytest.mark.parametrize(
    ("flags", "tools"),
    [
        (["--tools", "read_file,grep"], ["read_file", "grep"]),
        (["--no-tools"], []),
    ],
)
def test_tools_flags_set_the_tools_of_the_session(
    workspace: Path, flags: list[str], tools: list[str]
) -> None:
    path = script(workspace, {"text": "Hello."})

    assert main(["-p", "Hi", "--script", path, *flags]) == 0

    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    (prompt,) = prompts_in(journal)
    assert [tool.name for tool in prompt.tools] == tools


def test_tools_flag_refuses_an_unknown_tool_and_suggests_the_nearest(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(workspace, {"text": "Hello."})

    code = main(["-p", "Hi", "--script", path, "--tools", "raed_file"])

    assert code == 1
    assert "there is no tool 'raed_file'; did you mean read_file?" in capfd.readouterr().err


def test_temperature_outside_the_range_of_the_provider_is_an_error(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    code = main(["-p", "Hi", "-m", "anthropic/claude-sonnet-5-5", "--temperature", "1.5"])

    assert code == 1
    err = capfd.readouterr().err
    assert "temperature = 1.5: anthropic/claude-sonnet-5-5 takes 0 to 1" in err
