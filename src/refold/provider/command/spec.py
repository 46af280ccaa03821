"""Describes a program as data: how to start it, what to send, and how to parse its output.

`json_path` parses the paths that find a value in a JSON line. `parse_own_commands` reads the
programs in the user's settings; `backends` lists those that refold knows.
"""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from refold.errors import BadInput
from refold.provider.command.json_path import JsonPath, json_paths
from refold.provider.error_mapping import mask_secrets
from refold.provider.port import Stop
from refold.provider.settings import Context, Format, ProgramSettings, UsagePlaces

OWN_PREFIX = "command"  # the user's own programs are named command/NAME

# The placeholders that may be in braces in an argument, a variable or a file.
SLOT_NAMES = frozenset(
    {"prompt", "prompt_file", "system", "system_file", "model", "effort", "files"}
)


class ConversationFormat(Struct, frozen=True):
    """How the conversation is passed to a program. Empty fields mean the default."""

    context: Context | Literal[""] = ""
    format: Format | Literal[""] = ""
    window: int = 0  # messages that `sliding` and `summarize` include in full

    def with_defaults(self, defaults: "ConversationFormat") -> "ConversationFormat":
        """Return this format with empty fields filled from `defaults`."""
        return ConversationFormat(
            self.context or defaults.context,
            self.format or defaults.format,
            self.window or defaults.window,
        )


class ProgramTimeouts(Struct, frozen=True):
    """Time limits for a program, in seconds."""

    idle: float = 120.0  # time without output, before or between pieces of an answer
    linger: float = 3.0  # from the last output to the exit
    grace: float = 1.0  # from SIGTERM to SIGKILL


class Counts(Struct, frozen=True):
    """The paths of the token counts in a JSON line.

    `inclusive` says that `input` includes cached tokens. `total` is for programs whose `output`
    lacks the tokens of thinking: everything in `total` that is not `input` is output.
    """

    input: tuple[JsonPath, ...] = ()
    cached: tuple[JsonPath, ...] = ()
    cache_write: tuple[JsonPath, ...] = ()
    output: tuple[JsonPath, ...] = ()
    reasoning: tuple[JsonPath, ...] = ()
    total: tuple[JsonPath, ...] = ()
    inclusive: bool = False


class ProgramOutput(Struct, frozen=True):
    """The format of a program's standard output.

    If `kind` is "text", all of it is the response. If it is "jsonl", each line is a JSON value,
    and the other fields are paths in it: `text` finds the pieces of the response in order,
    `whole` the complete response (used if there were no pieces), and `end` a value that only
    the last line has.
    """

    kind: Literal["text", "jsonl"] = "text"
    text: tuple[JsonPath, ...] = ()
    whole: tuple[JsonPath, ...] = ()
    thinking: tuple[JsonPath, ...] = ()
    error: tuple[JsonPath, ...] = ()
    end: tuple[JsonPath, ...] = ()
    model: tuple[JsonPath, ...] = ()
    stop: tuple[JsonPath, ...] = ()
    cost: tuple[JsonPath, ...] = ()
    counts: Counts = Counts()
    # the meaning of its words for a stop; any other word means "end"
    stops: Mapping[str, Stop] = {}
    between: str = ""  # inserted between two pieces of text
    # Counts in the text on standard error: (field of `Usage`, pattern).
    printed: tuple[tuple[str, str], ...] = ()
    # pattern of lines that are about the run and not part of the response
    about_run: str = ""


class CommandSpec(Struct, frozen=True, kw_only=True):
    """A program that is used as a model. Any argument may contain placeholders like `{model}`.

    `tools` is "none" if the program has no tools, and "off" if arguments switch them off. If it
    is "on", the program runs only in a read-only sandbox.
    """

    name: str
    label: str  # its name in messages
    argv: tuple[str, ...]
    model_argv: tuple[str, ...] = ()  # added if a model is named
    effort_argv: tuple[str, ...] = ()  # added if an effort is requested
    efforts: Mapping[str, str] = {}  # its own words for efforts, if they differ
    stdin: bool = True  # the prompt is written to stdin; otherwise stdin is closed
    output: ProgramOutput = ProgramOutput()
    tools: Literal["none", "off", "on"] = "on"
    tools_off_by: str = ""  # a description, for people, of what switches them off
    model: str = ""  # the model if the user names none
    needs_model: bool = False
    install: str = ""  # how to get the program
    login: str = ""  # what to do when its login fails
    keys: tuple[str, ...] = ()  # variables with keys that it may see
    environ: Mapping[str, str] = {}  # variables to set; may contain placeholders
    unset: tuple[str, ...] = ()  # variables that it must not see
    files: Mapping[str, str] = {}  # written before it starts, into `{files}`
    host_env: str = ""  # the variable for the address of its server
    aliases: tuple[str, ...] = ()
    conversation: ConversationFormat = ConversationFormat("continue", "plain", 20)
    idle: float = 0.0  # seconds without output; 0: as for any other provider

    @property
    def slots(self) -> str:
        """Everything that may contain placeholders, as one text."""
        arguments = (*self.argv, *self.model_argv, *self.effort_argv)
        return "\n".join((*arguments, *self.environ.values(), *self.files.values()))


def parse_own_commands(commands: Mapping[str, ProgramSettings]) -> tuple[CommandSpec, ...]:
    """Return the programs in the user's settings. Raises `BadInput` for an invalid entry."""
    return tuple(from_settings(name, settings) for name, settings in commands.items())


def from_settings(name: str, settings: ProgramSettings) -> CommandSpec:
    """Return the program that the user's settings describe. Raises `BadInput`."""
    section = f"[commands.{name}]"
    _check_settings(section, name, settings)
    text = "\n".join((*settings.command, *settings.environ.values()))
    has_prompt_slot = "{prompt}" in text or "{prompt_file}" in text
    uses_stdin = not has_prompt_slot
    if settings.stdin is not None:
        uses_stdin = settings.stdin
    if not (uses_stdin or has_prompt_slot):
        raise BadInput(
            f"{section} would never see the prompt: put {{prompt}} or {{prompt_file}} into "
            "`command`, or leave out stdin = false"
        )
    return CommandSpec(
        name=f"{OWN_PREFIX}/{name.lower()}",
        label=f"{OWN_PREFIX}/{name}",
        argv=settings.command,
        stdin=uses_stdin,
        output=_program_output(section, settings),
        tools=settings.tools or "on",
        model=settings.model,
        needs_model="{model}" in text,
        install=settings.install,
        keys=settings.keys,
        environ=settings.environ,
        idle=settings.idle,
        conversation=ConversationFormat(settings.context, settings.format, settings.window),
    )


def _check_settings(section: str, name: str, settings: ProgramSettings) -> None:
    """Raise `BadInput` if the settings of a program are not valid."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise BadInput(f"{section}: a name has letters, digits, and - _ . only")
    if not (settings.command and settings.command[0].strip()):
        raise BadInput(f'{section} needs command = ["prog", …]')
    if not settings.tools:
        raise BadInput(
            f'{section} must say tools = "none": that this program runs nothing and changes '
            "nothing by itself; one that does cannot be a command of yours"
        )
    if settings.window < 1:
        raise BadInput(f"{section}: window = {settings.window} is not a number of messages")
    if settings.idle < 0:
        raise BadInput(f"{section}: idle = {settings.idle:g} is not a time")
    if "{" in settings.command[0]:
        raise BadInput(
            f"{section}: the program itself, {settings.command[0]!r}, cannot be a placeholder"
        )
    for argument in (*settings.command, *settings.environ.values()):
        if unknown := _unknown_slot(argument):
            raise BadInput(
                f"{section}: there is no placeholder {{{unknown}}}; there are "
                + ", ".join(f"{{{slot}}}" for slot in sorted(SLOT_NAMES))
            )
        if mask_secrets(argument, secret="") != argument:
            raise BadInput(
                f"{section}: a key must not stand in a command line, where others can read it: "
                "put it into a variable, and name that in `keys`"
            )


def _unknown_slot(argument: str) -> str:
    """Return the first placeholder of an argument that is not in `SLOT_NAMES`, or ""."""
    names: list[str] = re.findall(r"\{([a-z_]+)\}", argument)
    return next((name for name in names if name not in SLOT_NAMES), "")


def _program_output(section: str, settings: ProgramSettings) -> ProgramOutput:
    """Return the format of the output that the settings describe. Raises `BadInput`."""
    paths = (
        settings.text,
        settings.whole,
        settings.thinking,
        settings.error,
        settings.end,
        settings.cost,
    )
    if settings.output == "text":
        if any(paths) or settings.usage != UsagePlaces():
            raise BadInput(
                f'{section}: places are for output = "jsonl", and it says "text"'
            )
        return ProgramOutput()
    if not (settings.text or settings.whole):
        raise BadInput(
            f'{section}: where is the answer in a line of JSON? Say text = "place" or '
            'whole = "place"'
        )
    usage = settings.usage
    return ProgramOutput(
        "jsonl",
        text=json_paths(settings.text),
        whole=json_paths(settings.whole),
        thinking=json_paths(settings.thinking),
        error=json_paths(settings.error),
        end=json_paths(settings.end),
        cost=json_paths(settings.cost),
        counts=Counts(
            input=json_paths(usage.input),
            cached=json_paths(usage.cached),
            cache_write=json_paths(usage.cache_write),
            output=json_paths(usage.output),
            reasoning=json_paths(usage.reasoning),
            inclusive=usage.input_has_cached,
        ),
    )
