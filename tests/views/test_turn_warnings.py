"""Warnings under an answer, from the journal: failed commands, files not written."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from refold.journal.events.kinds import (
    Checkpointed,
    Ended,
    Entry,
    Event,
    Frame,
    HookRan,
    Judged,
    ModelAnswered,
    SessionStarted,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import View, fold
from refold.values.display import Diff, Output
from refold.values.messages import Message, Text, ToolCall
from refold.views.call_summary import result_lines as call_result
from refold.views.notices import hook_notice, warnings
from refold.views.stream_json.encode import documents_of
from refold.views.stream_json.turn_result import result
from refold.views.styled import plain_text


def turn_view(*events: Event, outcome: Any = "answered") -> View:
    whole = [SessionStarted("/w"), TurnStarted(1), *events, TurnEnded(outcome)]
    return fold(Entry(seq, event) for seq, event in enumerate(whole, start=1))


def command_ended(
    command: str, text: str = "", code: int | None = 0, ended: str = ""
) -> Ended:
    return Ended("c", "done", text, (Output(command, text, code, ended),))


PATCH = "*** Begin Patch\n*** Update File: a.md\n*** Add File: sub/b.md\n*** End Patch"
UNIFIED = "--- a/a.md\n+++ b/a.md\t2026\n@@ -1 +1 @@\n-x\n+y\n"


def change_events(
    outcome: Any, text: str = "", *, name: str = "write_file", real: str = "", **fields: str
) -> list[Event]:
    """Return a call of a tool that changes files, as an answer of its own, and its end."""
    arguments = Raw(json.dumps(fields or {"path": "notes.md"}).encode())
    message = Message("assistant", (ToolCall("w", name, arguments),))
    path = str(fields.get("path", "notes.md"))
    real = "/w/a.md" if "patch" in fields else real or f"/w/{path}"
    judged = [Judged("w", "allow", real_path=real)]
    diffs = (Diff(f"/w/{path}", "changed", ""),) if outcome == "done" else ()
    return [ModelAnswered(message), *judged, Started("w"), Ended("w", outcome, text, diffs)]


FULL = "Cannot write notes.md: the disk is full."
CANNOT = f"notes.md was not written: {FULL}"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], []),
        ([command_ended("make")], []),
        ([command_ended("pytest -q", "1 failed", 2)], ["the last command failed with code 2: pytest -q"]),
        ([command_ended("pytest -q", "1 failed", 1), command_ended("ls")], []),
        ([command_ended("ls"), command_ended("pytest -q", "", 1)], ["the last command failed with code 1: pytest -q"]),
        ([command_ended("make\nall", "", 2)], ["the last command failed with code 2: make\\nall"]),
        ([command_ended("npm start", "", None, "it took longer than 60 s")],
         ["the last command was stopped before it was done (it took longer than 60 s): npm start"]),
        ([command_ended("npm start", "", None)], ["the last command was stopped before it was done: npm start"]),
        ([command_ended("x" * 300, "", 3)], [f"the last command failed with code 3: {'x' * 99}…"]),
        # Finding nothing is an answer.
        ([command_ended("grep -r word .", "", 1)], []),
        ([command_ended("cd src; rg word | head", "", 1)], []),
        ([command_ended("test -f a.txt && echo yes", "", 1)], []),
        ([command_ended("diff a b", "< x", 1)], []),
        ([command_ended("grep -q word a; pytest", "", 1)], ["the last command failed with code 1: grep -q word a; pytest"]),
        ([command_ended("grep word nothing", "No such file", 2)], ["the last command failed with code 2: grep word nothing"]),
        ([command_ended("grep -q word a && pytest", "1 failed", 1)],
         ["the last command failed with code 1: grep -q word a && pytest"]),
    ],
)  # fmt: skip
def test_a_turn_warning_names_the_last_command_if_it_failed(
    events: list[Event], expected: list[str]
) -> None:
    assert list(warnings(turn_view(*events))) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (change_events("done"), []),
        (change_events("failed", f"{FULL}\nMore of it."), [CANNOT]),
        (change_events("refused", "Refused. It was not done."), ["notes.md was not written: it was refused"]),
        (change_events("unknown", "Interrupted."), ["notes.md was not written: Interrupted."]),
        (change_events("stopped", "Interrupted while running."), []),
        # Put right later in the turn: by the same tool, by another name, by a command.
        ([*change_events("failed", FULL), *change_events("done")], []),
        ([*change_events("failed", FULL, path="./notes.md", real="/w/notes.md"), *change_events("done")], []),
        ([*change_events("failed", FULL), Checkpointed((), changed=(("/w/notes.md", "created"),))], []),
        ([*change_events("failed", FULL), *change_events("done", path="b.md")], [CANNOT]),
        ([*change_events("done"), *change_events("failed", FULL)], [CANNOT]),
        ([*change_events("failed", "one"), *change_events("failed", FULL)], [CANNOT]),
        (change_events("failed", FULL, name="read_file"), []),
        (change_events("failed", "No.", path="/etc/hosts", real="/etc/hosts"), ["/etc/hosts was not written: No."]),
        (change_events("failed", "It does not fit.", name="apply_patch", patch=PATCH),
         ["a.md was not written: It does not fit.", "sub/b.md was not written: It does not fit."]),
        (change_events("failed", "No.", name="apply_patch", patch=UNIFIED), ["a.md was not written: No."]),
        ([*change_events("failed", "No.", name="apply_patch", patch=PATCH), *change_events("done", path="sub/b.md")],
         ["a.md was not written: No."]),
    ],
)  # fmt: skip
def test_a_turn_warning_names_a_file_that_could_not_be_written(
    events: list[Event], expected: list[str]
) -> None:
    assert list(warnings(turn_view(*events))) == expected


def test_a_turn_warning_names_files_whose_encoding_changed() -> None:
    names = ["a.ini", "sub/b.txt", *(f"{n}.c" for n in range(5))]
    diffs = tuple(
        Diff(f"/w/{name}", "changed", "", recoded="windows-1252 to UTF-8") for name in names
    )

    texts = warnings(
        turn_view(Ended("p", "done", "Wrote.", (*diffs, Diff("/w/c", "changed", ""))))
    )

    assert texts[:2] == (
        "the encoding of a.ini was changed from windows-1252 to UTF-8",
        "the encoding of sub/b.txt was changed from windows-1252 to UTF-8",
    )
    assert texts[5:] == ("the encoding of 2 more files was changed",)


def test_response_warning_is_shown_once_per_turn() -> None:
    warned = ModelAnswered(Message("assistant", (Text("Hi."),)), warning="it saw nothing")

    assert warnings(turn_view(warned, warned)) == ("it saw nothing",)
    assert warnings(turn_view(warned, TurnEnded("answered"), TurnStarted(2))) == ()


def test_a_warning_of_a_response_is_a_notice_in_the_event_stream() -> None:
    warned = ModelAnswered(Message("assistant", (Text("Hi."),)), warning="it saw\nnothing")

    documents = documents_of(Frame(7, 0, Entry(7, warned)), live=False)

    answer, notice = map(msgspec.to_builtins, documents)
    assert answer["type"] == "assistant_message"
    assert notice == {"type": "notice", "seq": 7, "text": "it saw\\nnothing"}


def test_turn_warnings_name_only_some_of_many_unwritten_files() -> None:
    events = [e for n in range(60) for e in change_events("failed", "No.", path=f"{n}.md")]

    texts = warnings(turn_view(*events))

    assert texts[:1] == ("10.md was not written: No.",)  # of the newest fifty
    assert texts[5:] == ("45 more files were not written",)


def test_a_failed_write_with_invalid_arguments_adds_no_warning() -> None:
    message = Message("assistant", (ToolCall("w", "write_file", Raw(b"[1")),))

    assert (
        warnings(turn_view(ModelAnswered(message), Ended("w", "failed", "No object.")))
        == ()
    )


@pytest.mark.parametrize("outcome", ["interrupted", "cancelled", "plan_ready"])
def test_interrupted_and_planned_turns_have_no_warnings(outcome: str) -> None:
    assert (
        warnings(
            turn_view(
                command_ended("make", "", 2),
                *change_events("failed", FULL),
                outcome=outcome,
            )
        )
        == ()
    )


def test_a_new_turn_begins_without_the_warnings_of_the_previous_turn() -> None:
    view = turn_view(
        command_ended("make", "", 2),
        *change_events("failed", FULL),
        TurnEnded("answered"),
        TurnStarted(4),
    )

    assert warnings(view) == ()


def test_the_screen_and_the_result_document_have_the_same_warnings() -> None:
    answer = ModelAnswered(Message("assistant", (Text("All is well."),)))
    view = turn_view(
        command_ended("make \x1b[31m", "", 2), *change_events("failed", FULL), answer
    )

    document_warnings = list(result(view, "s", 1.0).warnings)

    assert document_warnings == list(warnings(view))
    assert "\x1b" not in str(document_warnings)


def test_each_hook_that_failed_in_the_turn_is_named_once() -> None:
    broken = HookRan("PreToolUse", "guard", outcome="failed", reason="it\nbroke")
    other = HookRan("Stop", "x" * 200, outcome="failed", reason="late")

    view = turn_view(broken, broken, HookRan("Stop", "fine"), other, outcome="plan_ready")

    assert result(view, "s", 0.0).warnings == [
        "the PreToolUse hook `guard` failed: it\\nbroke",
        f"the Stop hook `{'x' * 39}…` failed: late",
    ]
    assert warnings(view) == ()  # a screen has shown the notice of each
    later = fold(
        Entry(seq, event)
        for seq, event in enumerate(
            [
                SessionStarted("/w"),
                TurnStarted(1),
                broken,
                TurnEnded("answered"),
                TurnStarted(5),
            ],
            1,
        )
    )
    assert result(later, "s", 0.0).warnings == []


def test_a_hook_that_refuses_a_call_is_shown_only_with_the_call() -> None:
    no = HookRan("PreToolUse", "guard", outcome="blocked", reason="no")
    message = HookRan("UserPromptSubmit", "guard", outcome="blocked", reason="no")

    assert hook_notice(no) == ""
    assert hook_notice(replace(no, notice="Look.")) == "The PreToolUse hook `guard`: Look."
    assert hook_notice(message) == "The UserPromptSubmit hook `guard` blocked: no"
    end = Ended("c", "refused", "Refused.")
    assert plain_text(call_result(end, 80, denial="the hook `guard`: no")) == (
        "refused by the hook `guard`: no"
    )
    assert plain_text(call_result(end, 80, denial="a rule")) == "refused: a rule"
