"""Compares how the strict parser and the grammar of bash read a script.

Only where both find the same commands is it certain what the script runs. `plain_script` is the
strict parser, `script` has the grammar; what the commands mean is judged elsewhere.
"""

from collections.abc import Sequence

from refold.permissions.shell.nested_commands import NestedCommands
from refold.permissions.shell.plain_script import SimpleCommand, split_script
from refold.permissions.shell.quoting import short_text
from refold.permissions.shell.read_only import SurveyedCommand
from refold.permissions.shell.script import Script, read_script


def why_uncertain(
    text: str, nested: NestedCommands, surveyed: Sequence[SurveyedCommand]
) -> str:
    """Why it is uncertain what the script runs, and which part; "" if it is certain."""
    if not text.strip():
        return "it is empty"
    if problem := split_script(text).problem:
        return problem
    if not surveyed:
        return f"{short_text(text)} holds no command"
    odd = _mismatch(surveyed, read_script(text))
    if odd is None and not nested.broken and not nested.hidden:
        return ""
    if known := next((part_problem(c, surveyed) for c in surveyed if c.problem), ""):
        return known
    part = short_text(odd.part.text if odd else surveyed[0].part.text)
    if nested.hidden:
        return f"{part} runs a shell whose commands are not known yet"
    return f"{part} has more than one meaning"


def part_problem(command: SurveyedCommand, every: Sequence[SurveyedCommand]) -> str:
    """The problem of a part, which is named if there are several."""
    where = "" if len(every) == 1 else f", in {short_text(command.part.text)}"
    return f"{command.problem}{where}"


def _mismatch(
    surveyed: Sequence[SurveyedCommand], script: Script
) -> SurveyedCommand | None:
    """The first command that the strict parser and the grammar parse differently."""
    theirs = [[word.text for word in simple.words] for simple in script.commands]
    for command in surveyed:
        if not theirs or not _is_same_command(command.part, theirs.pop(0)):
            return command
        for _ in filter(None, (word.inserted for word in command.part.words)):
            if not theirs or theirs.pop(0) != ["cat"]:
                return command
    return surveyed[-1] if theirs else None


def _is_same_command(part: SimpleCommand, other_words: Sequence[str]) -> bool:
    mine = [*part.before, *(word.before_insertion for word in part.words)]
    if mine[0] == other_words[0] == "[":
        return True
    if part.fed:  # the grammar loses a dash before a here-document
        mine, other_words = (
            [w for w in mine if w != "-"],
            [w for w in other_words if w != "-"],
        )
    marks = [loop.mark for loop in part.loops]
    # Only the strict parser knows the words of a loop.
    return len(mine) == len(other_words) and all(
        expected == actual or any(mark in expected for mark in marks)
        for expected, actual in zip(mine, other_words, strict=True)
    )
