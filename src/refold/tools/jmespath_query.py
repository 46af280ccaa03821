"""Runs a JMESPath expression over JSON, in a process with limits.

JMESPath has no loops, but an expression of a hundred characters can double a list a hundred times.
`data` has the tool.
"""

import json
import sys
from typing import Any

from refold.errors import ToolFailed
from refold.tools.bounded_process import (
    CannotRead,
    LimitExceeded,
    exit_unreadable,
    run_bounded,
)

_MAX_EXPRESSION_CHARS = 1_000
_MAX_RESULT_CHARS = 2_000_000


def query(content: bytes, expression: str, name: str) -> str:
    """Run a query over JSON, and return its result as indented JSON. Raises `ToolFailed`.

    `name` is the name of the data for messages.
    """
    if len(expression) > _MAX_EXPRESSION_CHARS:
        raise ToolFailed(f"An expression has at most {_MAX_EXPRESSION_CHARS:,} characters.")
    if "\0" in expression:
        raise ToolFailed("An expression holds no NUL.")
    try:
        return run_bounded(print_query, content, expression)
    except CannotRead as error:
        raise ToolFailed(f"{name} cannot be queried: {error}.") from error
    except LimitExceeded as error:
        raise ToolFailed(
            f"The query of {name} takes {error}: make the expression smaller."
        ) from error


def print_query(expression: str) -> None:
    """Print the result of a query over the JSON on standard input, in a process with limits."""
    import jmespath  # pyright: ignore[reportMissingTypeStubs] - it has none
    from jmespath.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
        JMESPathError,
    )

    try:
        document = _read(sys.stdin.buffer.read())
        result: Any = jmespath.search(  # pyright: ignore[reportUnknownMemberType]
            expression, document
        )
        _write(result)
    except JMESPathError as error:
        exit_unreadable(f"the expression {expression!r} is wrong: {error}".rstrip("."))
    except ValueError as error:
        exit_unreadable(f"it is not JSON ({error})")
    except RecursionError:
        exit_unreadable("it is nested too deeply")


def _read(content: bytes) -> Any:
    """Parse JSON; JSON Lines become a list."""
    text = content.decode("utf-8-sig")
    try:
        return json.loads(text)
    except ValueError:
        rows = [row for row in text.splitlines() if row.strip()]
        if len(rows) < 2:
            raise
        try:
            return [json.loads(row) for row in rows]
        except ValueError:
            pass
        raise  # the error of the text as a whole


def _write(result: Any) -> None:
    """Print the result as JSON, up to a limit; a last line says that more was left out."""
    chars_left = _MAX_RESULT_CHARS
    encoder = json.JSONEncoder(ensure_ascii=False, indent=1)
    for piece in encoder.iterencode(result):
        sys.stdout.buffer.write(piece[:chars_left].encode(errors="replace"))
        chars_left -= len(piece)
        if chars_left <= 0:
            remark = f"\n(Only the first {_MAX_RESULT_CHARS:,} characters of the result are here.)"
            sys.stdout.buffer.write(remark.encode())
            return
