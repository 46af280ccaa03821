"""Unified diffs: correct, and fast for large files."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.tools.edit import NearestMatch, find_nearest
from refold.tools.file_versions import DiffText, compare_texts

LINES = st.lists(st.sampled_from("abc"), max_size=30).map(
    lambda ls: "".join(f"{x}\n" for x in ls)
)


def test_two_distant_changes_make_two_hunks() -> None:
    before = [str(n) for n in range(1, 31)]
    after = [*before[:4], "five", *before[5:24], *before[25:], "31"]

    texts = compare_texts("\n".join(before) + "\n", "\n".join(after) + "\n")

    assert texts == DiffText(
        "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        "@@ -22,9 +22,9 @@\n 22\n 23\n 24\n-25\n 26\n 27\n 28\n 29\n 30\n+31",
        plus=2,
        minus=2,
    )


def test_equal_texts_give_an_empty_diff() -> None:
    assert compare_texts("a\nb", "a\nb") == DiffText("", 0, 0)


@given(LINES, LINES)
def test_applying_a_diff_to_the_first_text_gives_the_second(
    before: str, after: str
) -> None:
    assert apply_diff(before, compare_texts(before, after).text) == after


@pytest.mark.peer
@given(before=LINES, after=LINES.map(lambda text: text.removesuffix("\n")))
def test_the_patch_program_applies_our_diffs(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    if not shutil.which("patch"):
        pytest.skip("there is no patch: optional")
    diff = compare_texts(before, after).text
    file = tmp_path_factory.mktemp("patched") / "a"
    file.write_text(before)

    if diff:
        run_patch(file, f"--- a\n+++ a\n{diff}\n")

    assert (file.read_text() if file.exists() else "") == after


def test_a_change_of_too_many_lines_is_only_counted() -> None:
    before = "".join(f"{n}\n" for n in range(100_000))
    after = "".join(f"{n} \n" for n in range(100_000))

    assert compare_texts(before, after) == DiffText(
        "@@ 100,000 lines became 100,000: too many to show @@", 100_000, 100_000
    )


@pytest.mark.slow
def test_a_long_diff_is_truncated_at_a_line_and_all_lines_are_counted() -> None:
    texts = compare_texts("", "".join(f"line {n}\n" for n in range(10_000)))

    assert (texts.plus, texts.minus) == (10_000, 0)
    assert len(texts.text) < 20_100
    assert texts.text.rpartition("\n")[2] == "@@ 8,083 more lines of diff @@"


def test_small_changes_and_the_nearest_text_are_found_in_a_large_file() -> None:
    lines = [f"value_{n} = compute({n}, {n * 7})" for n in range(100_000)]
    text = "\n".join(lines)

    near = find_nearest(
        text, "value_70000 = compute(70000, 490000)\nvalue_70001 = compute(70001, x)"
    )
    texts = compare_texts(text, text.replace("value_70000 ", "v "))

    assert near == NearestMatch(70001, tuple(lines[70000:70002]), only_white_space=False)
    assert (texts.plus, texts.minus) == (1, 1)


def apply_diff(before: str, diff: str) -> str:
    """Return the text that a diff makes of `before`: the format read by its own rules."""
    old, new, position = before.split("\n")[:-1], list[str](), 0
    for line in diff.split("\n") if diff else []:
        if line.startswith("@@"):
            start, count = map(int, line.split()[1].removeprefix("-").split(","))
            upto = start - 1 if count else start
            new += old[position:upto]
            position = upto
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert line[1:] == old[position]
            new += [line[1:]] if line.startswith(" ") else []
            position += 1
    return "".join(f"{line}\n" for line in (*new, *old[position:]))


def run_patch(file: Path, diff: str) -> None:
    subprocess.run(["patch", "-s", str(file)], input=diff.encode(), check=True)
