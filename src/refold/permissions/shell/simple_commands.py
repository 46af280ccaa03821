"""The simple commands of a plain script, with their redirections, variables and loops.

`plain_script` parses them; other modules judge them.
"""

import re

from msgspec import Struct

from refold.permissions.shell.quoting import ShellWord
from refold.permissions.shell.words import UNKNOWN_GAP

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f]")


class Loop(Struct, frozen=True):
    """A loop over `words`. `mark` stands for the current word in the commands of the loop."""

    mark: str
    words: tuple[ShellWord, ...]


class Output(Struct, frozen=True):
    """A file to which a command writes its output, and the operator, such as `>>` or `2>`."""

    operator: str
    file: ShellWord


class SimpleCommand(Struct, frozen=True):
    """A simple command of a script, such as `git push`.

    It comes after the operator `after` ("" for the first command). Its input comes from the
    files `reads`, or with `has_inline_input` from a literal text; its output goes to `outputs`.
    `settings` are the variables set for it; a rule must include the `spelled_settings`. `before`
    are `time` and the settings after it, which the grammar counts as words. `after_group_edge`:
    a group or an `if` has begun or ended since the last command, so the directory of that
    command does not count.
    """

    words: tuple[ShellWord, ...]
    after: str = ""
    reads: tuple[ShellWord, ...] = ()
    has_inline_input: bool = False
    before: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()
    text: str = ""
    after_group_edge: bool = False
    outputs: tuple[Output, ...] = ()
    spelled_settings: tuple[str, ...] = ()

    @property
    def values(self) -> list[str]:
        return [word.value for word in self.words]

    @property
    def can_be_spelled_out(self) -> bool:
        """Whether a rule can spell out the command: its words and its input must be known."""
        if self.reads or self.loops:
            return False
        if self.has_inline_input and not self.stores_text:
            return False
        values = (value.replace(UNKNOWN_GAP, "") for value in self.values)
        return not any(map(CONTROL_CHARACTERS.search, values))

    @property
    def stores_text(self) -> bool:
        """Whether the command only stores its input, in files that it names or as a commit
        message.
        """
        match self.values:
            case ["cat"] | ["cat", "-"]:
                return bool(self.outputs)
            case ["tee", *files]:
                return bool(files)
            case ["git", "commit", *words]:
                return any(word in ("-F", "-", "--file=-") for word in words)
            case _:
                return False
