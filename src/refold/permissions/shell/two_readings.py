"""Compares how the strict parser and the grammar of bash parse a script.

It is certain what the script runs only if both find the same commands. `plain_script` is the
strict parser, `script` has the grammar; other modules decide what the commands mean.
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
    """Return why it is uncertain what the script runs, or "" if it is certain.

    The text names the part of the script that is uncertain.
    """
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
    """Return the problem of one command of a script.

    If the script has several commands, the text quotes this one.
    """
    where = "" if len(every) == 1 else f", in {short_text(command.part.text)}"
    return f"{command.problem}{where}"


def _mismatch(
    surveyed: Sequence[SurveyedCommand], script: Script
) -> SurveyedCommand | None:
    """Return the first command that the two parsers parse differently, or None."""
    theirs = [[word.text for word in simple.words] for simple in script.commands]
    for command in surveyed:
        if not theirs or not _is_same_command(command.part, theirs.pop(0)):
            return command
        # The grammar also finds the `cat` that inserts a text.
        for _ in filter(None, (word.inserted for word in command.part.words)):
            if not theirs or theirs.pop(0) != ["cat"]:
                return command
    return surveyed[-1] if theirs else None


def _is_same_command(part: SimpleCommand, theirs: Sequence[str]) -> bool:
    """Whether `part`, which the strict parser found, has the words that the grammar found."""
    ours = [*part.before, *(word.before_insertion for word in part.words)]
    if ours[0] == theirs[0] == "[":
        return True
    if part.fed:  # the grammar loses a dash before a here-document
        ours, theirs = (
            [w for w in ours if w != "-"],
            [w for w in theirs if w != "-"],
        )
    marks = [loop.mark for loop in part.loops]
    # Only the strict parser knows the words of a loop.
    return len(ours) == len(theirs) and all(
        expected == actual or any(mark in expected for mark in marks)
        for expected, actual in zip(ours, theirs, strict=True)
    )
