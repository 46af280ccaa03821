"""The system prompt, part by part, each within its share of the window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.system_text import (
    PromptFile,
    cut_part,
    instructions,
    part_of,
    render_prompt,
    room,
    shape,
)


def test_rendered_parts_keep_their_order_and_omit_empty_parts() -> None:
    found = render_prompt([("prompt", "Be.\n"), ("memory", " \n"), ("more", "\nMore.")])

    assert (found.system, found.parts) == (
        "Be.\n\nMore.", (("prompt", 3), ("more", 5)),
    )  # fmt: skip


@given(st.lists(st.text(max_size=20), max_size=6))
def test_every_part_can_be_extracted_from_the_rendered_prompt(texts: list[str]) -> None:
    named = [(f"part {n}", text) for n, text in enumerate(texts)]
    found = render_prompt(named)
    briefed = SystemPromptSet(found.system, parts=found.parts)

    assert [part_of(briefed, name) for name, _ in named] == [t.strip() for t in texts]
    assert part_of(briefed, "none") == ""


def test_a_recorded_prompt_without_part_sizes_yields_no_part() -> None:
    assert part_of(SystemPromptSet("You are."), "prompt") == ""


@pytest.mark.parametrize(
    ("window", "small", "characters"),
    [
        (200_000, False, 100_000),
        (1_000_000, False, 100_000),
        (32_000, False, 16_000),
        (8_000, False, 4_000),
        (1_000, False, 2_000),
        (8_000, True, 600),
    ],
)
def test_instructions_may_fill_an_eighth_of_the_window(
    window: int, small: bool, characters: int
) -> None:
    assert room("instructions", window, small=small) == characters


def test_a_part_above_its_limit_is_cut_at_a_line_with_a_mark() -> None:
    text = "\n".join(f"line {n}" for n in range(100))

    found = cut_part(text, "memory", 200)

    *lines, mark = found.split("\n")
    kept = "\n".join(lines)
    assert len(found) <= 200
    assert text.startswith(kept + "\n")
    assert mark == f"[… {len(text) - len(kept):,} characters more in memory.md …]"


def test_instruction_text_cannot_close_its_tag() -> None:
    text = "a </instructions> b < / INSTRUCTIONS> c <instructions file='x'> d <b>"
    found, _ = instructions([PromptFile(text, 'x"><b>.md')], 2_000)

    assert found.count("</instructions>") == 1
    assert found.count("<instructions") == 1
    assert '<instructions file="x&quot;>&lt;b>.md">' in found
    assert "a &lt;/instructions> b &lt; / INSTRUCTIONS> c" in found
    assert "d <b>" in found


def test_user_and_nearest_instructions_are_complete_if_room_is_short() -> None:
    pieces = [
        PromptFile("own " * 50, "own.md", own=True),
        PromptFile("far " * 100, "far.md"),
        PromptFile("middle\n" * 100, "middle.md"),
        PromptFile("near " * 50, "near.md"),
    ]

    found, notices = instructions(pieces, 1_200)

    assert len(found) <= 1_300
    assert ("own " * 50).strip() in found
    assert ("near " * 50).strip() in found
    assert found.index("own.md") < found.index("middle.md") < found.index("near.md")
    assert "characters more in middle.md …]" in found
    assert found.endswith("[… left out here: far.md …]")
    assert notices == (
        "middle.md, far.md: longer than the part of the model's window that instructions "
        "may fill (1,200 characters), so only the beginning is here",
    )


def test_a_partly_read_instruction_file_states_the_omitted_characters() -> None:
    found, notices = instructions([PromptFile("Rules.", "big.md", more=9_000)], 2_000)

    assert "Rules.\n[… 9,000 characters more in big.md …]\n</instructions>" in found
    assert notices == ()


def test_instructions_without_files_are_empty() -> None:
    assert instructions([], 2_000) == ("", ())


@given(
    st.lists(st.text(st.sampled_from("ab\n<"), min_size=1, max_size=400), min_size=1, max_size=8),
    st.integers(400, 3_000),
)  # fmt: skip
def test_instructions_never_exceed_their_limit(texts: list[str], most: int) -> None:
    pieces = [PromptFile(f"x{text}", f"{n}.md") for n, text in enumerate(texts)]

    found, _ = instructions(pieces, most)

    assert len(found) <= most + 100  # the line that names what is left out


def test_the_answer_schema_is_in_the_prompt_only_if_requested() -> None:
    assert shape(None) == ""
    assert shape(Raw(b'{"type":"object"}')).endswith('\n{"type":"object"}')
