"""Requests that were open when refold was killed are asked again over stdio."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.contract import Document
from tests.cli.running import LONG, call, read_rest, read_until, script, start_refold

STDIO = ("--input-format", "stream-json", "--output-format", "stream-json")
WRITE = call("write_file", path="a.txt", content="hello\n")
ASK = call("ask_user", questions=[{"question": "Which?"}])
TASK = call("task", prompt="KID writes", agent="code")
BELOW = {"for": "KID", **WRITE}
SAID = {"for": "KID", "text": "Written."}
ENDS = (SAID, {"text": "Done."}, {"text": "And again."})

# The kind of request, and the responses of the models before it.
KINDS = [
    pytest.param("tool_approval_request", (WRITE,), id="a call"),
    pytest.param("question", (ASK,), id="a question"),
    pytest.param("tool_approval_request", (TASK, BELOW), id="a child's call"),
]


def send(process: "subprocess.Popen[bytes]", **order: Any) -> None:
    assert process.stdin
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    process.stdin.flush()


def has_type(kind: str) -> Callable[[Document], bool]:
    return lambda document: document["type"] == kind


def answer(request: Document) -> Document:
    """Yes, or "red", to the request; without its hash, as a person's hand would say it."""
    if request["type"] == "question":
        return {
            "type": "question_response", "call_id": request["call_id"], "answers": ["red"],
        }  # fmt: skip
    return {
        "type": "tool_approval_response", "call_id": request["call_id"], "allowed": True,
    }  # fmt: skip


def kill_while_waiting(
    directory: Path, kind: str, *lines: Document
) -> tuple[str, Document]:
    """Return the session, and its unanswered request."""
    answers = script(directory, *lines)
    with start_refold(
        *STDIO, "--script", answers, cwd=directory, stdin=subprocess.PIPE
    ) as process:
        send(process, type="user_message", text="go")
        documents = read_until(process, has_type(kind))
        process.kill()
        return documents[0]["session_id"], documents[-1]


def resume(directory: Path, session: str) -> Any:
    answers = script(directory, *ENDS)
    more = ("--script", answers, "-r", session)
    return start_refold(*STDIO, *more, cwd=directory, stdin=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "lines"), KINDS)
def test_a_pending_request_is_repeated_and_answered_before_new_messages(
    tmp_path: Path, kind: str, lines: tuple[Document, ...]
) -> None:
    session, request = kill_while_waiting(tmp_path, kind, *lines)
    with resume(tmp_path, session) as process:
        send(process, type="user_message", text="and then")
        again = read_until(process, has_type(kind))
        send(process, **answer(again[-1]))
        read_until(process, has_type("result"))
        second = read_until(process, has_type("result"))
        documents, _ = read_rest(process)

    assert [document["type"] for document in again] == ["system", kind]
    assert again[-1] == request
    assert (tmp_path / "a.txt").exists() == (kind != "question")
    assert "and then" in [document.get("text") for document in second]
    assert (second[-1]["text"], documents, process.returncode) == ("And again.", [], 0)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "lines"), KINDS)
def test_a_pending_request_that_a_resume_sends_again_is_denied_when_stdin_ends(
    tmp_path: Path, kind: str, lines: tuple[Document, ...]
) -> None:
    session, _ = kill_while_waiting(tmp_path, kind, *lines)
    with resume(tmp_path, session) as process:
        documents, _ = read_rest(process)

    result = documents[-1]
    assert (process.returncode, result["type"], result["text"]) == (0, "result", "Done.")
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_a_request_of_a_subagent_is_denied_after_stdin_ends(
    tmp_path: Path,
) -> None:
    answers = script(tmp_path, TASK, BELOW, *ENDS)
    with start_refold(
        *STDIO, "--script", answers, cwd=tmp_path, stdin=subprocess.PIPE
    ) as process:
        out, _ = process.communicate(
            b'{"type": "user_message", "text": "go"}\n', timeout=LONG
        )

    documents = [msgspec.json.decode(line) for line in out.splitlines()]
    kinds = [document["type"] for document in documents]
    assert "tool_approval_request" in kinds
    assert (process.returncode, documents[-1]["text"]) == (0, "Done.")
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_a_request_of_a_subagent_is_denied_after_the_answer_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_LIMITS__ANSWER_SECONDS", "0.3")
    answers = script(tmp_path, TASK, BELOW, *ENDS)
    with start_refold(
        *STDIO, "--script", answers, cwd=tmp_path, stdin=subprocess.PIPE
    ) as process:
        send(process, type="user_message", text="go")
        documents = read_until(process, has_type("result"))

    assert documents[-1]["text"] == "Done."
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_a_pending_plan_is_sent_again_with_the_same_id_after_a_resume(
    tmp_path: Path,
) -> None:
    plan = call("exit_plan_mode", plan="1. Paint", title="Paint it")
    answers = script(tmp_path, plan)
    first = ("--permission-mode", "plan", "--script", answers)
    with start_refold(*STDIO, *first, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        send(process, type="user_message", text="go")
        documents = read_until(process, has_type("result"))
    ready = next(document for document in documents if document["type"] == "plan_ready")
    with resume(tmp_path, documents[0]["session_id"]) as process:
        again = read_until(process, has_type("plan_ready"))[-1]
        send(process, type="plan_approval", plan=again["plan"], approved=True)
        result = read_until(process, has_type("result"))[-1]

    assert again == ready
    assert result["text"] == "Done."
