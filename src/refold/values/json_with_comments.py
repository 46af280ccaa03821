"""Reads JSON with comments, the format of editor settings and `devcontainer.json`.

Comments and a comma before a closing bracket become spaces, so line numbers stay correct.
Other extensions of JSON are errors.
"""

import json
import re
from typing import Any

# Strings come first, so that comment marks within a string are not taken for a comment.
_TOKEN_PATTERN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|,(?=\s*[\]}])', re.DOTALL
)
_NOT_NEWLINE_PATTERN = re.compile(r"[^\n]")


def read_json_with_comments(text: str) -> Any:
    """Return the value of a JSON text with comments. Raises `ValueError`, which names the
    line.
    """
    without_comments = _TOKEN_PATTERN.sub(_blank_comment, text)
    plain_json = _TOKEN_PATTERN.sub(_blank_comma, without_comments)
    return json.loads(plain_json)


def _blank_comment(token: re.Match[str]) -> str:
    """Return a comment as spaces and line ends; other text as it is."""
    is_comment = token[0].startswith("/")
    return _NOT_NEWLINE_PATTERN.sub(" ", token[0]) if is_comment else token[0]


def _blank_comma(token: re.Match[str]) -> str:
    return " " if token[0] == "," else token[0]
