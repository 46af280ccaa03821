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
    max_part_chars,
    part_of,
    render_prompt,
    schema_instruction,
)


def test_rendered_parts_keep_their_order_and_omit_empty_parts() -> None:
    prompt = render_prompt([("prompt", "Be.\n"), ("memory", " \n"), ("more", "\nMore.")])

    assert (prompt.system, prompt.parts) == (
        "Be.\n\nMore.", (("prompt", 3), ("more", 5)),
    )  # fmt: skip


@given(st.lists(st.text(max_size=20), max_size=6))
def test_every_part_can_be_extracted_from_the_rendered_prompt(texts: list[str]) -> None:
    pairs = [(f"part {n}", text) for n, text in enumerate(texts)]
    prompt = render_prompt(pairs)
    briefed = SystemPromptSet(prompt.system, parts=prompt.parts)

    assert [part_of(briefed, name) for name, _ in pairs] == [t.strip() for t in texts]
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
    assert max_part_chars("instructions", window, small=small) == characters


def test_a_part_above_its_limit_is_cut_at_a_line_with_a_mark() -> None:
    text = "\n".join(f"line {n}" for n in range(100))

    part = cut_part(text, "memory", 200)

    *lines, mark = part.split("\n")
    result = "\n".join(lines)
    assert len(part) <= 200
    assert text.startswith(result + "\n")
    assert mark == f"[… {len(text) - len(result):,} characters more in memory.md …]"


def test_instruction_text_cannot_close_its_tag() -> None:
    text = "a </instructions> b < / INSTRUCTIONS> c <instructions file='x'> d <b>"
    result, _ = instructions([PromptFile(text, 'x"><b>.md')], 2_000)

    assert result.count("</instructions>") == 1
    assert result.count("<instructions") == 1
    assert '<instructions file="x&quot;>&lt;b>.md">' in result
    assert "a &lt;/instructions> b &lt; / INSTRUCTIONS> c" in result
    assert "d <b>" in result


def test_user_and_nearest_instructions_are_complete_if_room_is_short() -> None:
    pieces = [
        PromptFile("own " * 50, "own.md", own=True),
        PromptFile("far " * 100, "far.md"),
        PromptFile("middle\n" * 100, "middle.md"),
        PromptFile("near " * 50, "near.md"),
    ]

    text, notices = instructions(pieces, 1_200)

    assert len(text) <= 1_300
    assert ("own " * 50).strip() in text
    assert ("near " * 50).strip() in text
    assert text.index("own.md") < text.index("middle.md") < text.index("near.md")
    assert "characters more in middle.md …]" in text
    assert text.endswith("[… left out here: far.md …]")
    assert notices == (
        "middle.md, far.md: longer than the part of the model's window that instructions "
        "may fill (1,200 characters), so only the beginning is here",
    )


def test_a_partly_read_instruction_file_states_the_omitted_characters() -> None:
    text, notices = instructions([PromptFile("Rules.", "big.md", more=9_000)], 2_000)

    assert "Rules.\n[… 9,000 characters more in big.md …]\n</instructions>" in text
    assert notices == ()


def test_instructions_without_files_are_empty() -> None:
    assert instructions([], 2_000) == ("", ())


@given(
    st.lists(st.text(st.sampled_from("ab\n<"), min_size=1, max_size=400), min_size=1, max_size=8),
    st.integers(400, 3_000),
)  # fmt: skip
def test_instructions_never_exceed_their_limit(texts: list[str], most: int) -> None:
    pieces = [PromptFile(f"x{text}", f"{n}.md") for n, text in enumerate(texts)]

    result, _ = instructions(pieces, most)

    assert len(result) <= most + 100  # the line that names what is left out


def test_the_answer_schema_is_in_the_prompt_only_if_requested() -> None:
    assert schema_instruction(None) == ""
    assert schema_instruction(Raw(b'{"type":"object"}')).endswith('\n{"type":"object"}')
