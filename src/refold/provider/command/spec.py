"""A command line as data: how it is started, fed and read.

Which ones are built in says `backends`; a person's own come from `templates`.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from refold.provider.command.given import Context, Format
from refold.provider.command.paths import Where
from refold.provider.port import Stop

OWN = "command"  # a person's own are named command/NAME

# What may stand in braces in an argument, in a variable and in a file.
SLOTS = frozenset(
    {"prompt", "prompt_file", "system", "system_file", "model", "effort", "files"}
)


class Talk(Struct, frozen=True):
    """How the talk is told to a program. What is empty is left open."""

    context: Context | Literal[""] = ""
    format: Format | Literal[""] = ""
    window: int = 0  # messages that `sliding` and `summarize` leave whole

    def over(self, other: "Talk") -> "Talk":
        """This, and where it is open the other."""
        return Talk(
            self.context or other.context,
            self.format or other.format,
            self.window or other.window,
        )


class ProgramTimeouts(Struct, frozen=True):
    """How long a program is waited for, in seconds."""

    idle: float = 120.0  # silence, before or between pieces of an answer
    linger: float = 3.0  # from its last word to its end
    grace: float = 1.0  # from the request to end to the order


class Counts(Struct, frozen=True):
    """Where the counts of tokens stand. `inclusive`: in `input`, cached ones too.

    Of a program that tells only how many words it said, and not how many it thought,
    `total` says that: all that is not `input` was put out.
    """

    input: tuple[Where, ...] = ()
    cached: tuple[Where, ...] = ()
    cache_write: tuple[Where, ...] = ()
    output: tuple[Where, ...] = ()
    reasoning: tuple[Where, ...] = ()
    total: tuple[Where, ...] = ()
    inclusive: bool = False


class ProgramOutput(Struct, frozen=True):
    """What a program prints on its standard output.

    With `text` all of it is the answer. With `jsonl` each line is a JSON document,
    and places say what is where: `text` are pieces in their order, `whole` is the
    answer at once, taken where no piece came; `end` stands in the last line.
    """

    kind: Literal["text", "jsonl"] = "text"
    text: tuple[Where, ...] = ()
    whole: tuple[Where, ...] = ()
    thinking: tuple[Where, ...] = ()
    error: tuple[Where, ...] = ()
    end: tuple[Where, ...] = ()
    model: tuple[Where, ...] = ()
    stop: tuple[Where, ...] = ()
    cost: tuple[Where, ...] = ()
    counts: Counts = Counts()
    stops: Mapping[str, Stop] = {}  # what its words for a stop mean; else: "end"
    between: str = ""  # put between two pieces of text
    # Counts in what is printed on standard error: (field of `Usage`, pattern).
    printed: tuple[tuple[str, str], ...] = ()


class CommandSpec(Struct, frozen=True, kw_only=True):
    """A program as a model. Slots as `{model}` may stand in every argument.

    `tools` says how it is with its own tools: it has "none", they are switched
    "off" by its arguments, or they stay "on", and then it is not run.
    """

    name: str
    label: str  # as messages name it
    argv: tuple[str, ...]
    model_argv: tuple[str, ...] = ()  # added where a model is named
    effort_argv: tuple[str, ...] = ()  # added where an effort is wished for
    efforts: Mapping[str, str] = {}  # where it has another word for one
    stdin: bool = True  # the prompt goes in there; else it is closed
    output: ProgramOutput = ProgramOutput()
    tools: Literal["none", "off", "on"] = "on"
    tools_off_by: str = ""  # what does it, in words for a person
    model: str = ""  # the one to take when a person names none
    needs_model: bool = False
    install: str = ""  # how to get the program
    login: str = ""  # what to do when it does not let us in
    keys: tuple[str, ...] = ()  # variables with keys that are its own business
    environ: Mapping[str, str] = {}  # variables to set; slots may stand there too
    unset: tuple[str, ...] = ()  # variables that it must not see
    files: Mapping[str, str] = {}  # written before it starts, into `{files}`
    host_env: str = ""  # the variable that says where its server is
    talk: Talk = Talk("continue", "plain", 20)
    idle: float = 0.0  # seconds it may be silent; 0: as with any other provider

    @property
    def slots(self) -> str:
        """Everything that slots may stand in, as one text."""
        arguments = (*self.argv, *self.model_argv, *self.effort_argv)
        return "\n".join((*arguments, *self.environ.values(), *self.files.values()))
