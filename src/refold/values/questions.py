"""What a model asks a person, as a value: for the tool that asks and the doors that show it."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

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
