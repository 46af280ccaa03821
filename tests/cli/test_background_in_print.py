"""Without a terminal, a task waits for the background commands that are to wake the agent."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import main
from tests.cli.running import call, script

WAIT = {"text": "I wait."}
DONE = {"text": "It is built."}


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty directory to work in, and nothing on stdin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", is_readable_now)
    return tmp_path


def is_readable_now(*_: object) -> tuple[list[object], list[object], list[object]]:
    """Something can be read, and be it the end."""
    return [sys.stdin], [], []


def deferred_call(name: str, **arguments: object) -> dict[str, Any]:
    return call("tool_call", name=name, arguments=arguments)


BUILD = deferred_call("background_run", command="sleep 0.1; echo built", notify=True)
ENDLESS = deferred_call("background_run", command="sleep 995", notify=True)


def result(out: str) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert last["type"] == "result"
    return last


def test_print_mode_waits_for_a_background_command_with_notify(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = main(["-p", "Go", "--yolo", "--script", script(workspace, BUILD, WAIT, DONE)])

    out, err = capfd.readouterr()
    assert (code, out) == (0, "It is built.\n")
    assert "ended with the answer" not in err


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_the_result_counts_all_turns_of_a_task(
    workspace: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    write = call("write_file", path="a.txt", content="a")
    path = script(workspace, write, BUILD, WAIT, DONE)

    code = main(["-p", "Go", "--yolo", "--script", path, "--output-format", form])

    out = capfd.readouterr().out
    last = result(out)
    assert (code, last["text"], last["steps"]) == (0, "It is built.", 4)
    assert (last["usage"]["fresh"], last["files"]) == (
        40,
        [{"path": "a.txt", "kind": "created"}],
    )
    assert out.count('"type":"result"') == 1


def test_a_task_does_not_wait_for_the_end_of_a_monitored_server(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = deferred_call(
        "monitor", command="sleep 0.1; echo ready; sleep 996", until="ready"
    )
    path = script(workspace, watch, WAIT, {"text": "It is ready."})

    code = main(["-p", "Go", "--yolo", "--script", path])

    out, err = capfd.readouterr()
    assert (code, out) == (0, "It is ready.\n")
    assert (
        "background-1 still ran and was stopped with the answer: sleep 0.1; echo ready"
        in err
    )


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json"])
def test_timeout_of_a_task_includes_the_wait_for_background_commands(
    workspace: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    path = script(workspace, ENDLESS, WAIT)

    code = main(
        ["-p", "Go", "--yolo", "--timeout", "2", "--script", path, "--output-format", form]
    )

    out, err = capfd.readouterr()
    late = "it took longer than 2 s: it waited for background-1 (sleep 995)"
    assert (code, f"{late}\n" in err) == (3, True)
    if form == "json":
        assert (result(out)["outcome"], result(out)["reason"]) == ("cancelled", late)
    else:
        assert out == "I wait.\n"


def test_without_a_timeout_a_task_waits_ten_minutes_for_background_commands(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.headless.task.AWAITED_SECONDS", 0.01)

    code = main(["-p", "Go", "--yolo", "--script", script(workspace, ENDLESS, WAIT)])

    err = capfd.readouterr().err
    assert code == 3
    assert "refold: waits for background-1 (sleep 995), which is to wake the agent\n" in err
    assert "cancelled: it waited 0.01 s for background-1 (sleep 995): --timeout" in err


def test_over_stdio_a_task_waits_for_background_commands_after_stdin_closes(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order = workspace / "orders.jsonl"
    order.write_text('{"type":"user_message","text":"Go"}\n')
    path = script(workspace, BUILD, WAIT, DONE)

    with order.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(
            ["-p", "--input-format", "stream-json", "--output-format", "stream-json",
             "--yolo", "--script", path]
        )  # fmt: skip

    assert (code, result(capfd.readouterr().out)["text"]) == (0, "It is built.")


def test_over_stdio_the_wait_for_background_commands_is_bounded_without_a_timeout(
    workspace: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.headless.task.AWAITED_SECONDS", 0.01)
    order = workspace / "orders.jsonl"
    order.write_text('{"type":"user_message","text":"Go"}\n')

    with order.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(
            ["-p", "--input-format", "stream-json", "--output-format", "stream-json",
             "--yolo", "--script", script(workspace, ENDLESS, WAIT)]
        )  # fmt: skip

    last = result(capfd.readouterr().out)
    assert (code, last["outcome"]) == (3, "cancelled")
    assert last["reason"].startswith("it waited 0.01 s for background-1 (sleep 995)")


def test_schedule_tool_in_print_mode_reports_that_the_run_does_not_start_it(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = deferred_call("schedule", prompt="Look.", every="1h")
    path = script(workspace, plan, {"text": "Planned."})

    main(["-p", "Go", "--yolo", "--script", path, "--output-format", "stream-json"])

    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (outcome,) = [row["text"] for row in rows if row["type"] == "tool_result"]
    assert outcome.endswith("; this run ends with your answer and does not start it.")


def test_a_subagent_waits_for_a_background_command_with_notify(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = {"for": "CHILD go"}
    path = script(
        workspace,
        call("task", agent="code", prompt="CHILD go"),
        {"text": "The report is here."},
        {**child, **BUILD},
        {**child, **WAIT},
        {**child, "text": "The child has built it."},
    )

    main(["-p", "Go", "--yolo", "--script", path, "--output-format", "stream-json"])

    ends = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (end,) = [item for item in ends if item["type"] == "subagent_end"]
    assert end["text"] == "The child has built it."
