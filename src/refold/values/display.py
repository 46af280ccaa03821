"""What a tool shows the person, beside its words for the model.

Nobody parses the model's text to draw a screen: a tool says what there is to
see as one of these, and every screen draws it its own way.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from refold.values.control import Todo


class Diff(Struct, frozen=True, tag="diff"):
    """A file changed. `text` is a unified diff without its two header lines.

    `before` and `after` are sha256 of the whole content, "" where there is none.
    """

    path: str
    kind: Literal["created", "changed", "deleted"]
    text: str
    before: str = ""
    after: str = ""


class Output(Struct, frozen=True, tag="output"):
    """What a command printed, and how it ended. `code` is None when it was ended."""

    command: str
    text: str
    code: int | None
    ended: str = ""  # by us, and why


class Note(Struct, frozen=True, tag="note"):
    """One line: "read src/app.py, 120 lines"."""

    text: str


class Checklist(Struct, frozen=True, tag="checklist"):
    """The todos as they are now."""

    items: tuple[Todo, ...]

    @property
    def text(self) -> str:
        return "\n".join(f"[{todo.status}] {todo.subject}" for todo in self.items)


Shown: TypeAlias = Diff | Output | Note | Checklist


# What a model asks a person, as a value: for the tool that asks and the doors that show it.

ASK_USER = "ask_user"  # the tool whose calls are questions


class Option(Struct, frozen=True):
    label: str
    about: str = ""


class Asking(Struct, frozen=True):
    """One question. Without options, or beside them, the person answers in words."""

    question: str
    options: list[Option] = []
    many: bool = False  # more than one option may be chosen


def asked(arguments: bytes | Raw) -> Sequence[Asking]:
    """The questions of a call's arguments; none where they are no such thing."""
    try:
        return msgspec.json.decode(arguments, type=_Arguments).questions
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


class _Arguments(Struct, frozen=True):
    questions: list[Asking] = []
