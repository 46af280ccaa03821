"""A command line as data: how to start it, what to send, and how to parse its output.

`json_path` reads the paths that find a value in a JSON line, `parse_own_commands` those of
the user's settings. `builtin` has those that refold knows.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from refold.errors import BadInput
from refold.provider.error_mapping import mask_secrets
from refold.provider.port import Stop
from refold.provider.settings import Context, Format, ProgramSettings, UsagePlaces

OWN_PREFIX = "command"  # a person's own are named command/NAME

# What may stand in braces in an argument, in a variable and in a file.
SLOT_NAMES = frozenset(
    {"prompt", "prompt_file", "system", "system_file", "model", "effort", "files"}
)


class ConversationFormat(Struct, frozen=True):
    """How the conversation is passed to a program. Empty fields mean the default."""

    context: Context | Literal[""] = ""
    format: Format | Literal[""] = ""
    window: int = 0  # messages that `sliding` and `summarize` leave whole

    def with_defaults(self, defaults: "ConversationFormat") -> "ConversationFormat":
        """This format, with its empty fields taken from `defaults`."""
        return ConversationFormat(
            self.context or defaults.context,
            self.format or defaults.format,
            self.window or defaults.window,
        )


class ProgramTimeouts(Struct, frozen=True):
    """Time limits for a program, in seconds."""

    idle: float = 120.0  # silence, before or between pieces of an answer
    linger: float = 3.0  # from its last word to its end
    grace: float = 1.0  # from the request to end to the order


Steps: TypeAlias = tuple[str, ...]


# Not jmespath: measured at version 1.1, compiling a path takes 15 times as long, a search
# six times, its import more than all of this module's, and its errors name no setting.
class JsonPath(Struct, frozen=True):
    """A path in a JSON document, and conditions on other values in it."""

    steps: Steps
    conditions: tuple[tuple[Steps, str], ...] = ()

    def find(self, line: Any) -> Any:
        """The value there; None if there is none, or if a condition is not met."""
        if all(
            _word(_follow_steps(line, steps)) == wanted for steps, wanted in self.conditions
        ):
            return _follow_steps(line, self.steps)
        return None


class Counts(Struct, frozen=True):
    """The paths of the token counts. `inclusive`: `input` includes cached tokens.

    Some programs count the tokens of their text only, without their thinking. Then `total`
    is the path of the sum: all that is not `input` is output.
    """

    input: tuple[JsonPath, ...] = ()
    cached: tuple[JsonPath, ...] = ()
    cache_write: tuple[JsonPath, ...] = ()
    output: tuple[JsonPath, ...] = ()
    reasoning: tuple[JsonPath, ...] = ()
    total: tuple[JsonPath, ...] = ()
    inclusive: bool = False


class ProgramOutput(Struct, frozen=True):
    """What a program prints on its standard output.

    With `text` all of it is the response. With `jsonl` each line is a JSON document, and
    paths find the values: `text` are pieces in their order, `whole` is the response at
    once, used if there was no piece; `end` is in the last line.
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
    stops: Mapping[str, Stop] = {}  # what its words for a stop mean; else: "end"
    between: str = ""  # put between two pieces of text
    # Counts in what is printed on standard error: (field of `Usage`, pattern).
    printed: tuple[tuple[str, str], ...] = ()
    about_run: str = ""  # pattern of the lines that are about the run, and no response


class CommandSpec(Struct, frozen=True, kw_only=True):
    """A program as a model. Placeholders such as `{model}` may be in every argument.

    `tools` is the state of its own tools: it has "none", its arguments switch them "off",
    or they stay "on", and then it runs only in a read-only sandbox.
    """

    name: str
    label: str  # as messages name it
    argv: tuple[str, ...]
    model_argv: tuple[str, ...] = ()  # added if a model is named
    effort_argv: tuple[str, ...] = ()  # added if an effort is requested
    efforts: Mapping[str, str] = {}  # its own words for efforts, where they differ
    stdin: bool = True  # the prompt is written to stdin; otherwise stdin is closed
    output: ProgramOutput = ProgramOutput()
    tools: Literal["none", "off", "on"] = "on"
    tools_off_by: str = ""  # what switches them off, in words for a person
    model: str = ""  # the model if the user names none
    needs_model: bool = False
    install: str = ""  # how to get the program
    login: str = ""  # what to do when its login fails
    keys: tuple[str, ...] = ()  # variables with keys that it may see
    environ: Mapping[str, str] = {}  # variables to set; may contain placeholders
    unset: tuple[str, ...] = ()  # variables that it must not see
    files: Mapping[str, str] = {}  # written before it starts, into `{files}`
    host_env: str = ""  # the variable that says where its server is
    aliases: tuple[str, ...] = ()
    conversation: ConversationFormat = ConversationFormat("continue", "plain", 20)
    idle: float = 0.0  # seconds without output; 0: as for any other provider

    @property
    def slots(self) -> str:
        """Everything that may contain placeholders, as one text."""
        arguments = (*self.argv, *self.model_argv, *self.effort_argv)
        return "\n".join((*arguments, *self.environ.values(), *self.files.values()))


_STEP_PATTERN = r"[^\s.=]+"


def json_path(text: str) -> JsonPath:
    """Parse a path. Raises `BadInput` if `text` is none."""
    path, _, conditions_text = text.strip().partition(" if ")
    pairs = [condition.partition("=") for condition in conditions_text.split()]
    if not all(equals for _, equals, _ in pairs):
        raise BadInput(f"{text!r} is not a path: after `if` comes name=value")
    conditions = tuple((_steps(name, text), wanted) for name, _, wanted in pairs)
    return JsonPath(_steps(path.strip(), text), conditions)


def json_paths(*texts: str) -> tuple[JsonPath, ...]:
    return tuple(json_path(text) for text in texts if text)


def _steps(path: str, text: str) -> Steps:
    steps = tuple(path.split("."))
    if not all(re.fullmatch(_STEP_PATTERN, step) for step in steps):
        raise BadInput(
            f"{text!r} is not a path in a line of JSON: write it as "
            "`message.text` or `message.text if type=answer`"
        )
    return steps


def _follow_steps(value: Any, steps: Steps) -> Any:
    for step in steps:
        match value:
            case {}:
                value = cast("dict[str, Any]", value).get(step)
            case [*items] if re.fullmatch(r"-?\d{1,9}", step):
                place = int(step)
                value = items[place] if -len(items) <= place < len(items) else None
            case _:
                return None
    return value


def _word(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            return ""


def parse_own_commands(commands: Mapping[str, ProgramSettings]) -> tuple[CommandSpec, ...]:
    """All programs in the settings. Raises `BadInput` for an invalid one."""
    return tuple(from_settings(name, settings) for name, settings in commands.items())


def from_settings(name: str, settings: ProgramSettings) -> CommandSpec:
    section = f"[commands.{name}]"
    _check(section, name, settings)
    text = "\n".join((*settings.command, *settings.environ.values()))
    in_slot = "{prompt}" in text or "{prompt_file}" in text
    stdin = settings.stdin if settings.stdin is not None else not in_slot
    if not (stdin or in_slot):
        raise BadInput(
            f"{section} would never see the prompt: put {{prompt}} or {{prompt_file}} into "
            "`command`, or leave out stdin = false"
        )
    return CommandSpec(
        name=f"{OWN_PREFIX}/{name.lower()}",
        label=f"{OWN_PREFIX}/{name}",
        argv=settings.command,
        stdin=stdin,
        output=_output(section, settings),
        tools=settings.tools or "on",
        model=settings.model,
        needs_model="{model}" in text,
        install=settings.install,
        keys=settings.keys,
        environ=settings.environ,
        idle=settings.idle,
        conversation=ConversationFormat(settings.context, settings.format, settings.window),
    )


def _check(section: str, name: str, settings: ProgramSettings) -> None:
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
    if _unknown(settings.command[0]) or "{" in settings.command[0]:
        raise BadInput(
            f"{section}: the program itself, {settings.command[0]!r}, cannot be a placeholder"
        )
    for argument in (*settings.command, *settings.environ.values()):
        if unknown := _unknown(argument):
            raise BadInput(
                f"{section}: there is no placeholder {{{unknown}}}; there are "
                + ", ".join(f"{{{slot}}}" for slot in sorted(SLOT_NAMES))
            )
        if mask_secrets(argument, "") != argument:
            raise BadInput(
                f"{section}: a key must not stand in a command line, where others can read it: "
                "put it into a variable, and name that in `keys`"
            )


def _unknown(argument: str) -> str:
    names: list[str] = re.findall(r"\{([a-z_]+)\}", argument)
    return next((name for name in names if name not in SLOT_NAMES), "")


def _output(section: str, settings: ProgramSettings) -> ProgramOutput:
    named = (
        settings.text,
        settings.whole,
        settings.thinking,
        settings.error,
        settings.end,
        settings.cost,
    )
    if settings.output == "text":
        if any(named) or settings.usage != UsagePlaces():
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
            json_paths(usage.input),
            json_paths(usage.cached),
            json_paths(usage.cache_write),
            json_paths(usage.output),
            json_paths(usage.reasoning),
            inclusive=usage.input_has_cached,
        ),
    )
