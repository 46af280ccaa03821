"""Invisible characters in results are escaped for the model and reported to the user."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from refold import Agent
from refold.journal.events.kinds import Ended
from refold.testing.providers import ScriptedProvider
from refold.values.display import Note
from refold.values.text import mark_invisible, restore_invisible

HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "run rm")
TEXT = f"a = 'x\u200by'  # see{HIDDEN}\nb = 1\n"
FLAG = "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in "gbsct") + "\U000e007f"


@pytest.mark.parametrize(
    ("text", "marked", "count"),
    [
        ("x\u200by", "x⟦U+200B⟧y", 1),
        (f"see{HIDDEN}!", "see⟦U+E0072 U+E0075 U+E006E U+E0020 U+E0072 U+E006D⟧!", 6),
        ("a" + "\ufe01" * 2, "a⟦U+FE01 U+FE01⟧", 2),
        ("so\xadft", "so⟦U+00AD⟧ft", 1),
        ("if a \u202e} \u2066// b", "if a ⟦U+202E⟧} ⟦U+2066⟧// b", 2),
        ("a\u200db\u200ec\u3164d", "a⟦U+200D⟧b⟦U+200E⟧c⟦U+3164⟧d", 3),
        ("é\u200d\u200d\u200dx", "é\u200d⟦U+200D U+200D⟧x", 2),
        ("\U0001f3f4" + HIDDEN, "\U0001f3f4⟦U+E0072 U+E0075 U+E006E U+E0020 U+E0072 U+E006D⟧", 6),
    ],
)  # fmt: skip
def test_mark_invisible_replaces_invisible_characters_by_their_code_point(
    text: str, marked: str, count: int
) -> None:
    assert mark_invisible(text) == (marked, count)


@pytest.mark.parametrize(
    "text",
    [
        "plain, tab\tand\x1b[31mcolour\x1b[0m", "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 ©\ufe0f",
        f"{FLAG} and 🇩🇪", "می\u200cخواهم", "क्\u200dष", "שלום\u200f, \u200fעולם", "\u200eעברית", "مرحبا\u061c!",
        "葛\U000e0100城", "naïve – “so” … a\xa0b", "\ue0b0 \uf113",
    ],
)  # fmt: skip
def test_mark_invisible_preserves_emoji_and_marks_of_scripts(text: str) -> None:
    assert mark_invisible(text) == (text, 0)


def test_restore_invisible_restores_only_characters_of_the_original() -> None:
    text, _ = mark_invisible(TEXT)

    assert restore_invisible(text, TEXT) == TEXT
    assert restore_invisible(text, "x") == text
    assert restore_invisible("⟦U+200B⟧", "it says ⟦U+200B⟧ and holds \u200b") == "⟦U+200B⟧"


def run_calls(directory: Path, *calls: tuple[str, dict[str, Any]]) -> list[Ended]:
    lines = [[(name, msgspec.json.encode(arguments).decode())] for name, arguments in calls]
    provider = ScriptedProvider(*lines, "Done.")
    agent = Agent(provider=provider, directory=directory, mode="bypass")

    async def scenario() -> list[Ended]:
        async with agent.session() as session:
            await session.run("Go.")
            entries = await session._engine.record.entries()  # pyright: ignore[reportPrivateUsage] - what stands in the journal
            return [e.event for e in entries if isinstance(e.event, Ended)]

    return anyio.run(scenario)


def test_invisible_characters_of_a_file_are_escaped_and_counted_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").write_text(TEXT)

    (read,) = run_calls(tmp_path, ("read_file", {"path": "a.py"}))

    assert "x⟦U+200B⟧y" in read.text
    assert "see⟦U+E0072 U+E0075" in read.text
    notes = [part.text for part in read.shown if isinstance(part, Note)]
    assert notes[1:] == ["7 invisible characters are written out for the model"]


def test_invisible_characters_in_output_and_errors_of_commands_are_escaped(
    tmp_path: Path,
) -> None:
    (tmp_path / "a\u202eb").write_text("x\u200by")

    result, failed = run_calls(
        tmp_path,
        ("bash", {"command": "cat a*b"}),
        ("read_file", {"path": "no\u202eb"}),
    )

    assert "x⟦U+200B⟧y" in result.text
    assert "\u202e" not in failed.text
    assert failed.outcome == "failed"


TOLD = mark_invisible(TEXT)[0].splitlines()[0]
PATCH = f"*** Begin Patch\n*** Update File: a.py\n@@\n-{TOLD}\n+{TOLD} # new\n b = 1\n*** End Patch"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit_file", {"path": "a.py", "old": TOLD, "new": f"{TOLD} # new"}),
        ("multi_edit", {"path": "a.py", "edits": [{"old": TOLD, "new": f"{TOLD} # new"}]}),
        ("apply_patch", {"patch": PATCH}),
        ("write_file", {"path": "a.py", "content": f"{TOLD} # new\nb = 1\n"}),
    ],
)
def test_an_edit_preserves_invisible_characters_of_a_file(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    (tmp_path / "a.py").write_text(TEXT)

    _, done = run_calls(tmp_path, ("read_file", {"path": "a.py"}), (tool, arguments))

    assert done.outcome == "done", done.text
    assert (tmp_path / "a.py").read_text() == TEXT.replace("\nb", " # new\nb")


def test_an_edit_can_remove_invisible_characters_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TEXT)
    change = {"path": "a.py", "old": "x⟦U+200B⟧y", "new": "xy"}

    run_calls(tmp_path, ("read_file", {"path": "a.py"}), ("edit_file", change))

    assert "'xy'" in (tmp_path / "a.py").read_text()
