"""A session over stdin and stdout: questions, answers, results."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, get_args

import msgspec
import pytest

from refold.cli.main import main
from refold.client.protocol import Order, Queue, SendMessage, parse_order
from refold.errors import BadInput
from refold.views.stream_json.documents import Question, ToolApprovalRequest
from tests.cli.contract import check_document

ROOT = Path(__file__).parents[2]
Document = dict[str, Any]


def call(tool: str, **arguments: Any) -> Document:
    return {"calls": [{"tool": tool, "arguments": arguments}]}


WRITE = call("write_file", path="a.txt", content="hello\n")
ASK = call("ask_user", questions=[
    {"question": "Which?", "options": [{"label": "red"}, {"label": "blue", "about": "cold"}]},
    {"question": "How many?"},
])  # fmt: skip
PLAN = call("exit_plan_mode", plan="# Paint\n\n1. Buy paint", title="Paint it")


class Program:
    """refold at the other end of two pipes."""

    def __init__(self, directory: Path, lines: tuple[Document, ...], *flags: str) -> None:
        script = directory / "script.jsonl"
        script.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
        formats = ("--input-format", "stream-json", "--output-format", "stream-json")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refold", *formats, "--script", str(script), *flags],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.seen: list[Document] = []
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, raw: str = "", /, **order: Any) -> None:
        assert self.process.stdin
        line = raw.encode() if raw else msgspec.json.encode(order)
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def until(self, kind: str) -> Document:
        """Return the next document of this kind."""
        while True:
            try:
                line = self._lines.get(timeout=60)
            except Empty:
                raise AssertionError(f"no {kind} came after {self.seen}") from None
            assert line, f"it ended without {kind}: {self.seen}"
            self.seen.append(check_document(json.loads(line)))
            if self.seen[-1]["type"] == kind:
                return self.seen[-1]

    def end(self) -> int:
        """Close stdin; the exit code. What came until then is in `seen`."""
        assert self.process.stdin
        self.process.stdin.close()
        while line := self._lines.get(timeout=60):
            self.seen.append(check_document(json.loads(line)))
        return self.process.wait(60)

    def kinds(self) -> list[str]:
        return [document["type"] for document in self.seen]

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")


StartProgram = Callable[..., Program]


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[StartProgram]:
    programs: list[Program] = []

    def start(*lines: Document, flags: tuple[str, ...] = ()) -> Program:
        programs.append(Program(tmp_path, lines, *flags))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.wait()
        for pipe in (program.process.stdin, program.process.stdout, program.process.stderr):
            if pipe:
                pipe.close()


@pytest.mark.slow
def test_an_allowed_tool_call_runs_over_stdio(
    start_program: StartProgram, tmp_path: Path
) -> None:
    program = start_program(WRITE, {"text": "Done."})
    program.send(type="user_message", text="write")
    request = program.until("tool_approval_request")
    assert not (tmp_path / "a.txt").exists()
    program.send(
        type="tool_approval_response", call_id=request["call_id"], hash=request["hash"],
        allowed=True,
    )  # fmt: skip
    result = program.until("result")

    assert (program.end(), result["text"], result["denials"]) == (0, "Done.", [])
    assert (request["tool"], request["once"], request["rules"]) == (
        "write_file",
        False,
        ["write_file(./a.txt)"],
    )
    assert request["arguments"] == {"path": "a.txt", "content": "hello\n"}
    assert (tmp_path / "a.txt").read_text() == "hello\n"


@pytest.mark.slow
def test_status_and_snapshot_orders_return_the_state_of_the_session(
    start_program: StartProgram,
) -> None:
    program = start_program(WRITE, {"text": "Done."})
    program.send(type="user_message", text="write")
    request = program.until("tool_approval_request")
    program.send(type="status")
    program.send(type="snapshot")

    status, snapshot = program.until("status"), program.until("snapshot")

    assert (status["running"], status["waiting"]) == (True, [request["call_id"]])
    assert snapshot["status"] == status
    assert [message["text"] for message in snapshot["messages"]] == ["write", ""]
    assert snapshot["messages"][1]["calls"][0]["result"] is None


@pytest.mark.slow
def test_a_denial_reaches_the_model_and_stale_approvals_are_errors(
    start_program: StartProgram, tmp_path: Path
) -> None:
    program = start_program(WRITE, {"text": "I may not."})
    program.send(type="user_message", text="write")
    request = program.until("tool_approval_request")
    answer = {"type": "tool_approval_response", "call_id": request["call_id"]}
    program.send(**answer, allowed=True, hash="of something else")
    stale = program.until("error")
    program.send(**answer | {"call_id": "call-9"}, allowed=True)
    unknown = program.until("error")
    program.send(**answer, allowed=False, reason="not here")
    document = program.until("tool_result")
    program.until("result")
    program.send(**answer, allowed=True)
    late = program.until("error")

    assert program.end() == 0
    assert [item["line"] for item in (stale, unknown, late)] == [2, 3, 5]
    assert "newest request" in stale["reason"]
    assert "'call-9'" in unknown["reason"]
    assert "not here" in document["text"]
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_an_approval_may_be_granted_for_the_session_or_always(
    start_program: StartProgram, tmp_path: Path
) -> None:
    again = call("write_file", path="a.txt", content="again\n")
    for grant in ("session", "always"):
        program = start_program(WRITE, again, {"text": "Done."})
        program.send(type="user_message", text="write")
        request = program.until("tool_approval_request")
        program.send(
            type="tool_approval_response", call_id=request["call_id"], allowed=True,
            grant=grant,
        )  # fmt: skip
        program.until("result")

        assert program.end() == 0
        assert program.kinds().count("tool_approval_request") == 1
        (tmp_path / "a.txt").unlink()
    program = start_program(WRITE, {"text": "Done."})
    program.send(type="user_message", text="write")

    assert program.end() == 0
    assert "tool_approval_request" not in program.kinds()
    assert (tmp_path / "a.txt").read_text() == "hello\n"


@pytest.mark.slow
def test_a_question_response_answers_each_question_in_order(
    start_program: StartProgram,
) -> None:
    program = start_program(ASK, {"text": "Red it is."})
    program.send(type="user_message", text="paint")
    document = program.until("question")
    program.send(type="tool_approval_response", call_id=document["call_id"], allowed=True)
    wrong = program.until("error")
    program.send(
        type="question_response", call_id=document["call_id"], answers=["a", "b", "c"]
    )
    many = program.until("error")
    program.send(type="question_response", call_id=document["call_id"], answers=["red", ""])
    result = program.until("tool_result")

    assert program.end() == 0
    assert document["questions"] == [
        {
            "question": "Which?",
            "options": [{"label": "red", "about": ""}, {"label": "blue", "about": "cold"}],
            "many": False,
        },
        {"question": "How many?", "options": [], "many": False},
    ]
    assert result["text"] == "Which?\n  red\nHow many?\n  (no answer)"
    assert "question_response" in wrong["reason"]
    assert "2 questions" in many["reason"]


@pytest.mark.slow
def test_a_plan_is_rejected_then_approved_and_executed(
    start_program: StartProgram, tmp_path: Path
) -> None:
    program = start_program(
        PLAN, PLAN, WRITE, {"text": "Painted."}, flags=("--allow", "write_file")
    )
    program.send(type="set_mode", mode="plan")
    program.send(type="user_message", text="paint")
    first = program.until("plan_ready")
    ended = program.until("result")
    program.send(type="plan_approval", plan=first["plan"], approved=False, feedback="Blue.")
    second = program.until("plan_ready")
    program.until("result")
    program.send(type="plan_approval", plan=first["plan"], approved=True)
    stale = program.until("error")
    program.send(type="plan_approval", plan=second["plan"], approved=True, text="1. Blue")
    result = program.until("result")

    assert program.end() == 0
    assert (first["title"], first["text"]) == ("Paint it", "# Paint\n\n1. Buy paint")
    assert ended["plan"] == {
        "title": "Paint it",
        "text": "# Paint\n\n1. Buy paint",
        "id": first["plan"],
    }
    assert "no plan" in stale["reason"]
    assert (result["outcome"], result["text"]) == ("answered", "Painted.")
    assert program.kinds().count("plan_rejected") == 1
    approved = next(d for d in program.seen if d["type"] == "plan_approved")
    assert approved["text"] == "1. Blue"
    texts = [d["text"] for d in program.seen if d["type"] == "user_message"]
    assert ["Blue." in texts[1], "1. Blue" in texts[2]] == [True, True]
    assert (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_pending_requests_are_denied_when_stdin_ends(
    start_program: StartProgram, tmp_path: Path
) -> None:
    program = start_program(WRITE, ASK, {"text": "Nobody answered."})
    program.send(type="user_message", text="write")
    program.until("tool_approval_request")

    assert program.end() == 0
    result = program.seen[-1]
    assert (result["type"], result["text"]) == ("result", "Nobody answered.")
    assert [d["tool"] for d in result["denials"]] == ["write_file", "ask_user"]
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_an_approval_request_without_an_answer_is_denied_after_the_limit(
    start_program: StartProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_LIMITS__ANSWER_SECONDS", "0.3")
    program = start_program(WRITE, {"text": "Pity."})

    program.send(type="user_message", text="Write it.")
    done = program.until("tool_result")

    assert done["outcome"] == "refused"
    assert "no answer came within 0.3 s" in done["text"]
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
def test_an_approval_can_grant_only_the_offered_rule(
    start_program: StartProgram, tmp_path: Path
) -> None:
    program = start_program(WRITE, {"text": "Ok."})
    program.send(type="user_message", text="Write it.")
    document = program.until("tool_approval_request")

    program.send(
        type="tool_approval_response",
        call_id=document["call_id"],
        allowed=True,
        grant="bash(make x)",
    )

    assert "does not cover this call" in program.until("error")["reason"]
    assert not (tmp_path / "a.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [{}, {"rule_set": ["bash(touch one)", "bash(touch two)"]}]
)
def test_an_approval_grants_all_rules_of_a_compound_call_together(
    start_program: StartProgram, tmp_path: Path, chosen: dict[str, list[str]]
) -> None:
    makes = call("bash", command="touch one; touch two")
    program = start_program(makes, makes, {"text": "Done."})
    program.send(type="user_message", text="Make them.")
    document = program.until("tool_approval_request")
    answer = {"call_id": document["call_id"], "allowed": True, "grant": "always"}

    program.send(type="tool_approval_response", **answer, rule_set=["bash(touch one)"])
    reason = program.until("error")["reason"]
    program.send(type="tool_approval_response", **answer, **chosen)
    program.until("result")

    assert program.end() == 0
    assert (document["rules"], document["rule_set"]) == (
        [],
        ["bash(touch one)", "bash(touch two)"],
    )
    assert "does not cover this call" in reason
    assert program.kinds().count("tool_approval_request") == 1
    assert (tmp_path / "two").exists()


@pytest.mark.slow
def test_each_message_starts_a_turn_with_its_own_result(
    start_program: StartProgram,
) -> None:
    program = start_program({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    program.send(type="user_message", text="a", client_key="k")
    program.send(type="user_message", text="a", client_key="k")
    program.send('{"type": "user", "message": {"role": "user", "content": "b"}}')
    program.send(json.dumps(
        {"type": "user", "message": {"content": [{"type": "text", "text": "c"}]}}
    ))  # fmt: skip

    assert program.end() == 0
    results = [d["text"] for d in program.seen if d["type"] == "result"]
    assert results == ["One.", "Two.", "Three."]


@pytest.mark.slow
def test_a_message_and_a_compact_order_sent_at_once_are_both_executed(
    start_program: StartProgram,
) -> None:
    program = start_program({"text": "One."}, {"text": "Two."}, {"text": "What was said."})
    program.send(type="user_message", text="a")
    program.until("result")
    program.send('{"type": "user_message", "text": "b"}\n{"type": "compact"}')

    assert program.end() == 0
    assert [d["text"] for d in program.seen if d["type"] == "result"] == ["One.", "Two."]
    assert program.kinds().count("compact") == 1


@pytest.mark.slow
def test_invalid_lines_are_errors_with_line_number_and_later_lines_work(
    start_program: StartProgram,
) -> None:
    program = start_program({"text": "One."})
    for line in (
        "{",
        '{"type": "shout"}',
        '{"type": "user_message", "texd": "a"}',
        "\xff[]",
    ):
        program.send(line)
    program.send(type="set_mode", mode="yes")
    program.send(type="continue")
    program.send(type="user_message", text="a")
    program.until("result")

    assert program.end() == 0
    errors = [d for d in program.seen if d["type"] == "error"]
    assert [d["line"] for d in errors] == [1, 2, 3, 4, 5, 6]
    assert all(d["reason"].startswith(f"line {d['line']} of stdin: ") for d in errors)


@pytest.mark.slow
def test_a_run_with_invalid_input_only_ends_with_a_failed_result(
    start_program: StartProgram,
) -> None:
    program = start_program({"text": "One."})
    program.send(type="user_message", text=" ")
    program.send('{"type": "user_mess')

    assert program.end() == 1
    assert program.kinds() == ["system", "error", "error", "result"]
    document = program.seen[-1]
    assert (document["outcome"], document["reason"]) == (
        "failed", "line 1 of stdin: it contains no text",
    )  # fmt: skip


@pytest.mark.slow
def test_an_interrupt_order_replaces_the_turn_with_a_new_message(
    start_program: StartProgram,
) -> None:
    wait = call("bash", command="sleep 30")
    program = start_program(wait, {"text": "As you like."}, flags=("--yolo",))
    program.send(type="user_message", text="wait")
    program.until("tool_approval_result")
    program.send(type="interrupt", instead="be short")
    stopped = program.until("result")
    result = program.until("result")

    assert program.end() == 0
    assert (stopped["outcome"], result["text"]) == ("interrupted", "As you like.")


@pytest.mark.slow
def test_a_signal_ends_the_program_while_an_approval_is_pending(
    start_program: StartProgram,
) -> None:
    program = start_program(WRITE)
    program.send(type="user_message", text="write")
    program.until("tool_approval_request")
    program.process.send_signal(signal.SIGTERM)
    result = program.until("result")

    assert (program.process.wait(60), result["outcome"]) == (130, "interrupted")


@pytest.mark.slow
def test_timeout_flag_ends_a_session_while_an_approval_is_pending(
    start_program: StartProgram,
) -> None:
    program = start_program(WRITE, flags=("--timeout", "0.5"))
    program.send(type="user_message", text="write")
    result = program.until("result")

    assert (program.process.wait(60), result["reason"]) == (3, "out of time")


def test_stream_json_input_requires_stream_json_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["-p", "Hi", "--input-format", "stream-json"]) == 1
    assert "add --output-format stream-json" in capfd.readouterr().err


@pytest.mark.parametrize(
    "content", [[{"type": "image", "source": {}}], [{"type": "text", "text": 7}], 7]
)
def test_a_user_message_with_unsupported_content_is_refused(content: object) -> None:
    line = msgspec.json.encode({"type": "user", "message": {"content": content}})

    with pytest.raises(BadInput):
        parse_order(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"type": "qeue", "text": "x"}, "no type 'qeue'; did you mean 'queue'?"),
        ({"type": "compact", "kind": "prun"}, "no kind 'prun'; did you mean 'prune'?"),
        ({"type": "compact", "kind": "x"}, "no kind 'x'; there are prune, full"),
        ({"type": "user_message", "text": "x", "when": "x"}, "Invalid enum value 'x'"),
        (msgspec.Raw(b'{"type":"cancel","type":"continue"}'), "Invalid value 'continue'"),
    ],
)
def test_an_unknown_order_is_refused_with_the_nearest_name(
    line: object, message: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        parse_order(msgspec.json.encode(line))


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "queue", "text": "a", "text": "b"}',
        b'{"type": "queue", "text": "a", "text": "\\ud83d"}',
        b'{"type": "queue", "text": "a", "t\\u0065xt": "b"}',
    ],
)
def test_an_order_with_a_duplicate_key_is_refused(line: bytes) -> None:
    with pytest.raises(BadInput, match="the key 'text' stands twice in it"):
        parse_order(line)


def test_a_byte_order_mark_before_an_order_is_ignored() -> None:
    assert parse_order(b'\xef\xbb\xbf{"type": "queue", "text": "x"}') == Queue("x")


def test_a_lone_surrogate_in_a_message_is_replaced() -> None:
    order = parse_order(b'{"type": "user_message", "text": "\\ud83d! \\ud83d\\ude00"}')

    assert order == SendMessage("\ufffd! \U0001f600")


def test_the_stream_page_documents_exactly_the_orders_and_their_fields() -> None:
    page = (ROOT / "docs/reference/stream.md").read_text(encoding="utf-8")
    table = page.split("## Over stdio")[1].split("##")[0]
    rows = re.findall(
        r"^\| `([a-z_]+)` \| (.*?) ?\|", table.split("|---|---|---|")[1], re.MULTILINE
    )

    data = {kind: set(re.findall(r"`([a-z_]+)`", fields)) for kind, fields in rows}

    assert data == {
        str(kind.__struct_config__.tag): set(kind.__struct_fields__) - {"client_key", "by"}
        for kind in get_args(Order)
    }
    assert "`client_key`" in page  # every order has one


def test_the_stream_page_documents_every_field_of_a_request() -> None:
    page = (ROOT / "docs/reference/stream.md").read_text(encoding="utf-8")
    fields = {*ToolApprovalRequest.__struct_fields__, *Question.__struct_fields__} - {"seq"}

    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
