"""Values that a tool shows the user, apart from its text for the model, and questions to the
user.

The text for the model is never parsed to draw a screen: a tool returns these values, and
each client displays them in its own way.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from refold.values.control import Todo


class Diff(Struct, frozen=True, tag="diff"):
    """The change of a file. `text` is a unified diff without its two header lines.

    `before` and `after` are the sha256 of the whole content; "" means no file. `recoded` names
    a change of encoding, as "windows-1252 to UTF-8"; "" means no change.
    """

    path: str
    kind: Literal["created", "changed", "deleted"]
    text: str
    before: str = ""
    after: str = ""
    recoded: str = ""

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of lines that `text` adds and removes."""
        signs = [row[:1] for row in self.text.split("\n")]
        return signs.count("+"), signs.count("-")


class RunConditions(Struct, frozen=True):
    """The conditions under which a program would run. If `hosts` is not "", it can reach only
    these hosts.
    """

    sandboxed: bool
    network: bool = False
    opened: tuple[str, ...] = ()  # protected files that it may write
    hosts: str = ""
    shown: tuple[str, ...] = ()  # protected files that it may only read


# Why a command may not reach a host. "unnamed": no rule and no question names the host;
# "asked": only an ask rule names it; "denied": a deny rule names it; "private": its name
# leads into a private network; "never": it leads to a place that no rule can permit.
HostRefusal: TypeAlias = Literal["", "unnamed", "asked", "denied", "private", "never"]


class HostAttempt(Struct, frozen=True):
    """A host that a command tried to reach.

    `refused` is a sentence that says why the connection was refused, and `kind` names the
    reason for programs. Both are "" if the host was reached.
    """

    host: str
    port: int
    times: int = 1
    refused: str = ""
    kind: HostRefusal = ""


class Output(Struct, frozen=True, tag="output"):
    """The output of a command, and how it ended. `code` is None if refold ended it.

    If `text` is long, a note replaces its middle; `left_out` is the number of lines in the
    middle.
    """

    command: str
    text: str
    code: int | None
    ended: str = ""  # why refold ended it, or ""
    attempts: tuple[HostAttempt, ...] = ()  # the hosts that it reached, or tried to
    left_out: int = 0  # number of lines that are missing in `text`


class Note(Struct, frozen=True, tag="note"):
    """One line for the user, such as "read src/app.py, 120 lines"."""

    text: str


class Checklist(Struct, frozen=True, tag="checklist"):
    """The todo list after a change."""

    items: tuple[Todo, ...]

    @property
    def text(self) -> str:
        return "\n".join(f"[{todo.status}] {todo.subject}" for todo in self.items)


Shown: TypeAlias = Diff | Output | Note | Checklist


ASK_USER = "ask_user"  # the tool whose calls are questions
# A part of a question's id. It marks questions that a tool asks within its own call.
NESTED_QUESTION = ".ask-"


class Option(Struct, frozen=True):
    label: str
    about: str = ""


FieldKind: TypeAlias = Literal["text", "integer", "number", "boolean", "choice", "choices"]
FormValue: TypeAlias = str | int | float | bool | list[str]
FormAction: TypeAlias = Literal["accept", "decline", "cancel"]


class FormOption(Struct, frozen=True, omit_defaults=True):
    """A value that may be chosen. `title` is its name for the user; if "", the user reads the
    value itself.
    """

    value: str
    title: str = ""

    @property
    def label(self) -> str:
        return self.title or self.value


class FormField(Struct, frozen=True, omit_defaults=True):
    """A field of a form.

    `low` and `high` bound a number, the length of a text or the number of choices.
    """

    name: str
    kind: FieldKind
    title: str = ""
    about: str = ""
    required: bool = False
    options: tuple[FormOption, ...] = ()
    default: FormValue | None = None
    format: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        return self.title or self.name


class Form(Struct, frozen=True, omit_defaults=True):
    """A form in which the MCP server `server` asks the user for values.

    If `url` is set, the user is asked to open that address instead. If `problem` is set, it
    says why the form cannot be shown: the user can then only decline or cancel.
    """

    server: str
    message: str
    fields: tuple[FormField, ...] = ()
    url: str = ""
    problem: str = ""

    @property
    def defaults(self) -> dict[str, FormValue]:
        return {f.name: f.default for f in self.fields if f.default is not None}


class FormAnswer(Struct, frozen=True, omit_defaults=True):
    """The user's answer to a form: `decline` refuses, and `cancel` leaves the question
    undecided.
    """

    action: FormAction
    content: dict[str, FormValue] = {}

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


class AskedQuestion(Struct, frozen=True):
    """One question to the user, who can always answer with text instead of an option.

    If `form` is set, an MCP server asks, and the answer is a `FormAnswer` as JSON.
    """

    question: str
    options: list[Option] = []
    many: bool = False  # more than one option may be chosen
    form: Form | UnsetType = UNSET


class OptionArgument(Struct, frozen=True):
    # No docstring, because models would get it with each request.
    label: str
    about: str = ""
    description: str = ""  # what models that know other agents write

    @property
    def as_asked(self) -> Option:
        return Option(self.label, self.about or self.description)


class QuestionArgument(Struct, frozen=True):
    """The user can always answer with text."""

    question: str
    options: list[OptionArgument | str] = []  # models write the label alone, too
    many: bool = False  # more than one option may be chosen

    @property
    def as_asked(self) -> AskedQuestion:
        """Return the question with an `Option` for each option, also for a mere label."""
        options = [
            Option(option) if isinstance(option, str) else option.as_asked
            for option in self.options
        ]
        return AskedQuestion(self.question, options, self.many)


def parse_questions(
    arguments: bytes | Raw, *, forms: bool = False
) -> Sequence[AskedQuestion]:
    """Return the questions in a call's arguments; none if the arguments are invalid.

    With `forms`, the questions may have forms: refold itself made the call. Models cannot ask
    with a form.
    """
    try:
        if forms:
            return msgspec.json.decode(arguments, type=_Forms).questions
        questions = msgspec.json.decode(arguments, type=_Arguments).questions
        return [question.as_asked for question in questions]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()


class _Arguments(Struct, frozen=True):
    questions: list[QuestionArgument] = []


class _Forms(Struct, frozen=True):
    questions: list[AskedQuestion] = []
