"""Runs the full screen in a pty: the whole program, with a scripted model."""

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.pty_terminal import Terminal

PROGRAM = Path(__file__).parent.parent / "terminal" / "stage_program.py"
HELLO = 'def greet():\n    return "hi"\n\nprint(greet())\n'
OpenTerminal = Callable[..., Terminal]


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x20\x40\x80" * width) * min(height, 64))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def open_terminal(tmp_path: Path, compiled: Path) -> Iterator[OpenTerminal]:
    """Yield a function that starts `refold tui` in `tmp_path/work` with these responses."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "hello.py").write_text(HELLO, encoding="utf-8")
    terminals = list[Terminal]()

    def open_(
        *answers: dict[str, object], flags: tuple[str, ...] = (), script: bool = True,
        **options: object,
    ) -> Terminal:  # fmt: skip
        file = tmp_path / "script.jsonl"
        if script:
            file.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
            flags = ("--script", str(file), *flags)
        terminal = Terminal(
            PROGRAM, "tui", *flags, directory=work, compiled=compiled,
            REFOLD_HOME=str(tmp_path / "home"), REFOLD_MEMORY="0", **{"size": (24, 80), **options},  # type: ignore[arg-type]
        )  # fmt: skip
        terminals.append(terminal)
        return terminal

    yield open_
    for terminal in terminals:
        terminal.child.close(force=True)
