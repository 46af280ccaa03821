"""Checks a change of a file: whether it can still be parsed, and how much of it is lost.

Both checks only compare the new text of the file with the old one. They do not read the
request, so they work for every human language. `code.edit_checks` asks language servers for
more.

Earlier checks parsed requests in English, for small models. On twenty tasks for which they had
not been tuned, a 1.5B model did 18 with them and 17 without, and destroyed nothing either way,
so they were removed: they were 29 % of the engine's lines, for one language. A change that
breaks the syntax is noted and not refused, because edits in several steps are legitimate.
"""

from collections import Counter
from collections.abc import Callable, Collection

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Real
from refold.tools.contract import Reply
from refold.values.display import Note
from refold.values.printable_names import escape_name

_MAX_PARSED_CHARS = 1_000_000
_MAX_YAML_CHARS = 100_000  # parsing this takes about a second
_MAX_ERROR_CHARS = 200
_MIN_LINES = 20  # a smaller file may be replaced without reading it


def add_syntax_note(reply: Reply, name: str, before: str, after: str) -> Reply:
    """Return `reply` with the `syntax_note` for the model and the user, if there is a note."""
    note = syntax_note(name, before, after)
    if not note:
        return reply
    return replace(reply, text=f"{reply.text}\n{note}", shown=(*reply.shown, Note(note)))


def syntax_note(name: str, before: str, after: str) -> str:
    """Return a sentence if `before` can be parsed and `after` cannot; otherwise "".

    The suffix of `name` selects the parser. If `before` cannot be parsed, the file may be a
    template or have an unknown dialect. Long files are not parsed.
    """
    parse = _parser(name)
    limit = _MAX_YAML_CHARS if parse is _parse_yaml else _MAX_PARSED_CHARS
    if parse is None or max(len(before), len(after)) > limit:
        return ""
    error = _parse_error(parse, after)
    if not error or _parse_error(parse, before):
        return ""
    return f"{name} could be parsed before this change, and cannot be now: {error}."


def check_loss(
    real: Real, name: str, before: str, after: str, unread: Collection[str]
) -> None:
    """Raise `ToolFailed` if a change drops more than half of the lines of an `unread` file.

    `unread` are the files that have changed since the model last read them. Short files are not
    checked.
    """
    if escape_name(real) not in unread:
        return
    old_lines = before.splitlines()
    if len(old_lines) < _MIN_LINES:
        return
    dropped_lines = Counter(old_lines) - Counter(after.splitlines())
    dropped = dropped_lines.total()
    if dropped > len(old_lines) / 2:
        raise ToolFailed(
            f"Not written: {dropped} of the {len(old_lines)} lines of {name} would be lost, and it "
            "was changed since you last read it. Read it, then write it; or make the same call "
            "again if that is meant."
        )


def _parser(name: str) -> Callable[[str], object] | None:
    """Return a function that raises an error for invalid syntax; None for other files."""
    match name.rpartition(".")[2].lower():
        case "json" | "ipynb":
            from json import loads

            return loads
        case "toml":
            from tomllib import loads

            return loads
        case "py" | "pyi":
            return _parse_python
        case "yaml" | "yml":
            return _parse_yaml
        case _:
            return None


def _parse_python(text: str) -> None:
    """Raise the error of the parser if the text is not valid Python."""
    import warnings

    from refold.values.python_syntax import parse_module

    # Warnings, for example about escapes, would be printed on the screen.
    warnings.filterwarnings("ignore", module=r"<changed file>\Z")
    parse_module(text, "<changed file>")


def _parse_yaml(text: str) -> None:
    """Raise `ValueError` if the text is not valid YAML."""
    import yaml

    try:
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _parse_error(parse: Callable[[str], object], text: str) -> str:
    """Return the message of the syntax error in `text`, or ""."""
    try:
        parse(text)
    except (ValueError, SyntaxError) as error:
        return " ".join(str(error).split())[:_MAX_ERROR_CHARS].rstrip(".")
    except (RecursionError, MemoryError):
        return ""  # nested too deeply for the parser; the file may be valid
    return ""
