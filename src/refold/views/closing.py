"""What a person should know under an answer, whatever the answer claims. Pure.

The journal says whether the last command failed, and which files were to be written and
were not: the model's own words are not asked.
"""

from collections.abc import Iterator

from refold.journal.fold import View
from refold.journal.mishaps import CommandFailure
from refold.values.below import near
from refold.views.escape import on_one_line
from refold.views.styled import Line, line

# The person stopped it and knows why; or it planned, and nothing was to be done yet.
_CLAIMS_NOTHING = ("interrupted", "cancelled", "plan_ready")
_NAMED = 5  # files
_SHORT = 100  # characters of a command, or of a reason


def warnings(view: View) -> tuple[str, ...]:
    """Sentences about the newest turn, without marks at their ends. None: all went well."""
    if view.turn.outcome in _CLAIMS_NOTHING:
        return ()
    failed = view.mishaps.command
    return (*([_of_command(failed)] if failed else ()), *_of_files(view))


def closing(view: View) -> list[Line]:
    """The same as lines for a screen."""
    return [line(warning, "warn") for warning in warnings(view)]


def _of_command(failed: CommandFailure) -> str:
    command = _cut(failed.command)
    if failed.code is None:
        why = f" ({on_one_line(failed.ended)})" if failed.ended else ""
        return f"the last command was ended before it was done{why}: {command}"
    return f"the last command failed with code {failed.code}: {command}"


def _of_files(view: View) -> Iterator[str]:
    unwritten = list(view.mishaps.unwritten.items())
    for path, why in unwritten[:_NAMED]:
        name = on_one_line(near(path, view.about.directory))
        yield f"{name} was not written: {_cut(why)}"
    if len(unwritten) > _NAMED:
        yield f"{len(unwritten) - _NAMED} more files were not written"


def _cut(text: str) -> str:
    plain = on_one_line(text)
    return plain if len(plain) <= _SHORT else plain[: _SHORT - 1] + "…"
