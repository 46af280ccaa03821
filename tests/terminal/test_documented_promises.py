"""Sentences of the guides that were not true once: each is quoted, and tried in a real terminal."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal_files import find_journals
from tests.place.walled import home_on_disk, needs_bubblewrap
from tests.terminal.pty_terminal import CTRL_C, ENTER, ESC, STAGE, Terminal

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = STAGE.with_name("stage_program.py")
DONE = {"text": "Well."}
DOWN = "\x1b[B"
OpenTerminal = Callable[..., Terminal]


def quote(page: str, sentence: str) -> None:
    """Fail if the page does not have this sentence any more."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert sentence in text, f"docs/{page} does not say {sentence!r}"


def bash(command: str) -> dict[str, object]:
    return {"calls": [{"tool": "bash", "arguments": {"command": command}}]}


@pytest.fixture
def open_terminal(tmp_path: Path, compiled: Path) -> Iterator[OpenTerminal]:
    """Starts refold in a directory, with these responses of the model."""
    terminals = list[Terminal]()

    def open_(
        *responses: object,
        flags: tuple[str, ...] = (),
        directory: Path = tmp_path,
        **env: str,
    ) -> Terminal:
        script = tmp_path / "script.jsonl"
        script.write_text("".join(f"{json.dumps(response)}\n" for response in responses))
        terminal = Terminal(
            PROGRAM, *flags, "--script", str(script),
            directory=directory, size=(30, 100), compiled=compiled, REFOLD_MEMORY="0", **env,
        )  # fmt: skip
        terminals.append(terminal)
        terminal.until("? keys" if "tui" in flags else "leaves\n")
        return terminal

    yield open_
    for at in terminals:
        at.child.close(force=True)


@pytest.mark.parametrize("flags", [(), ("tui",)], ids=["line", "full"])
def test_promise_a_letter_that_is_typed_into_a_message_never_answers(
    open_terminal: OpenTerminal, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    quote("guides/full-screen.md", "typing never answers it.")
    quote("guides/terminal.md", "Typing never answers a question.")
    slow = {"text": "word " * 100, "pause": 0.01, **bash("touch ran")}
    terminal = open_terminal(slow, DONE, flags=flags)
    terminal.type("go" + ENTER)
    terminal.until("word word")
    terminal.type("hey")
    terminal.until("a question waits: Enter sends your message first")
    for letter in " do you":
        terminal.type(letter)
        terminal.read()
    terminal.until("hey do you")

    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("flags", [(), ("tui",)], ids=["line", "full"])
def test_promise_an_option_of_the_model_is_chosen_by_arrows_or_another_answer_typed(
    open_terminal: OpenTerminal, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    quote(
        "guides/terminal.md",
        "Arrows and digits choose an option of a question that the model asks",
    )
    options = ["Redis", {"label": "SQLite", "about": "one file"}]
    questions = [{"question": text, "options": options} for text in ("Which?", "And then?")]
    call = {"tool": "ask_user", "arguments": {"questions": questions}}
    terminal = open_terminal({"calls": [call]}, DONE, flags=flags)
    terminal.type("go" + ENTER)
    terminal.until("Which?")
    terminal.until("› 1 Redis")
    terminal.type(DOWN)
    terminal.until("› 2 SQLite – one file")
    terminal.type(ENTER)
    terminal.until("And then?")
    terminal.until("› 1 Redis")
    terminal.type("2 of them")
    terminal.until("answer › 2 of them")
    terminal.type(ENTER)
    terminal.until("Well.")

    (journal,) = find_journals(Path(os.environ["REFOLD_HOME"]))
    assert '["SQLite","2 of them"]' in journal.read_text(encoding="utf-8")


@pytest.mark.peer
def test_promise_a_commit_asks_no_question_in_mode_sandbox_and_has_its_author(
    open_terminal: OpenTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    quote(
        "guides/permissions.md",
        "builds, formatters, servers and commits then ask no questions",
    )
    needs_bubblewrap()
    with home_on_disk() as home:
        monkeypatch.setenv("HOME", str(home))
        (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n")
        here = home / "project"
        subprocess.run(["git", "init", "-q", here], check=True)
        (here / "a").write_text("a")
        commit = bash('git add -A && git commit -qm "Say hello"')
        terminal = open_terminal(
            commit, DONE, flags=("--permission-mode", "sandbox"), directory=here
        )
        terminal.type("go" + ENTER)
        terminal.until("Well.")

        assert "May bash run this?" not in terminal.text
        log = ["git", "log", "--format=%s by %an <%ae>"]
        completed_process = subprocess.run(
            log, cwd=here, check=True, capture_output=True, text=True
        )
        assert completed_process.stdout == "Say hello by Ada <ada@example.org>\n"


def test_promise_expand_shows_the_newest_result_in_full(
    open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    quote("reference/terminal.md", "`/expand` or Ctrl+O shows the newest result in full")
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\ncat > "$0.seen"\n')
    pager.chmod(0o755)
    flags = ("--allow", "bash(seq *)")
    terminal = open_terminal(bash("seq 1 3000"), DONE, flags=flags, PAGER=str(pager))
    terminal.type("go" + ENTER)
    terminal.until("Well.")
    assert "… 2981 more lines; /expand shows all …" in terminal.text
    terminal.wait_for_prompt()
    terminal.type("/expand" + ENTER)
    terminal.wait_for_path(tmp_path / "pager.seen")
    terminal.wait_for_prompt()

    parts = (tmp_path / "pager.seen").read_text(encoding="utf-8").split()
    assert [word for word in parts if word.isdigit()][-3000:] == [*map(str, range(1, 3001))]


@pytest.mark.parametrize("beside_a_read", [False, True])
def test_promise_an_edit_that_would_fail_fails_without_a_question(
    open_terminal: OpenTerminal, tmp_path: Path, beside_a_read: bool
) -> None:
    quote("reference/terminal.md", "it fails without a question.")
    (tmp_path / "hello.py").write_text("hello\n")
    read = {"tool": "read_file", "arguments": {"path": "hello.py"}}
    edit = {"path": "hello.py", "old": "not there", "new": "x"}
    calls = [read, {"tool": "edit_file", "arguments": edit}]
    steps = [calls] if beside_a_read else [[call] for call in calls]
    terminal = open_terminal(*({"calls": step} for step in steps), DONE)
    terminal.type("go" + ENTER)
    terminal.until("Well.")

    assert "failed: " in terminal.text
    assert "edit_file change" not in terminal.text
    assert "? Edit" not in terminal.text


def test_promise_the_address_of_a_link_is_shown_inside_tmux(
    open_terminal: OpenTerminal,
) -> None:
    quote("reference/terminal.md", "`words (address)`")
    quote("reference/full-screen.md", "inside tmux, its address stands behind its text.")
    link = {"text": "See [it](https://example.org/a)."}
    for flags in ((), ("tui",)):
        terminal = open_terminal(
            link, flags=flags, TERM="tmux-256color", TMUX="/tmp/tmux,1,0"
        )
        terminal.type("go" + ENTER)
        terminal.until("See it (https://example.org/a).")

        assert "\x1b]8;" not in terminal.raw


@pytest.mark.parametrize("flags", [(), ("tui",)], ids=["line", "full"])
def test_promise_a_stop_before_the_answer_restores_the_message(
    open_terminal: OpenTerminal, flags: tuple[str, ...]
) -> None:
    quote("reference/terminal.md", "an empty input gets your message back.")
    terminal = open_terminal({"text": "Too late.", "pause": 60.0}, DONE, flags=flags)
    terminal.type("look at that" + ENTER)
    terminal.until("tops" if flags else "stop")
    terminal.type(ESC)
    terminal.until("look at that" if flags else "instead.\n\n› look at that")
    terminal.wait_until_gone("Esc stops")
    terminal.type("\x7f\x7fis" + ENTER)
    terminal.until("look at this")
    terminal.until("Well.")


@pytest.mark.parametrize("key", [ESC, CTRL_C], ids=["esc", "ctrl+c"])
def test_promise_esc_and_ctrl_c_stop_a_running_command(
    open_terminal: OpenTerminal, tmp_path: Path, key: str
) -> None:
    quote("reference/terminal.md", "While it works, Ctrl+C or Esc stops the turn at once")
    mark = f"61.{os.getpid()}"
    terminal = open_terminal(
        bash(f"touch begun; sleep {mark}"), DONE, flags=("--permission-mode", "bypass")
    )
    terminal.type("go" + ENTER)
    terminal.wait_for_path(tmp_path / "begun")
    terminal.type(key)
    terminal.until("Type what to do instead.")

    running = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    )
    assert f"sleep {mark}\n" not in running.stdout
