"""How far a command is kept in: said by the rules, heard by the place."""

from msgspec import Struct


class Confines(Struct, frozen=True):
    """What a command may do besides computing and reading. The place sees to it.

    With `writes` it may change files below the workspace, but no protected ones, save
    those in `opened`, absolute and with links followed: a person saw them named. Without
    `writes` it reads the workspace, what programs need, and what is in `seen`: paths that it
    names and a rule allows.
    """

    writes: bool = False
    network: bool = False
    opened: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
