"""A program that drives refold over stdio with one loop over documents."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.contract import Document, check_document
from tests.cli.running import call, read_rest, script, start_refold

FORMATS = ("--input-format", "stream-json", "--output-format", "stream-json")
WRITE = call("write_file", path="a.txt", content="hello\n")
pytestmark = pytest.mark.slow
Answer = Callable[[Document], Any]  # the reply to a document: none, an order, or many


class Driver:
    """Sends the answer of `answers` for each type of document, until refold ends."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", answers: dict[str, Answer]
    ) -> None:
        self._process, self._answers = process, answers
        self.seen: list[Document] = []

    def send(self, *orders: Any) -> None:
        assert self._process.stdin
        for order in orders:
            raw = order if isinstance(order, bytes) else msgspec.json.encode(order)
            self._process.stdin.write(raw + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()

    def run(self) -> int:
        assert self._process.stdout
        for line in self._process.stdout:
            document = check_document(msgspec.json.decode(line))
            self.seen.append(document)
            answer = self._answers.get(document["type"])
            result = answer(document) if answer else None
            if result is not None:
                self.send(*(result if isinstance(result, list) else [result]))
        return self._process.wait(60)

    def documents_of_kind(self, kind: str) -> list[Document]:
        return [document for document in self.seen if document["type"] == kind]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    managers: list[Any] = []

    def start(lines: list[Document], answers: dict[str, Answer], *flags: str) -> Driver:
        arguments = (*FORMATS, "--script", script(tmp_path, *lines), *flags)
        manager = start_refold(*arguments, cwd=tmp_path, stdin=subprocess.PIPE)
        managers.append(manager)
        return Driver(manager.__enter__(), answers)

    yield start
    for item in managers:
        item.__exit__(None, None, None)


def words(text: str, **options: Any) -> Document:
    return {"type": "user_message", "text": text, **options}


def verdict(document: Document, allowed: bool, **options: Any) -> Document:
    return {
        "type": "tool_approval_response", "call_id": document["call_id"],
        "hash": document["hash"], "allowed": allowed, **options,
    }  # fmt: skip


def test_one_client_loop_handles_approvals_questions_and_plans(
    driver: Callable[..., Driver], tmp_path: Path
) -> None:
    """The loop refuses a call with a reason, allows one for the session, answers a
    question, and edits a plan.
    """
    ask = call("ask_user", questions=[{"question": "Which colour?"}])
    plan = call("exit_plan_mode", plan="1. Paint it green", title="Paint")
    again = call("write_file", path="a.txt", content="again\n")
    script_ = [
        WRITE, {"text": "Well."}, WRITE, again, {"text": "Done."}, ask, plan,
        call("read_file", path="a.txt"), {"text": "Painted."},
    ]  # fmt: skip
    turns = iter([
        [words("Write it now.")],
        [{"type": "set_mode", "mode": "plan"}, words("Paint.")],
        [],
    ])  # fmt: skip
    documents: list[Document] = []

    def approve(document: Document) -> Document:
        documents.append(document)
        first = len(documents) == 1
        return verdict(document, False, reason="not yet") if first else verdict(
            document, True, grant="session"
        )  # fmt: skip

    def answer_plan(document: Document) -> list[Document] | None:
        if document["outcome"] == "plan_ready":
            number = document["plan"]["id"]
            return [
                {
                    "type": "plan_approval",
                    "plan": number,
                    "approved": True,
                    "text": "1. Red",
                }
            ]
        turn_end = next(turns)
        if not turn_end:
            client.close()
        return turn_end

    client = driver(
        script_,
        {
            "tool_approval_request": approve,
            "question": lambda d: {
                "type": "question_response", "call_id": d["call_id"], "answers": ["red"],
            },
            "result": answer_plan,
        },
    )  # fmt: skip
    client.send(words("Write."))

    assert client.run() == 0
    assert [d["text"] for d in client.documents_of_kind("result")] == [
        "Well.", "Done.", "1. Paint it green", "Painted.",
    ]  # fmt: skip
    assert len(documents) == 2
    result = next(
        d for d in client.documents_of_kind("tool_result") if d["outcome"] == "refused"
    )
    assert "not yet" in result["text"]
    assert any("red" in d["text"] for d in client.documents_of_kind("tool_result"))
    assert client.documents_of_kind("plan_approved")[0]["text"] == "1. Red"
    assert [d["mode"] for d in client.documents_of_kind("mode_changed")] == [
        "plan",
        "default",
    ]
    assert (tmp_path / "a.txt").read_text() == "again\n"


def test_the_first_of_two_approval_responses_counts(
    driver: Callable[..., Driver], tmp_path: Path
) -> None:
    client = driver(
        [WRITE, {"text": "I may not."}],
        {
            "tool_approval_request": lambda d: [verdict(d, False), verdict(d, True)],
            "result": lambda _: client.close(),
        },
    )
    client.send(words("Write."))

    assert client.run() == 0
    assert not (tmp_path / "a.txt").exists()
    (late,) = client.documents_of_kind("error")
    assert (late["line"], "waits for an answer" in late["reason"]) == (3, True)


def test_a_message_joins_the_running_turn_and_a_queued_one_starts_the_next(
    driver: Callable[..., Driver], tmp_path: Path
) -> None:
    """The command ends when the first message is in the journal."""
    wait = call("bash", command="until [ -e go ]; do sleep 0.05; done")
    texts: list[str] = []
    more = {"type": "queue", "text": "And then?", "client_key": "k"}

    def note_message(document: Document) -> None:
        texts.append(document["text"])
        if document["text"] == "And then?":
            (tmp_path / "go").touch()

    def close_after_the_second_turn(document: Document) -> None:
        if document["text"] == "Then that.":
            client.close()

    client = driver(
        [wait, {"text": "Seen."}, {"text": "Then that."}],
        {
            "tool_call": lambda _: [{"type": "steer", "text": "Here."}, more, more],
            "user_message": note_message,
            "result": close_after_the_second_turn,
        },
        "--yolo",
    )
    client.send(words("Look."))

    assert client.run() == 0
    assert texts == ["Look.", "Here.", "And then?"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\x00\xff\xfe binary", "this is not an order"),
        (b"[" * 100_000, "this is not an order"),
        (
            b'{"type": "user_message", "text": "' + b"x" * (33 * 2**20) + b'"}',
            "bytes at most",
        ),
        (b'{"type": "continue"}', "no turn to continue yet"),
        (b'{"type": "stop_child"}', "no subagent is running"),
        (b'{"type": "plan_approval", "plan": 3, "approved": true}', "no plan 3"),
        (b'{"type": "set_agent", "agent": "nobody"}', "nobody"),
    ],
    ids=["binary", "deep", "too-long", "continue", "child", "plan", "agent"],
)
def test_an_invalid_order_yields_one_error_and_the_session_continues(
    driver: Callable[..., Driver], line: bytes, message: str
) -> None:
    client = driver(
        [{"text": "One."}],
        {"error": lambda _: words("Hi"), "result": lambda _: client.close()},
    )
    client.send(line)

    assert client.run() == 0
    (error,) = client.documents_of_kind("error")
    assert (error["line"], message in error["reason"]) == (1, True)
    assert client.documents_of_kind("result")[0]["text"] == "One."


def test_a_message_of_five_megabytes_is_accepted(driver: Callable[..., Driver]) -> None:
    client = driver([{"text": "One."}], {"result": lambda _: client.close()})
    client.send(words("x" * 5_000_000))

    assert client.run() == 0
    assert len(client.documents_of_kind("user_message")[0]["text"]) == 5_000_000


@pytest.mark.parametrize(
    ("tail", "code", "errors"),
    [(b'{"type": "user_message", "text": "Hi"}', 0, 0), (b'{"type": "user_mess', 1, 1)],
)
def test_the_last_line_of_stdin_may_lack_a_newline(
    tmp_path: Path, tail: bytes, code: int, errors: int
) -> None:
    script_path = script(tmp_path, {"text": "One."})
    with start_refold(
        *FORMATS, "--script", script_path, cwd=tmp_path, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin
        process.stdin.write(tail)
        process.stdin.close()
        process.stdin = None
        documents, _ = read_rest(process)

    kinds = [document["type"] for document in documents]
    assert (process.returncode, kinds.count("result"), kinds.count("error")) == (
        code,
        1,
        errors,
    )


def test_an_exceeded_budget_ends_the_turn_with_exit_code_6(
    driver: Callable[..., Driver],
) -> None:
    look = call("list_files", path=".")
    client = driver([look, look, {"text": "x"}], {"result": lambda _: client.close()})
    client.send({"type": "budget", "calls": 1}, words("Look."))

    assert client.run() == 6
    assert client.documents_of_kind("result")[0]["outcome"] == "budget"


def test_a_client_that_stops_reading_ends_the_turn_without_stderr_output(
    tmp_path: Path,
) -> None:
    script_path = script(
        tmp_path, *[call("think", thought="x" * 90_000)] * 4, {"text": "x"}
    )
    with start_refold(
        *FORMATS, "Hi", "--script", script_path, cwd=tmp_path, stdin=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()

        # Stopped, or done before the stop arrived: in any case a failure.
        assert process.wait(60) in (130, 1)
        assert errors == b""
