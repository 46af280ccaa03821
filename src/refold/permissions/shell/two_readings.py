"""Compares how the strict parser and the grammar of bash parse a script.

It is certain what the script runs only if both find the same commands. `plain_script` is the
strict parser, `script` has the grammar; other modules decide what the commands mean.
"""

from collections.abc import Sequence

from refold.permissions.shell.nested_commands import NestedCommands
from refold.permissions.shell.plain_script import split_script
from refold.permissions.shell.quoting import short_text
from refold.permissions.shell.read_only import SurveyedCommand
from refold.permissions.shell.script import Script, read_script
from refold.permissions.shell.simple_commands import SimpleCommand


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
    mismatch = _mismatch(surveyed, read_script(text))
    if mismatch is None and not nested.broken and not nested.hidden:
        return ""
    # A problem of a command says more than the reasons below.
    for command in surveyed:
        if command.problem:
            return part_problem(command, surveyed)
    uncertain_command = mismatch or surveyed[0]
    part = short_text(uncertain_command.part.text)
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
    commands_of_grammar = [[word.text for word in c.words] for c in script.commands]
    for command in surveyed:
        if not commands_of_grammar:
            return command
        if not _is_same_command(command.part, commands_of_grammar.pop(0)):
            return command
        # The grammar also finds the `cat` that inserts a text.
        for word in command.part.words:
            if not word.inserted:
                continue
            if not commands_of_grammar or commands_of_grammar.pop(0) != ["cat"]:
                return command
    return surveyed[-1] if commands_of_grammar else None


def _is_same_command(part: SimpleCommand, words_of_grammar: Sequence[str]) -> bool:
    """Whether `part`, which the strict parser found, has the words that the grammar found."""
    expected = [*part.before, *(word.before_insertion for word in part.words)]
    actual = list(words_of_grammar)
    if expected[0] == actual[0] == "[":
        return True
    if part.has_inline_input:  # the grammar loses a dash before a here-document
        expected = [word for word in expected if word != "-"]
        actual = [word for word in actual if word != "-"]
    if len(expected) != len(actual):
        return False
    # Only the strict parser knows the words of a loop.
    loop_marks = [loop.mark for loop in part.loops]
    return all(
        expected_word == actual_word or any(mark in expected_word for mark in loop_marks)
        for expected_word, actual_word in zip(expected, actual, strict=True)
    )
