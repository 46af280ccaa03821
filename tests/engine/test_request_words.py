"""What is read from a request: names, texts, places, and nothing that is not there."""

import pytest

from refold.engine.request_words import LONGEST, Expected, asked_in


def wants(request: str) -> tuple[Expected, ...]:
    return asked_in(request).expected


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Create a.txt with the text: good day", [Expected(paths=("a.txt",), text="good day")]),
        (
            "Create a.txt with the text one and a file b.txt with the text two.",
            [Expected(paths=("a.txt",), text="one"), Expected(paths=("b.txt",), text="two")],
        ),
        (
            "Make a folder named old with a file x.md in it that says: empty",
            [Expected(paths=("old/x.md", "x.md"), text="empty")],
        ),
        ("Write a Node.js script app.js that prints 1.", [Expected(paths=("app.js",))]),
        (
            "Add the line 'c' at the end of both a.txt and b.txt.",
            [
                Expected(paths=(name,), text="c", place="last", changed=True, grows=True)
                for name in ("a.txt", "b.txt")
            ],
        ),
        (
            "Add '# MIT' at the very top of tool.py",
            [Expected(paths=("tool.py",), text="# MIT", place="first", changed=True, grows=True)],
        ),
        (
            "In r.txt insert the line 'b' between 'a' and 'c'.",
            [
                Expected(
                    paths=("r.txt",), text="b", after="a", before="c", changed=True, grows=True
                )
            ],
        ),
        (
            "In menu.txt replace the word soup with salad.",
            [Expected(paths=("menu.txt",), text="salad", lacks="soup", changed=True)],
        ),
        (
            "Change the colour in t.cfg from blue to green",
            [Expected(paths=("t.cfg",), text="green", lacks="blue", changed=True)],
        ),
        (
            "In a.txt replace 'cat' with 'cats'",
            [Expected(paths=("a.txt",), text="cats", changed=True)],
        ),
        (
            "Set timeout to 60 in s.conf.",
            [Expected(paths=("s.conf",), text="60", near="timeout", changed=True)],
        ),
        (
            "Rename draft.txt to report.txt.",
            [Expected(paths=("report.txt",)), Expected(paths=("draft.txt",), gone=True)],
        ),
        (
            "Move a.txt and b.txt into the folder docs",
            [
                Expected(paths=("docs/a.txt",)),
                Expected(paths=("docs/b.txt",)),
                Expected(paths=("a.txt",), gone=True),
                Expected(paths=("b.txt",), gone=True),
            ],
        ),
        (
            "Copy a.txt to b.txt",
            [Expected(paths=("b.txt",)), Expected(paths=("a.txt",))],
        ),
        (
            "Write 'x' into new.txt and delete old.txt.",
            [Expected(paths=("new.txt",), text="x"), Expected(paths=("old.txt",), gone=True)],
        ),
        (
            "Rename a.cfg to b.cfg and then add the line 'debug' at the end of it.",
            [
                Expected(paths=("b.cfg",)),
                Expected(paths=("a.cfg",), gone=True),
                Expected(paths=("b.cfg",), text="debug", place="last", changed=True, grows=True),
            ],
        ),
        (
            "Please remove the line 'b' from x.txt",
            [Expected(paths=("x.txt",), changed=True, lacks="b")],
        ),
    ],
)  # fmt: skip
def test_what_files_must_be_like_is_read_off_the_words(
    request_text: str, expected: list[Expected]
) -> None:
    assert list(wants(request_text)) == expected


@pytest.mark.parametrize(
    "words",
    [
        "What does main.py do?",
        "Explain the difference between a.txt and b.txt.",
        "Send the figures to bob@example.org, see https://example.com/a.html",
        "Delete all *.tmp files, e.g. with rm.",
        "Thanks!",
        f"Create a.txt. {'x' * LONGEST}",
    ],
)
def test_nothing_is_expected_of_files_where_none_is_to_be_changed(words: str) -> None:
    assert wants(words) == ()


def test_a_replacement_of_some_places_does_not_forbid_the_others() -> None:
    (found,) = wants("In a.txt replace the first 'x' with 'y'")

    assert (found.text, found.lacks) == ("y", "")


@pytest.mark.parametrize(
    ("words", "command", "question"),
    [
        ("Run the command: expr 1 + 2 and tell me what it prints.", "expr 1 + 2", True),
        ("Run python3 a.py 14, then stop.", "python3 a.py 14", False),
        ("Write a.py and run it", "", False),
        ("How many lines has a.txt?", "", True),
        ("Rename draft.txt to report.txt", "", False),
    ],
)
def test_the_command_and_the_question_are_found(
    words: str, command: str, question: bool
) -> None:
    found = asked_in(words)

    assert (found.command, found.question) == (command, question)
