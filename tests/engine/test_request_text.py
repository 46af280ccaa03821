"""What is wrong with a file is told, and so is a call that puts it right, where one is known."""

import json

import pytest

from refold.engine.request_text import (
    corrected_text,
    edit_call_for,
    lines_as_json,
    lost_lines,
    problems_in,
    syntax_error,
)
from refold.engine.request_words import parse_request

JSON = '{\n  "name": "clock",\n  "version": "1.9.3"\n}\n'


def righted(request: str, text: str) -> str:
    """The text of a.txt as the request wants it."""
    for expected in parse_request(request).expected:
        if any(problems_in(expected, "a.txt", text)):
            text = corrected_text(expected, "a.txt", text)
    return text


@pytest.mark.parametrize(
    ("request_text", "before", "after"),
    [
        ("Append the line 'c' to a.txt", "a\nb\n", "a\nb\nc\n"),
        ("Append the line 'c' to a.txt", "c\na\nb\n", "a\nb\nc\n"),
        ("Append the line 'c' to a.txt", "a\nb", "a\nb\nc\n"),
        ("Add 'c' at the end of a.txt", "", "c\n"),
        ("Put the line 'c' at the top of a.txt", "a\nb\n", "c\na\nb\n"),
        ("In a.txt insert the line 'x' between 'a' and 'b'", "a\nb\n", "a\nx\nb\n"),
        ("In a.txt insert the line 'x' before the line 'b'", "a\nb\nx\n", "a\nx\nb\n"),
        ("In a.txt insert the line 'x' after 'gone'", "a\nb\n", "a\nb\n"),
        ("Set timeout to 60 in a.txt", "retries = 15\ntimeout = 15  # s\n", "retries = 15\ntimeout = 60  # s\n"),
        ("Set the log level to debug in a.txt", "LOG_LEVEL='info'\n", "LOG_LEVEL='debug'\n"),
        ("Change the version in a.txt to 2.0.0", JSON, JSON.replace("1.9.3", "2.0.0")),
        ("Set port to 80 in a.txt", "port: 1\nport: 2\n", "port: 1\nport: 2\n"),
        ("Set title to 'x' in a.txt", "title is a long word\n", "title is a long word\n"),
        ("Rename the function foo to sum in a.txt", "foo(foot)\nfoo()\n", "sum(foot)\nsum()\n"),
        ("Change the name Ann to Eve and the city Rome to Bonn in a.txt", "Ann\nRome\n", "Eve\nBonn\n"),
        ("Remove the line 'b' from a.txt", "a\nb\nab b\n", "a\nab b\n"),
        ("Remove 'b' from a.txt", "a\nb\n", "a\nb\n"),  # the word or the line?
        ("Replace the first line with 'x' in a.txt", "a\nb\n", "a\nb\n"),
        ("Edit a.txt", "a\n", "a\n"),
        ("At the end of a.txt, add the line 'c'", "a\n", "a\nc\n"),
        ("Append c to a.txt", "a\n", "a\nc\n"),
        ("Add the word c on a new line at the end of a.txt", "a\n", "a\nc\n"),
        ("Insert a line with the text c at the beginning of a.txt", "a\n", "c\na\n"),
        ("Insert 'c' after line 1 of a.txt", "a\nb\n", "a\nc\nb\n"),
        ("Insert 'c' before the second line of a.txt", "a\nb\n", "a\nc\nb\n"),
        ("Insert 'c' after the last line of a.txt", "a\nb\n", "a\nb\nc\n"),
        ("Insert 'c' before the last line of a.txt", "a\nb\n", "a\nb\n"),  # not known which
        ("Insert 'c' after line 9 of a.txt", "a\nb\n", "a\nb\n"),
        ("Change line 2 of a.txt to 'c'", "a\nb\n", "a\nc\n"),
        ("In a.txt, the second line should read 'c'", "a\nb\n", "a\nc\n"),
        ("Remove the line b from a.txt", "a\nb\n", "a\n"),
        ("Delete the lines containing 'b' from a.txt", "a\nb 1\nb 2\n", "a\n"),
        ("In a.txt, delete the line that says b.", "a\nb\n", "a\n"),
        ("In a.txt, change \"debug\" to false", '{"debug": true}\n', '{"debug": true}\n'),  # in a line
        ("In a.txt, change \"debug\" to false", '"debug": true,\n', '"debug": false,\n'),
        ("Change 'two' to 2 in a.txt", "one two\n", "one 2\n"),
        ("Set host = y in a.txt", "host = x\n", "host = y\n"),
        ("Update a.txt so that host is y", "host: x\n", "host: y\n"),
        ("Change the port number in a.txt to 90", "port: 80\n", "port: 90\n"),
        ("Set A to 5 in a.txt", "A=1\n", "A=5\n"),
        ("Change the heading of a.txt from Title to Notes", "# Title\n", "# Notes\n"),
        ("Use b:2 instead of b:1 in a.txt", "image: b:1\n", "image: b:2\n"),
        ("Swap 'milk' for 'bread' in a.txt", "- milk\n", "- bread\n"),
        ("Correct the spelling: 'teh' to 'the' in a.txt", "teh\n", "the\n"),
        ("Replace all occurrences of two with 2 in a.txt", "two two\n", "2 2\n"),
    ],
)  # fmt: skip
def test_a_text_is_put_right_where_the_request_says_exactly_how(
    request_text: str, before: str, after: str
) -> None:
    assert righted(request_text, before) == after


@pytest.mark.parametrize(
    ("before", "after", "call"),
    [
        ("a\nb\n", "a\nb\nc\n", ("edit_file", {"path": "a.txt", "old": "b", "new": "b\nc"})),
        ("a\nb\n", "c\na\nb\n", ("edit_file", {"path": "a.txt", "old": "a", "new": "c\na"})),
        ("a\nb\nc\n", "a\nc\n", ("edit_file", {"path": "a.txt", "old": "a\nb", "new": "a"})),
        ("b\na\n", "a\n", ("edit_file", {"path": "a.txt", "old": "b\na", "new": "a"})),
        ("x\nx\n", "x\nx\ny\n", ("write_file", {"path": "a.txt", "content": "x\nx\ny\n"})),
        ("a\nb\nc\n", "A\nb\nC\n", ("write_file", {"path": "a.txt", "content": "A\nb\nC\n"})),
        ("", "a\n", ("write_file", {"path": "a.txt", "content": "a\n"})),
    ],
)  # fmt: skip
def test_the_call_is_one_edit_of_lines_or_the_whole_text(
    before: str, after: str, call: tuple[str, object]
) -> None:
    name, _, arguments = edit_call_for("a.txt", before, after).partition(" ")

    assert (name, json.loads(arguments)) == call


@pytest.mark.parametrize(
    ("before", "after"),
    [("a\n", "a\n"), ("a\r\n", "b\r\n"), ("a\n", "b" * 1_501)],
)
def test_no_call_is_told_that_a_small_model_could_not_write(
    before: str, after: str
) -> None:
    assert edit_call_for("a.txt", before, after) == ""


@pytest.mark.parametrize(
    ("request_text", "lost", "missed"),
    [
        ("Replace soup with salad in a.txt", ["soup"], []),
        ("Replace soup with salad in a.txt", ["soup", "bread"], ["bread"]),
        ("Set the log level to debug in a.txt", ["log_level: info", "bread"], ["bread"]),
        (
            "Change the heading to 'Garden' in a.txt",
            ["<h1>House</h1>"],
            [],
        ),  # no text of it
        ("Add 'x' at the end of a.txt", ["bread"], ["bread"]),
        ("Add 'x' at the end of a.txt and replace soup with salad in it", ["soup"], []),
        ("Edit a.txt", ["bread"], []),
        ("Change Bob's age to 41 in a.txt", ["Bob,40", "Ann,30"], ["Ann,30"]),
        ("Update the e-mail of Bob in a.txt to b@x.example", ["Bob,a@x", "Ann"], ["Ann"]),
    ],
)
def test_only_the_lines_of_a_change_may_go(
    request_text: str, lost: list[str], missed: list[str]
) -> None:
    found = [lost_lines(each, lost, "") for each in parse_request(request_text).expected]

    assert list(dict.fromkeys(line for each in found for line in each)) == missed


@pytest.mark.parametrize(
    ("request_text", "text", "problems"),
    [
        ("Append the line 'c' to a.txt", "a\n'c'\n", ["a.txt does not have 'c'. It has: \"a / 'c'\""]),
        ("Append 'c' to a.txt", "a\nc\nc\n", ["'c' stands in a.txt twice."]),
        ("Change the port in a.txt from 80 to 90", "port = 90\nother = 80\n", []),
        ("Change the port in a.txt from 80 to 90", "port = 80\nother = 90\n", ["a.txt still has 'port = 80'."]),
        ("Set timeout to 60 in a.txt", "timeout = 600\nn = 60\n", ["a.txt still has 'timeout = 600'."]),
        ("Insert 'c' after line 1 of a.txt", "c\na\n", ["Line 2 of a.txt is 'a', not 'c'."]),
        ("Insert 'c' after line 9 of a.txt", "c\na", ["Line 10 of a.txt is not there, not 'c'."]),
        ("Add a new row to a.txt: c,1", "a\n", ["a.txt does not have 'c,1'. It has: 'a'"]),
        ("Replace the last line of a.txt with 'c'", "c\na\n", ["The last line of a.txt is 'a', not 'c'."]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text_is_told(
    request_text: str, text: str, problems: list[str]
) -> None:
    (expected,) = parse_request(request_text).expected

    assert list(problems_in(expected, "a.txt", text)) == problems


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", "{'a': 1}", "a.json does not parse: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."),
        ("a.toml", "a = ", "a.toml does not parse: Invalid value (at end of document)."),
        ("a.py", "def f(:\n", "a.py does not parse: invalid syntax (<unknown>, line 1)."),
        ("a.json", '{"a": 1}', ""),
        ("a.txt", "{", ""),
    ],
)  # fmt: skip
def test_a_file_must_parse_as_what_its_name_says(
    name: str, text: str, problem: str
) -> None:
    assert syntax_error(name, text) == problem


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("name: demo\nport: 8080\n", {"name": "demo", "port": 8080}),
        ("a = 'x'\n\n\"b\": true,\n", {"a": "x", "b": True}),
        ("{a: 1}", None),
        ("just words\n", None),
        ("", None),
    ],
)
def test_settings_in_lines_become_json(text: str, meant: object) -> None:
    found = lines_as_json(text)

    assert (json.loads(found) if found else None) == meant
