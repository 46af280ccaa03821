"""Command lines that a shell reports: read from its output, and from nothing else."""

import shutil
from pathlib import Path

import anyio
import pytest

from refold.server.shell_integration import MAX_MARK_BYTES, Mark, MarkReader
from refold.server.shell_process import run_shell
from tests.server.page_terminals import variables

NONCE = "5ec7e7"
OURS = b"\x1b]633;E;echo a\\x3b \\\\x3b \\x0ab;5ec7e7\x07"
HIDDEN, READY = b"\x1b]633;E;5ec7e7\x1b\\", b"\x1b]633;R;5ec7e7\x07"
FORGED = b"\x1b]633;E;rm -rf /;5ec7e8\x07\x1b]633;E;no end\x1b[0m\x1b]633"


def test_shell_marks_are_removed_from_terminal_output_wherever_it_is_cut() -> None:
    output = b"a" + READY + b"\x1b[1mb" + OURS + b"c" + HIDDEN + FORGED + b"d\x1b"
    marks = [Mark(False), Mark(True, "echo a; \\x3b \nb"), Mark(True)]

    for cut in range(len(output) + 1):
        reader = MarkReader(NONCE)
        pieces = [reader.read(output[:cut]), reader.read(output[cut:])]
        pieces.append(reader.read(b"."))

        assert b"".join(shown for shown, _ in pieces) == b"a\x1b[1mbc" + FORGED + b"d\x1b."
        assert [mark for _, marks_of_piece in pieces for mark in marks_of_piece] == marks


def test_a_shell_mark_without_an_end_is_shown_as_output() -> None:
    reader = MarkReader(NONCE)
    begun = b"\x1b]633;E;" + b"x" * MAX_MARK_BYTES

    held, _ = reader.read(begun[:-10])
    shown, marks = reader.read(b"x" * 20)

    assert held == b""
    assert shown == begun + b"x" * 10
    assert marks == []


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
async def test_each_shell_reads_the_startup_file_of_the_user_and_reports_entered_commands(
    name: str, tmp_path: Path
) -> None:
    shell = shutil.which(name, path="/usr/bin:/bin")
    if shell is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / ".bashrc").write_text("mine=42\nPS0=\nPROMPT_COMMAND='true;'\n", "utf-8")
    (tmp_path / ".zshrc").write_text("mine=42\n", "utf-8")
    (tmp_path / ".config/fish").mkdir(parents=True)
    (tmp_path / ".config/fish/config.fish").write_text("set mine 42\n", "utf-8")
    lines = ["echo own$mine", "printf '%s;%s\\n' 'a\\b' ü", "false", "exit"]
    output, commands = b"", list[str | None]()

    async with run_shell(shell, str(tmp_path), variables(tmp_path), 24, 80) as running:
        waiting = list(lines)
        while True:
            piece, marks = await running.read()
            if not (piece or marks):
                break
            output += piece
            commands += [mark.command for mark in marks]
            if b"\x1b[c" in piece or b"\x1b[0c" in piece:  # fish asks what the terminal is
                await running.write(b"\x1b[?62;c")
            ready = running.reports_commands and len(commands) == len(lines) - len(waiting)
            if ready and waiting:
                await running.write(f"{waiting.pop(0)}\r".encode())
        with anyio.fail_after(20):
            code = await running.wait()

    assert commands == lines
    assert b"own42" in output
    assert "a\\b;ü".encode() in output
    assert code in (0, 1)
