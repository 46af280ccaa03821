"""What is read from a request: names, texts, places, and nothing that is not there."""

import pytest

from refold.engine.request_words import LONGEST, ExpectedFile, parse_request


def wants(request: str) -> tuple[ExpectedFile, ...]:
    return parse_request(request).expected


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Create a.txt with the text: good day", [ExpectedFile(paths=("a.txt",), text="good day")]),
        (
            "Create a.txt with the text one and a file b.txt with the text two.",
            [ExpectedFile(paths=("a.txt",), text="one"), ExpectedFile(paths=("b.txt",), text="two")],
        ),
        (
            "Make a folder named old with a file x.md in it that says: empty",
            [ExpectedFile(paths=("old/x.md", "x.md"), text="empty")],
        ),
        ("Write a Node.js script app.js that prints 1.", [ExpectedFile(paths=("app.js",))]),
        (
            "Add the line 'c' at the end of both a.txt and b.txt.",
            [
                ExpectedFile(paths=(name,), text="c", place="last", whole=True, changed=True, keeps=True)
                for name in ("a.txt", "b.txt")
            ],
        ),
        (
            "Add '# MIT' at the very top of tool.py",
            [ExpectedFile(paths=("tool.py",), text="# MIT", place="first", changed=True, keeps=True)],
        ),
        (
            "In r.txt insert the line 'b' between 'a' and 'c'.",
            [
                ExpectedFile(
                    paths=("r.txt",), text="b", after="a", before="c", changed=True, keeps=True
                )
            ],
        ),
        (
            "In menu.txt replace the word soup with salad.",
            [ExpectedFile(paths=("menu.txt",), text="salad", lacks="soup", changed=True, keeps=True, loses=("soup",))],
        ),
        (
            "Change the colour in t.cfg from blue to green",
            [
                ExpectedFile(
                    paths=("t.cfg",), text="green", near="colour", lacks="blue", changed=True,
                    keeps=True, loses=("blue",),
                )
            ],
        ),
        (
            "In a.txt replace 'cat' with 'cats'",
            [ExpectedFile(paths=("a.txt",), text="cats", changed=True, keeps=True, loses=("cat",))],
        ),
        (
            "Set timeout to 60 in s.conf.",
            [ExpectedFile(paths=("s.conf",), text="60", near="timeout", changed=True, keeps=True, loses=("timeout",))],
        ),
        (
            "Rename draft.txt to report.txt.",
            [ExpectedFile(paths=("report.txt",), source="draft.txt"), ExpectedFile(paths=("draft.txt",), gone=True)],
        ),
        (
            "Move a.txt and b.txt into the folder docs",
            [
                ExpectedFile(paths=("docs/a.txt",), source="a.txt"),
                ExpectedFile(paths=("docs/b.txt",), source="b.txt"),
                ExpectedFile(paths=("a.txt",), gone=True),
                ExpectedFile(paths=("b.txt",), gone=True),
            ],
        ),
        (
            "Copy a.txt to b.txt",
            [ExpectedFile(paths=("b.txt",), source="a.txt"), ExpectedFile(paths=("a.txt",))],
        ),
        (
            "Write 'x' into new.txt and delete old.txt.",
            [ExpectedFile(paths=("new.txt",), text="x"), ExpectedFile(paths=("old.txt",), gone=True)],
        ),
        (
            "Rename a.cfg to b.cfg and then add the line 'debug' at the end of it.",
            [
                ExpectedFile(paths=("b.cfg",)),
                ExpectedFile(paths=("a.cfg",), gone=True),
                ExpectedFile(
                    paths=("b.cfg",), text="debug", place="last", whole=True, changed=True, keeps=True
                ),
            ],
        ),
        (
            "Please remove the line 'b' from x.txt",
            [ExpectedFile(paths=("x.txt",), changed=True, lacks="b", whole=True, keeps=True, loses=("b",))],
        ),
        ("Delete all files that end in .tmp.", [ExpectedFile(paths=("*.tmp",), gone=True)]),
        ("Rename every .txt file so that it ends in .md", [ExpectedFile(paths=("*.txt",), gone=True)]),
        ("Delete all .log files but today's", []),
        ("Delete all .log files in the folder old", []),
        ("Create a .gitignore that ignores all .log files", [ExpectedFile(paths=(".gitignore",))]),
        ("Create x.txt with the text one, y.txt with the text two", [
            ExpectedFile(paths=("x.txt",), text="one"), ExpectedFile(paths=("y.txt",), text="two"),
        ]),
    ],
)  # fmt: skip
def test_what_files_must_be_like_is_read_off_the_words(
    request_text: str, expected: list[ExpectedFile]
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


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("Change Ann to Eve and Rome to Bonn in a.txt", [("Ann", "Eve", ""), ("Rome", "Bonn", "")]),
        ("In a.txt change the name Ann to Eve", [("Ann", "Eve", "")]),
        ("Rename the function foo to sum in a.py, everywhere", [("foo", "sum", "")]),
        ("Change the version in a.json to 2.0.0.", [("", "2.0.0", "version")]),
        ("Change timeout to 60 in a.conf", [("", "60", "timeout")]),
        ("In a.ini set the log level to debug", [("", "debug", "log level")]),
        ("In the database section of a.ini set port to 80", [("", "80", "")]),
        ("Set the port in the web section of a.ini to 80", [("", "", "")]),
        ("n in a.yaml should be 5 instead of 2.", [("", "5", "n")]),
        ("There is a typo in a.txt: 'teh' should be 'the'. Fix it.", [("teh", "the", "")]),
        ("Change the title in a.html to Garden Party", [("", "", "")]),  # where does it end?
        ("Replace all tabs with four spaces in a.py", [("", "", "")]),
        ("Replace every 'a' by 'b' in a.txt", [("a", "b", "")]),
        ("Update the e-mail of Bob in a.csv to b@x.example", [("", "b@x.example", "")]),
        ("Delete every line that contains debug from a.txt", [("debug", "", "")]),
        ("Remove the comment from a.py", [("", "", "")]),  # a word about it, no text of it
        ("Remove the lines 'b' and 'c' from a.txt", [("b", "", ""), ("c", "", "")]),
    ],
)  # fmt: skip
def test_what_is_replaced_by_what_is_read_off_the_words(
    words: str, changes: list[tuple[str, str, str]]
) -> None:
    found = wants(words)

    assert [(each.lacks, each.text, each.near) for each in found] == changes
    assert all(each.changed for each in found)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("Append four to a.txt", "four"),
        ("Add the row x,1 to a.csv", "x,1"),
        ("Add tests to a.py", ""),
        ("Put everything into a.txt", ""),
        ("Add a row for Zoe, who is 41, to a.csv", ""),
    ],
)
def test_one_word_that_is_added_is_a_text_where_it_can_be_nothing_else(
    words: str, text: str
) -> None:
    (found,) = wants(words)

    assert found.text == text


def test_a_pair_of_texts_is_for_the_file_that_is_named_with_it() -> None:
    found = wants("Change 'a' to 'b' in x.txt and 'c' to 'd' in y.txt")

    assert [(each.paths, each.text) for each in found] == [
        (("x.txt",), "b"),
        (("y.txt",), "d"),
    ]


def test_files_that_only_say_where_are_those_of_the_next_clause() -> None:
    found = wants("In a.txt and b.txt replace 'x' with 'y'")

    assert [each.paths for each in found] == [("a.txt",), ("b.txt",)]


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
        ("There is an ERROR in app.log. Quote it.", "", True),
        ("Add a row for Zoe, who is 41, to a.csv", "", False),
    ],
)
def test_the_command_and_the_question_are_found(
    words: str, command: str, question: bool
) -> None:
    found = parse_request(words)

    assert (found.command, found.question) == (command, question)
