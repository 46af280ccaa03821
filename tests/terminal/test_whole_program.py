"""A person's day with the whole program: real processes, a real terminal, real files.

Only the model is a script. What is looked at is the paper: everything that stands above
the screen and on it when the program has exited, line by line. So nothing may stand there
twice, no status line may have stayed, and no piece of an escape code.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
PROGRAM = STAGE.with_name("stage_program.py")
HELLO = 'def greet():\n    return "hi"\n\nprint(greet())\n'
# Texts that differ from run to run, and their names below.
VARIES = (
    (r"\d{8}-\d{6}-[a-z0-9]{4}", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "WHEN"),
    (r"\b[\d.]+k? in · .* s$", "FIGURES"),
    (r"^\d+\.\d s$", "SECONDS"),
)
READ = {"tool": "read_file", "arguments": {"path": "hello.py"}}
EDIT = {
    "tool": "edit_file",
    "arguments": {"path": "hello.py", "old": '"hi"', "new": '"hello"'},
}
WAIT = {"tool": "bash", "arguments": {"command": "touch begun; echo begun; sleep 30"}}
ASK_EDIT = """\
? Edit hello.py?
  +1 -1 lines
  1  def greet():
  2 -    return "hi"
  2 +    return "hello"
  3
  4  print(greet())"""
EDITED = """\
  └ changed hello.py +1 -1"""

pytestmark = pytest.mark.slow


class Person:
    """A user in a directory of their own, who starts refold and other programs."""

    def __init__(self, directory: Path, compiled: Path) -> None:
        self.here, self._compiled = directory, compiled
        self.started: list[Terminal] = []

    def starts(self, *arguments: str, size: tuple[int, int] = (30, 100)) -> Terminal:
        return self._open_terminal(PROGRAM, *arguments, size=size)

    def answers(self, *lines: dict[str, object]) -> Sequence[str]:
        """Return the flags with which a model says these."""
        (self.here / "answers.jsonl").write_bytes(
            b"\n".join(msgspec.json.encode(line) for line in lines)
        )
        return ("--script", "answers.jsonl")

    def runs(self, *arguments: str) -> list[str]:
        """Return what `refold` prints in a terminal for this command line."""
        terminal = self.starts(*arguments)

        assert terminal.end() == 0, terminal.text
        return self.paper(terminal)

    def shell(self, line: str) -> list[str]:
        """Return what a line of the shell leaves on the screen. There, refold is `refold`."""
        place = self.here / "bin"
        place.mkdir(exist_ok=True)
        (place / "refold").write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
        (place / "refold").chmod(0o755)
        path = f"{place}:{os.environ['PATH']}"
        terminal = self._open_terminal(Path("/bin/bash"), "-c", line, PATH=path)

        assert terminal.end() == 0, terminal.text
        return self.paper(terminal)

    def paper(self, terminal: Terminal) -> list[str]:
        """Return the paper, with a name for whatever differs from run to run."""
        return [
            with_placeholders(row.replace(str(self.here), "HERE")) for row in terminal.paper
        ]

    def _open_terminal(
        self, program: Path, *arguments: str, size: tuple[int, int] = (30, 100), **env: str
    ) -> Terminal:
        terminal = Terminal(
            program,
            *arguments,
            directory=self.here,
            size=size,
            compiled=self._compiled,
            **env,
        )
        self.started.append(terminal)
        return terminal


@pytest.fixture
def person(tmp_path_factory: pytest.TempPathFactory, compiled: Path) -> Iterator[Person]:
    here = tmp_path_factory.mktemp("w")  # a short name: it stands in a line of the screen
    (here / "hello.py").write_text(HELLO, encoding="utf-8")
    person = Person(here, compiled)
    yield person
    for terminal in person.started:
        terminal.child.close(force=True)


def with_placeholders(row: str) -> str:
    for pattern, name in VARIES:
        row = re.sub(pattern, name, row)
    return row


def body_lines(paper: Sequence[str]) -> list[str]:
    """Without the line that names the directory, and what it says to a new user."""
    assert paper[0] == "refold · script/answers.jsonl · HERE"
    start = 2 if paper[1].startswith("/help lists") else 1
    return list(paper[start:])


def events(at: int = -1) -> list[dict[str, Any]]:
    """Return the journal of a session as it lies on the disk; the newest is the last."""
    sessions = Path(os.environ["REFOLD_HOME"]) / "sessions"
    paths = sorted(sessions.glob("*/events.jsonl"), key=lambda path: path.stat().st_ctime)
    return [msgspec.json.decode(line) for line in paths[at].read_bytes().splitlines()]


def list_messages(at: int) -> list[str]:
    """Return the messages to a model, in the order of the sessions."""
    return [e["data"]["text"] for e in events(at) if e["kind"] == "Said"]


def test_the_first_run_offers_available_providers_and_the_tour(person: Person) -> None:
    terminal = person.starts()
    terminal.choose("a guided tour")
    terminal.until("Enter begins, q leaves")
    terminal.type(ENTER)
    terminal.answer("y")
    terminal.until("May bash run this?")
    terminal.answer("y")
    terminal.until("Enter shows the journal, q leaves")
    terminal.type(ENTER)
    terminal.until("That was the tour.")

    assert terminal.end() == 0
    paper = person.paper(terminal)
    assert paper[:2] == [
        "Welcome to refold.",
        "No model is configured yet. Which one do you want to use?",
    ]
    assert "Hello, you!" in "\n".join(paper)
    once = [
        "I will read the file first.",
        "$nam is set nowhere; the name is in $name.",
        "? Edit greet.sh?",
        "? May bash run this?",
        "It says Hello, you! The name of the variable was wrong.",
        "The journal is kept",
    ]
    assert [row for row in paper if row in once] == once
    assert not [row for row in paper if "Enter begins" in row or "1 once" in row]


def test_an_approved_edit_is_shown_with_its_diff_and_its_result(person: Person) -> None:
    script = person.answers(
        {"text": "I read it **first**.", "calls": [READ]},
        {"calls": [EDIT]},
        {"text": "- `hello.py` now says hello\n"},
    )
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("say hello, not hi" + ENTER)
    terminal.answer("y")
    terminal.until("now says hello\n")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    assert body_lines(person.paper(terminal)) == [
        "",
        "› say hello, not hi",
        "",
        "I read it first.",
        "",
        "● read_file hello.py",
        "  └ read hello.py, 4 lines",
        "",
        *ASK_EDIT.split("\n"),
        "  └ yes, once",
        "  └ changed hello.py +1 -1",
        "",
        "• hello.py now says hello",
        "",
        with_placeholders("40 in · 151 out · 3.5 s"),
        "",
        "› /quit",
        "To resume: refold -c   (or refold -r ID)",
    ]
    assert (person.here / "hello.py").read_text() == HELLO.replace('"hi"', '"hello"')


def test_one_edit_is_approved_and_one_refused_with_a_reason(person: Person) -> None:
    second = {"path": "hello.py", "old": "print(greet())", "new": ""}
    script = person.answers(
        {"text": "I read it first.", "calls": [READ]},
        {"calls": [EDIT]},
        {"calls": [{"tool": "edit_file", "arguments": second}]},
        {"text": "Done, and the last line stays."},
    )
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("say hello, not hi" + ENTER)
    terminal.answer("y")
    terminal.until("changed hello.py")
    terminal.answer("n")
    terminal.until("why not?")
    terminal.type("I want to see the output" + ENTER)
    terminal.until("the last line stays")
    terminal.wait_for_prompt()
    terminal.type("/quit" + ENTER)

    assert terminal.end() == 0
    rows = body_lines(person.paper(terminal))
    assert "  └ no: I want to see the output" in rows
    assert rows[rows.index("  4 -print(greet())") + 1] == "  4 +"
    assert (person.here / "hello.py").read_text() == HELLO.replace('"hi"', '"hello"')
    texts = [
        e["data"]["text"]
        for e in events()
        if e["kind"] == "Ended" and e["data"]["outcome"] == "refused"
    ]
    assert len(texts) == 1
    assert "I want to see the output" in texts[0]


def test_after_ctrl_c_a_new_message_redirects_the_work(person: Person) -> None:
    script = person.answers(
        {
            "text": "I rewrite all of it, from the first file to the last. " * 9,
            "pause": 0.05,
        },
        {"text": "Only `hello.py`, then."},
    )
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("tidy up" + ENTER)
    terminal.until("I rewrite all")
    terminal.type(CTRL_C)
    terminal.until("instead.\n\n›")
    terminal.type("only the hello file" + ENTER)
    terminal.until("Only hello.py, then.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    rows = body_lines(person.paper(terminal))
    began = "I rewrite all of it, from the first file to the last. " * 9
    text = " ".join(rows[3 : rows.index("stopped") - 1])
    assert text
    assert began.startswith(text)
    assert rows[:3] == ["", "› tidy up", ""]
    assert rows[rows.index("stopped") :] == [
        "stopped",
        "SECONDS",
        "Type what to do instead.",
        "",
        "› only the hello file",
        "",
        "Only hello.py, then.",
        "",
        "FIGURES",
        "",
        "›",
        "To resume: refold -c   (or refold -r ID)",
    ]


def test_a_plan_is_approved_and_carried_out(person: Person) -> None:
    plan = {"title": "A friendlier hello", "plan": "1. Read `hello.py`\n2. Say hello"}
    script = person.answers(
        {"calls": [{"tool": "exit_plan_mode", "arguments": plan}]},
        {"calls": [READ]},
        {"calls": [EDIT]},
        {"text": "Carried out."},
    )
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("/plan be friendly" + ENTER)
    terminal.answer("y")
    terminal.until("approved, in mode")
    terminal.answer("y")
    terminal.until("Carried out.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    expected = f"""\

› /plan be friendly
plan: only read-only calls; the model makes a plan for you to approve

● exit_plan_mode A friendlier hello

FIGURES

? The plan: A friendlier hello

1. Read hello.py
2. Say hello

  └ approved, in mode default

› The plan is approved. Carry it out.

● read_file hello.py
  └ read hello.py, 4 lines

{ASK_EDIT}
  └ yes, once
{EDITED}

Carried out.

FIGURES

›
To resume: refold -c   (or refold -r ID)"""
    assert body_lines(person.paper(terminal)) == expected.split("\n")


def test_after_a_kill_during_a_command_resume_warns_that_it_may_have_taken_effect(
    person: Person,
) -> None:
    script = person.answers({"text": "I start it.", "calls": [WAIT]})
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("start the server" + ENTER)
    terminal.answer("y")
    terminal.wait_for_path(person.here / "begun")
    terminal.until("running")
    terminal.child.kill(signal.SIGKILL)
    assert terminal.end() == -signal.SIGKILL

    (person.here / "begun").unlink()
    terminal = person.starts("-c", *person.answers({"text": "I would look first."}))
    terminal.until("Ctrl+C ends it")
    terminal.wait_for_prompt()
    terminal.type(ENTER)
    terminal.until("I would look first.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    expected = """\

› start the server

I start it.

This turn was cut off:
  ● bash touch begun; echo begun; sleep 30  was running; it may or may not have taken effect
Enter continues it · a message is sent with it · Ctrl+C ends it

›

● bash touch begun; echo begun; sleep 30
  └ Interrupted. It may have taken effect: check before repeating it.

I would look first.

FIGURES

›
To resume: refold -c   (or refold -r ID)"""
    assert body_lines(person.paper(terminal)) == expected.split("\n")
    assert not (person.here / "begun").exists()  # it was not done again


def test_after_a_kill_at_a_question_resume_asks_it_again(person: Person) -> None:
    script = person.answers({"calls": [READ]}, {"calls": [EDIT]})
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("be friendly" + ENTER)
    terminal.until("› 1 once")
    terminal.child.kill(signal.SIGKILL)
    assert terminal.end() == -signal.SIGKILL

    terminal = person.starts("-c", *person.answers({"text": "Done."}))
    terminal.answer("y")
    terminal.until("Done.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    rows = body_lines(person.paper(terminal))
    expected = f"""\
Continuing the interrupted turn.

{ASK_EDIT}
  └ yes, once
{EDITED}

Done.

FIGURES

›
To resume: refold -c   (or refold -r ID)"""
    assert rows[rows.index("Continuing the interrupted turn.") :] == expected.split("\n")
    assert (person.here / "hello.py").read_text() == HELLO.replace('"hi"', '"hello"')


def test_a_fork_continues_and_the_original_session_stays_unchanged(person: Person) -> None:
    script = person.answers({"text": "One."})
    person.runs("-p", "first words", *script)
    script = person.answers({"text": "Two."})
    terminal = person.starts("-c", "--fork", *script)
    terminal.wait_for_prompt()
    terminal.type("and in the copy" + ENTER)
    terminal.until("Two.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    paper = person.paper(terminal)
    assert paper[0] == "ID: forked from ID at event 8"
    assert body_lines(paper[1:]) == [
        "",
        "› first words",
        "",
        "One.",
        "",
        "FIGURES",
        "",
        "Forked from session ID at event 8. The original is unchanged.",
        "",
        "› and in the copy",
        "",
        "Two.",
        "",
        "FIGURES",
        "",
        "›",
        "To resume: refold -c   (or refold -r ID)",
    ]
    assert person.runs("sessions", "list") == [
        "ID  WHEN  answered     first words (fork)",
        "ID  WHEN  answered     first words",
    ]
    first, copy = (list_messages(terminal) for terminal in (0, 1))
    assert first == ["first words"]
    assert copy == ["first words", "and in the copy"]


def test_an_old_session_is_found_by_search_and_resumed(person: Person) -> None:
    for words, text in (
        ("mend the roof", "The gutter leaks behind the third tile."),
        ("paint the door", "It is green now."),
    ):
        person.runs("-p", words, *person.answers({"text": text}))
    shell = person.shell("refold sessions search leak* tile")
    terminal = person.starts("-r", *person.answers({"text": "The third one."}))
    terminal.until("mend the roof")
    terminal.type("gutter")
    terminal.wait_until_gone("paint the door")
    terminal.until("mend the roof")
    terminal.type(ENTER)
    terminal.wait_for_prompt()
    terminal.type("which tile was it?" + ENTER)
    terminal.until("The third one.")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert shell == [
        "ID  WHEN  answered     mend the roof",
        "       7  model  The gutter leaks behind the third tile.",
    ]
    assert body_lines(person.paper(terminal)) == [
        "",
        "› mend the roof",
        "",
        "The gutter leaks behind the third tile.",
        "",
        "FIGURES",
        "",
        "› which tile was it?",
        "",
        "The third one.",
        "",
        "FIGURES",
        "",
        "›",
        "To resume: refold -c   (or refold -r ID)",
    ]


def test_headless_output_can_be_piped_to_other_programs(person: Person) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    person.answers({"calls": [READ]}, {"text": "Four lines:\n`hi`"})
    ask = 'refold -p "how long is hello.py?" --script answers.jsonl --output-format'

    text = person.shell(f"{ask} json | jq -r '.outcome, .text'")
    person.answers({"calls": [READ]}, {"text": "Four lines:\n`hi`"})
    calls = person.shell(
        f"{ask} stream-json | jq -c 'select(.type == \"tool_call\") | [.tool, .arguments]'"
    )
    early = person.shell(f"{ask} stream-json | head -n 1 | jq -r .type")

    assert text == ["answered", "Four lines:", "`hi`"]
    assert calls == ['["read_file",{"path":"hello.py"}]']
    assert early == ["system"]


def test_rewind_restores_files_byte_by_byte_and_the_conversation(person: Person) -> None:
    (person.here / "hello.py").write_bytes(HELLO.encode().replace(b"\n", b"\r\n") + b"\xff")
    before = (person.here / "hello.py").read_bytes()
    command = "rm hello.py; printf 'new\\0' > made.bin"
    script = person.answers(
        {"calls": [{"tool": "bash", "arguments": {"command": command}}]}, {"text": "Gone."}
    )
    terminal = person.starts(*script)
    terminal.wait_for_prompt()
    terminal.type("clean up" + ENTER)
    terminal.answer("y")
    terminal.until("Gone.")
    terminal.wait_for_prompt()
    assert not (person.here / "hello.py").exists()
    terminal.type("/rewind" + ENTER)
    terminal.until("› 2")
    terminal.until("restore:")
    terminal.type(ENTER)
    terminal.until("y/n")
    terminal.type("y")
    terminal.until("To undo this:")
    terminal.wait_for_prompt()

    assert (person.here / "hello.py").read_bytes() == before
    assert not (person.here / "made.bin").exists()
    undo = re.search(r"To undo this: (/rewind \d+)", terminal.text)
    assert undo is not None
    terminal.type(undo[1] + ENTER)
    terminal.until("y/n")
    terminal.type("y")
    terminal.until("hello.py  deleted")
    terminal.wait_for_prompt()
    terminal.type("\x04")

    assert terminal.end() == 0
    assert not (person.here / "hello.py").exists()
    assert (person.here / "made.bin").read_bytes() == b"new\0"


@pytest.mark.peer
@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_a_session_exported_as_html_is_displayed_by_a_browser(person: Person) -> None:
    person.runs("-p", "mend <b>the roof</b>", *person.answers({"text": "It is *mended*."}))

    runs = person.runs("sessions", "export", "last", "-o", "talk.html")
    page = person.here / "talk.html"
    text = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
            f"--user-data-dir={person.here / 'profile'}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, timeout=100, check=False,
    ).stdout.decode()  # fmt: skip

    assert re.fullmatch(r"talk.html: 1 session, \d+ events, [\d.]+ kB", "\n".join(runs))
    assert page.stat().st_mode & 0o777 == 0o600
    assert "<em>mended</em>" in text
    assert "mend &lt;b&gt;the roof&lt;/b&gt;" in text


def test_the_session_list_is_truncated_on_a_narrow_screen(person: Person) -> None:
    person.runs("-p", "mend the roof " * 9, *person.answers({"text": "It is mended."}))

    terminal = person.starts("sessions", "list", size=(20, 60))
    menu = person.starts(size=(30, 60))
    menu.until("esc quit")
    rows = menu.text.splitlines()
    menu.type(ESC)

    assert terminal.end() == 0
    assert person.paper(terminal) == ["ID  answered     mend the roof mend the r…"]
    assert menu.end() == 0
    assert any(row.startswith("› 1 an API key  ") for row in rows)
    assert "    and 5 more; stored in a file only you can read" in rows
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize(
    ("command", "starter"), [("acp", "an editor"), ("mcp serve", "another agent")]
)
def test_a_protocol_command_run_in_a_terminal_names_the_program_that_starts_it(
    person: Person, command: str, starter: str
) -> None:
    terminal = person.starts(*command.split())
    terminal.until(
        f"refold {command} speaks JSON-RPC on stdin: {starter} starts it. Ctrl+C ends it."
    )
    terminal.type(CTRL_C)
    terminal.end()
