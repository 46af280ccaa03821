"""What users report of programs of this kind, in our own words: none of it happens here.

Each kind of report is a test, here or elsewhere: `ELSEWHERE` names those.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold import Agent
from refold.engine.policies.conversation import converse
from refold.engine.world import World
from refold.journal.events.kinds import Ended
from refold.journal.store.port import MemoryStore
from refold.testing.providers import Reply, ScriptedProvider
from refold.testing.wire_answers import SSE, WireName, answer
from refold.testing.wire_server import Answer
from tests.cli.running import command, script
from tests.engine.house import converse_once, world
from tests.provider.wires import open_wire

ELSEWHERE = {
    "encodings of older files": "tools/test_legacy_encodings.py::test_every_tool_keeps_encoding_byte",
    "an encoding that changes": "tools/test_legacy_encodings.py::test_write_file_reports_that_the",
    "one bad image": "provider/test_image_fallback.py::test_refused_image_is_left_out_and_later",
    "what a command leaves running": "place/test_commands.py::test_a_command_returns_although_a",
    "a hook with a child": "hooks/test_hook_sessions.py::test_a_hook_ends_with_its_process_while",
    "a tool with a bad schema": "mcp/test_answer_repair.py::test_an_invalid_tool_schema_is_kept",
    "a schema that is refused": "mcp/test_portable_schema.py::test_alternatives_and_references_at",
    "tools that come later": "mcp/test_mcp_sessions.py::test_a_tool_added_while_its_server_is",
    "an unknown part of a result": "mcp/test_answer_repair.py::test_an_unknown_part_of_a_result",
    "arguments that are nearly JSON, ends without a reason, faults in the middle, empty answers, forms "
    "of event streams": "provider/test_deviations.py::test_each_deviation_is_accepted_retried_or_reported_as_listed",
    "words for an overflow": "provider/test_context_overflow.py::test_overflow_is_recognized_by_the",
    "think tags": "provider/test_think_tags.py::test_think_tags_are_found_wherever_the_text",
    "files that git ignores": "tools/test_find.py::test_git_excludes_of_the_user_and_of_the_clone_apply",
    "the end of a torn journal": "journal/test_lost_blocks.py::test_with_any_subset_of_unsynced",
    "two programs in one session": "journal/test_writer_lock.py::test_a_second_writer_is_refused_while",
    "front matter of skills": "skills/test_front_matter.py::test_front_matter_values_are_parsed",
    "emoji of unsure width": "terminal/test_capabilities.py::test_status_has_no_emoji_whose_width",
    "certificates of a company": "provider/test_peer_tls.py::test_certificate_file_variable_makes",
    "a prompt that stays too long": "engine/test_compaction.py::test_second_refusal_as_too_long_ends",
    "history over a compaction": "provider/test_history_validity.py::test_compacted_conversation_is_a_valid_request",
    "imports in instructions": "prompts/test_instructions.py::test_import_cycles_are_reported",
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_each_kind_of_report_has_a_test(kind: str) -> None:
    file, _, begin = ELSEWHERE[kind].partition("::")

    assert f"def {begin}" in (Path(__file__).parent / file).read_text()


Call = tuple[str, dict[str, Any]]


def run_calls(directory: Path, *calls: Call) -> list[Ended]:
    """Return what the calls of one turn give, without a question."""
    lines = [[(tool, json.dumps(arguments))] for tool, arguments in calls]
    agent = Agent(
        provider=ScriptedProvider(*lines, "Done."), directory=directory, mode="bypass"
    )

    async def scenario() -> list[Ended]:
        async with agent.session() as session:
            await session.run("Go.")
            entries = await session.reports.entries()
            return [e.event for e in entries if isinstance(e.event, Ended)]

    return anyio.run(scenario)


def edit(path: str, old: str, new: str) -> list[Call]:
    return [
        ("read_file", {"path": path}),
        ("edit_file", {"path": path, "old": old, "new": new}),
    ]


def patch(path: str, *lines: str) -> list[Call]:
    text = "\n".join(
        ("*** Begin Patch", f"*** Update File: {path}", "@@", *lines, "*** End Patch")
    )
    return [("read_file", {"path": path}), ("apply_patch", {"patch": text})]


def write(path: str, content: str) -> list[Call]:
    return [
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": content}),
    ]


@pytest.mark.parametrize(
    ("before", "calls", "after"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", edit("f", "one\ntwo", "one\nhalf\n2"),
         b"\xef\xbb\xbfone\r\nhalf\r\n2\r\n"),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", patch("f", "-one", "+1", " two"), b"\xef\xbb\xbf1\r\ntwo\r\n"),
        (b"\xef\xbb\xbfone\r\n", write("f", "1\n2\n"), b"\xef\xbb\xbf1\r\n2\r\n"),
        (b"\xff\xfea\x00\r\x00\n\x00", edit("f", "a", "\xfc"), b"\xff\xfe\xfc\x00\r\x00\n\x00"),
        (b"\xfe\xff\x00a\x00\n", edit("f", "a", "\u65e5"), b"\xfe\xff\x65\xe5\x00\n"),
        (b"one\r\ntwo\nthree\r\n", edit("f", "two", "2"), b"one\r\n2\nthree\r\n"),
        (b"one\r\ntwo", edit("f", "two", "2"), b"one\r\n2"),
        (b"one\ntwo", patch("f", "-one", "+1", " two"), b"1\ntwo"),
        (b"all:\n\tcc a.c  \n", edit("f", "\tcc a.c", "\tcc b.c"), b"all:\n\tcc b.c  \n"),
    ],
)  # fmt: skip
def test_an_edit_keeps_byte_order_mark_line_ends_and_other_text(
    tmp_path: Path, before: bytes, calls: Sequence[Call], after: bytes
) -> None:
    (tmp_path / "f").write_bytes(before)

    outcomes = [end.outcome for end in run_calls(tmp_path, *calls)]

    assert (outcomes, (tmp_path / "f").read_bytes()) == (["done"] * len(calls), after)


def test_utf_16_without_a_byte_order_mark_is_not_overwritten(tmp_path: Path) -> None:
    content = "ab\r\n".encode("utf-16-le")
    (tmp_path / "f").write_bytes(content)

    read, result = run_calls(tmp_path, *write("f", "x"))

    assert (read.outcome, result.outcome) == ("failed", "failed")
    assert "binary data" in read.text
    assert (tmp_path / "f").read_bytes() == content


def test_a_file_with_any_name_can_be_read_by_its_listed_name(
    tmp_path: Path,
) -> None:
    names = [
        b"a b.txt", b"it's.txt", b'q"u.txt', b"new\nline.txt", b"-rf", b"$(touch pwned).txt",
        b"star*.txt", b"[ab].txt", "e\u0301.txt".encode(), "\u00e9.txt".encode(),
        "\u202egnp.txt".encode(), b"bad\xff.txt",
    ]  # fmt: skip
    directory = os.fsencode(tmp_path)
    for name in names:
        Path(os.fsdecode(directory + b"/" + name)).write_text("needle\n")
    used = {b"new\nline.txt": "new\\nline.txt", b"bad\xff.txt": "bad\\xff.txt", b"-rf": "-rf",
            "e\u0301.txt".encode(): "e\u0301.txt"}  # fmt: skip
    edits = [call for name in used.values() for call in edit(name, "needle", "pin")]

    result, *changed = run_calls(
        tmp_path, ("grep", {"pattern": "needle", "files_only": True}), *edits
    )

    assert "12 files" in result.text
    assert "\\u202egnp.txt" in result.text
    assert {end.outcome for end in changed} == {"done"}
    texts = {name: Path(os.fsdecode(directory + b"/" + name)).read_text() for name in names}
    assert {name for name, text in texts.items() if text == "pin\n"} == set(used)
    assert not (tmp_path / "pwned").exists()


def test_a_file_url_as_path_creates_no_folder(tmp_path: Path) -> None:
    write_there = ("write_file", {"path": f"file://{tmp_path}/b.txt", "content": "x\n"})

    (end,) = run_calls(tmp_path, write_there)

    assert {path.name for path in tmp_path.iterdir()} <= {"b.txt"}
    assert (end.outcome == "done") == (tmp_path / "b.txt").exists()


def test_an_edited_notebook_stays_valid_and_a_broken_notebook_is_text(
    tmp_path: Path,
) -> None:
    cells: list[dict[str, Any]] = [{"cell_type": "code", "id": "a1", "metadata": {}, "outputs": [], "execution_count": 3,
              "source": ["x = 1"]},
             {"cell_type": "markdown", "metadata": {}, "source": ["# Old"]}]  # fmt: skip
    book: dict[str, Any] = {
        "cells": cells,
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    (tmp_path / "n.ipynb").write_text(json.dumps(book, indent=1) + "\n")
    (tmp_path / "broken.ipynb").write_text("{not json")

    _, changed, broken = run_calls(
        tmp_path,
        ("read_file", {"path": "n.ipynb"}),
        ("notebook_edit", {"path": "n.ipynb", "cell": 2, "source": "# New"}),
        ("read_file", {"path": "broken.ipynb"}),
    )

    cells[1]["source"] = ["# New"]
    assert (changed.outcome, "{not json" in broken.text) == ("done", True)
    assert (tmp_path / "n.ipynb").read_text() == json.dumps(book, indent=1) + "\n"


def test_links_are_searched_once_and_edits_change_their_target(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("needle\n")
    (tmp_path / "link.txt").symlink_to("m.txt")
    (tmp_path / "gone.txt").symlink_to("nothing")
    (tmp_path / "itself").symlink_to(".")

    result, outcome, *_ = run_calls(
        tmp_path, ("grep", {"pattern": "needle", "files_only": True}),
        ("read_file", {"path": "gone.txt"}), *edit("link.txt", "needle", "pin"),
    )  # fmt: skip

    assert "in 1 file" in result.text
    assert (outcome.outcome, "no such file" in outcome.text) == ("failed", True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "m.txt").read_text() == "pin\n"


@pytest.mark.slow
def test_a_program_that_reads_stdin_gets_end_of_file(tmp_path: Path) -> None:
    waiting = ["read -p 'Password: ' x; echo got=$x", "cat", "python3",
               "python3 -c 'import getpass; print(getpass.getpass())'"]  # fmt: skip
    shell = ["cat <<'EOF'\n  $HOME `x`\nEOF", "echo a \\", "echo 'open"]
    commands = [("bash", {"command": text, "timeout": 20}) for text in (*waiting, *shell)]

    result = run_calls(tmp_path, *commands)

    assert not any("20 s" in end.text for end in result)
    here, line, quote = (end.text for end in result[-3:])
    assert ("$HOME `x`" in here, line[:1], "exit code 2" in quote) == (True, "a", True)


def test_a_call_of_an_unknown_tool_fails_with_a_list_of_tools(
    tmp_path: Path,
) -> None:
    result = run_calls(tmp_path, ("Bash", {}), ("functions.bash", {}), ("", {}))

    assert [end.outcome for end in result] == ["failed"] * 3
    assert all("The tools are: " in end.text for end in result)


# --- servers of models

Chunk = dict[str, Any]


def piece(name: str = "", arguments: str | None = "", **fields: object) -> Chunk:
    """Return a piece of a call of book."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function, **fields}


def taxi(what: str) -> str:
    return json.dumps({"what": what})


def chat(*deltas: Sequence[Chunk], end: str = "tool_calls") -> Answer:
    events: list[dict[str, Any]] = [
        {"index": 0, "delta": {"tool_calls": list(d)}} for d in deltas
    ]
    events.append({"index": 0, "delta": {}, "finish_reason": end})
    body = b"".join(
        b"data: " + json.dumps({"choices": [e]}).encode() + b"\n\n" for e in events
    )
    return Answer(body + b"data: [DONE]\n\n", headers=SSE)


def list_orders(
    *answers: Answer, wire: WireName = "openai-chat"
) -> tuple[list[str], list[Any]]:
    """The orders of these answers and a last one, and the messages of the last request."""
    orders: list[str] = []

    async def use_session() -> list[Any]:
        async with open_wire(wire, *answers, answer(wire, Reply("Done."))) as (
            provider,
            server,
        ):
            here: World = world(provider, orders, policies=(converse,))
            here = replace(here, model=replace(here.model, provider=provider))
            view = await converse_once(MemoryStore(), here, "Book.")
            assert view.turn.outcome == "answered"
            return json.loads(server.heard[-1].body)["messages"]

    return orders, anyio.run(use_session)


@pytest.mark.parametrize(
    ("value", "orders"),
    [
        (chat([piece("book", index=0, id="a"), piece("book", index=1, id="b")],
              [piece(arguments='{"what":', index=0)], [piece(arguments='{"what":', index=1)],
              [piece(arguments='"one"}', index=0)], [piece(arguments='"two"}', index=1)]),
         ["one", "two"]),
        (chat([piece("book", taxi("one"), index=0, id="a")], [piece("book", taxi("two"), index=0, id="b")]),
         ["one", "two"]),
        (chat([piece("book", taxi("one"))], end="stop"), ["one"]),
        (chat([piece("book", "", index=0, id="a")], [piece("book", taxi("one"), index=0, id="a")]),
         ["one"]),
    ],
    ids=["pieces of two calls", "one index for two calls", "no index", "the name in each piece"],
)  # fmt: skip
def test_streamed_pieces_of_tool_calls_are_joined(value: Answer, orders: list[str]) -> None:
    assert list_orders(value)[0] == orders


def test_tool_calls_are_sent_back_with_unique_short_ids() -> None:
    ids = ("same", "same", "L" * 200, "", "a b/\u00e9")

    orders, messages = list_orders(
        *(chat([piece("book", taxi(i[:1]), index=0, id=i)]) for i in ids)
    )

    result = [
        call["id"] for message in messages for call in message.get("tool_calls") or ()
    ]
    tool_call_ids = [
        message["tool_call_id"] for message in messages if message["role"] == "tool"
    ]
    assert (len(orders), len(set(result)), tool_call_ids) == (5, 5, result)
    assert max(map(len, result)) <= 40


@pytest.mark.parametrize("arguments", ["", None])
def test_missing_call_arguments_are_sent_as_an_empty_object(arguments: str | None) -> None:
    """The tool reports the missing argument, and the call is sent back as the API requires."""
    orders, messages = list_orders(chat([piece("book", arguments, index=0, id="a")]))

    (called,) = (c for m in messages for c in m.get("tool_calls") or ())
    (result,) = (m["content"] for m in messages if m["role"] == "tool")
    assert (orders, json.loads(called["function"]["arguments"])) == ([], {})
    assert "what" in result
    assert "JSON" not in result


def test_a_surrogate_pair_split_over_two_pieces_is_one_character() -> None:
    halves = (
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
        b'data: {"score":NaN,"choices":[{"index":0,"delta":{"content":"\\ude00"},'
        b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )

    async def use_session() -> str:
        async with open_wire("openai-chat", Answer(halves, headers=SSE, then="hang")) as (
            provider,
            _,
        ):
            here: World = world(provider, [], policies=(converse,))
            here = replace(here, model=replace(here.model, provider=provider))
            return (await converse_once(MemoryStore(), here, "Smile.")).turn.answer

    assert anyio.run(use_session) == "\U0001f600"


# --- the machine


def run_refold(
    directory: Path, environ: dict[str, str], before: str = ""
) -> "subprocess.CompletedProcess[bytes]":
    line = f'{before}exec "$@"'
    texts = command(
        "-p",
        "h\u00e9",
        "--script",
        script(directory, {"text": "Gr\u00fc\u00dfe \u65e5\u672c \U0001f600"}),
    )
    return subprocess.run(
        ["bash", "-c", line, "sh", *texts], env={**os.environ, **environ}, cwd=directory,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ",
    [
        {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "gbk"}, {"LC_ALL": "xx_YY.UTF-8"},
        {"TZ": "Bogus/Zone"}, {"COLUMNS": "abc", "LINES": "0"}, {"TERM": ""},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_is_printed_in_any_locale(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    done = run_refold(tmp_path, environ)

    assert (done.returncode, done.stdout.decode().strip()) == (
        0,
        "Gr\u00fc\u00dfe \u65e5\u672c \U0001f600",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("unset HOME REFOLD_HOME ${!XDG_*}; ", "neither HOME nor REFOLD_HOME"),
        (
            "unset REFOLD_HOME ${!XDG_*}; export HOME=work; ",
            "HOME is 'work', which is not an absolute path",
        ),
        ("touch f; export REFOLD_HOME=$PWD/f; ", "cannot be read"),
        ("ulimit -f 1; ", "File too large"),
        ("mkdir gone; cd gone; rmdir ../gone; ", "does not exist any more"),
        ("exec >/dev/full; ", "No space left"),
    ],
)
def test_a_missing_requirement_of_the_machine_is_a_one_sentence_error(
    tmp_path: Path, before: str, words: str
) -> None:
    done = run_refold(tmp_path, {"REFOLD_HOME": str(tmp_path / "home")}, before)

    text = (done.stdout + done.stderr).decode()
    assert (done.returncode, words in text, "Traceback" in text) == (1, True, False)


@pytest.mark.slow
def test_a_session_needs_few_open_files_and_its_files_are_private(tmp_path: Path) -> None:
    home = tmp_path / "home"

    done = run_refold(tmp_path, {"REFOLD_HOME": str(home)}, "umask 0; ulimit -n 24; ")

    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert [
        p
        for p in (home, *home.rglob("*"))
        if p.lstat().st_mode & 0o77 and not p.is_symlink()
    ] == []


@pytest.mark.slow
def test_a_journal_damaged_in_the_middle_is_an_error_with_advice(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run_refold(tmp_path, {"REFOLD_HOME": str(home)}).returncode == 0
    (journal,) = home.rglob("events.jsonl")
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join((*lines[:4], b"\0" * 300, *lines[4:])))

    again = subprocess.run(
        command("-p", "next", "-r", journal.parent.name, "--script", str(tmp_path / "script.jsonl")),
        env={**os.environ, "REFOLD_HOME": str(home)}, cwd=tmp_path, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=60, check=False, text=True,
    )  # fmt: skip

    assert again.returncode == 1
    assert "line 5" in again.stderr
    assert "--fork --at 4" in again.stderr
