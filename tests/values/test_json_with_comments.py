"""JSON with comments is read as JSON, and an error names the line of the file."""

import pytest

from refold.values.json_with_comments import read_json_with_comments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('// first\n{"a": 1, // and\n /* two\nlines */ "b": [2]}', {"a": 1, "b": [2]}),
        ('{"a": [1, 2,],\n}', {"a": [1, 2]}),
        ('{"a": [1, /* last */ ], }', {"a": [1]}),
        (
            r'{"url": "http://x/*y*/", "q": "\"// ,]"}',
            {"url": "http://x/*y*/", "q": '"// ,]'},
        ),
    ],
)
def test_comments_and_last_commas_are_skipped_but_not_in_strings(
    text: str, value: object
) -> None:
    assert read_json_with_comments(text) == value


@pytest.mark.parametrize("text", ["{a: 1}", '{"a": 1', "/* open", "{'a': 1}", ""])
def test_other_extensions_of_json_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_json_with_comments(text)


def test_an_error_after_a_comment_names_the_line_of_the_file() -> None:
    with pytest.raises(ValueError, match="line 4"):
        read_json_with_comments('{\n/* a\nb */ "a": 1,\n oops}')
