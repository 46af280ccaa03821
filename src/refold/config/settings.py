"""What can be set, with its defaults. One class a table of the file.

Where values come from and which one holds is `config.load`'s business. Each
field is documented in docs/settings.md; a test compares the two.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from refold.provider.command.given import Command, Context, Format
from refold.provider.override import Override
from refold.values.effort import Effort
from refold.values.rights import Mode

AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)]
InARow: TypeAlias = Annotated[int, Meta(ge=0, le=50)]
AtLeast1: TypeAlias = Annotated[int, Meta(ge=1)]
AtLeast1000: TypeAlias = Annotated[int, Meta(ge=1_000)]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error", "off"]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class Written(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule with calls that it has to match, and others that it must not."""

    rule: Word
    match: tuple[Word, ...] = ()  # such as "git status -s", or a path
    not_match: tuple[Word, ...] = ()
    source: str = ""  # filled in by refold: the file or flag that the rule comes from


class Permissions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules, written `tool` or `tool(pattern)`, or as tables. Those of all layers count."""

    allow: tuple[Word | Written, ...] = ()
    ask: tuple[Word | Written, ...] = ()
    deny: tuple[Word | Written, ...] = ()


class Sandbox(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What commands can reach of this machine, whoever allowed them."""

    profile: Literal["workspace", "read-only", "off"] = "workspace"  # what they may write
    network: bool = False  # true: every command reaches the network
    writable: tuple[Word, ...] = ()  # more directories that commands may write in, as ~/x
    readable: tuple[Word, ...] = ()  # more that python, and what runs unasked, may read


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bounds a turn. Counts of model answers, unless said otherwise."""

    steps: AtLeast1 = 50  # answers in one turn
    warn: AtLeast0 = 3  # so many answers before that the model is told to wrap up
    continuations: AtLeast0 = 3  # times in a row that a cut-off answer is continued
    corrections: AtLeast0 = 3  # times that an answer without the asked shape goes back
    summary: bool = True  # the last answer of a turn that runs out of them sums it up
    repeats: InARow = 3  # the same call with the same result, before a nudge; 0: never
    alternations: InARow = 3  # two calls in turn, as A-B-A-B, so often; 0: never
    searches: InARow = 3  # web searches in a row, before a nudge; 0: never
    errors: InARow = 4  # the same error in a row, before the turn ends; 0: never
    refusals: AtLeast1 = 3  # answers in a row whose every call was refused
    result: AtLeast1000 = 30_000  # characters of one result that the model sees
    output: AtLeast0 = 0  # tokens of one answer; 0: the provider's default
    question: Seconds = 300.0  # seconds that a question stands on a screen; then it is no
    answer: Seconds = 3600.0  # seconds that a program has to answer one over stdio
    processes: AtLeast1 = 512  # that a command and all it starts may be
    memory: AtLeast0 = 0  # MiB that they may use together; 0: 3/4 of the machine's


class Spending(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one turn, with all that it starts, may use up. 0: no limit."""

    dollars: NotNegative = 5.0  # US dollars, where prices are known
    tokens: AtLeast0 = 2_000_000  # uncached ones, where a price is not known
    calls: AtLeast0 = 0  # of models
    seconds: NotNegative = 0.0  # looked at between the steps


class ContextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the talk is told shorter, and how much of it stays. Shares are of the window."""

    window: AtLeast1000 = 32_000  # tokens, where a model's own is not known
    prune: Share = 0.5  # so full, old results become lines; 1: never
    frees: Share = 0.2  # and only where that frees so much
    results: AtLeast0 = 3  # the newest results, which stay
    compact: Share = 0.8  # so full, what is old becomes a summary; 1: never
    messages: AtLeast0 = 8  # the newest messages, which stay


class Children(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Agents that work for another agent, each in a session of its own."""

    depth: AtLeast0 = 2  # children below children; 0: none at all
    at_once: AtLeast1 = 8  # of one session that work at the same time
    total: AtLeast1 = 200  # that one turn starts, with all below them


class Python(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Code that a model writes, and the models and agents that it calls."""

    fan_out: AtLeast1 = 50  # items of one map_lm or map_rlm
    at_once: AtLeast1 = 8  # of them that are worked on at the same time
    depth: AtLeast0 = 1  # rlm below rlm
    steps: AtLeast1 = 25  # answers in a turn of the agent rlm
    cell: Seconds = 120.0  # of one cell; while it waits for a call they do not count
    call: Seconds = 120.0  # of one model call that code makes
    memory: AtLeast1 = 2048  # MiB
    memo: Literal["off", "session", "project"] = "off"  # are equal model calls made once?
    per_minute: AtLeast0 = (
        0  # calls of one provider that code may make in a minute; 0: no limit
    )


class Http(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How patient we are with a provider. Seconds."""

    connect: Seconds = 10.0
    idle: Seconds = 120.0  # silence, before or between pieces of an answer
    retries: AtLeast0 = 3  # times that a request without any answer is made again
    longest_wait: Seconds = 60.0  # a provider that asks for more is not waited for


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider of your own, or what is different about a built-in one."""

    wire: Literal[
        "", "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
    ] = ""
    base_url: str = ""
    key_env: str = ""  # the variable that holds the key
    key_command: tuple[Word, ...] = ()  # a program that prints the key on its first line
    tools: Literal["auto", "native", "text"] = "auto"  # how its models call tools
    text_tools: tuple[str, ...] = ()  # patterns of models whose calls are read as text
    window: AtLeast0 = 0  # tokens that its models read; 0: what is known of each
    quirks: dict[str, bool | str] = field(default_factory=dict[str, bool | str])


class Backend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the talk is told to another agent's command line. "" and 0: as each has it."""

    context: Context | Literal[""] = ""
    format: Format | Literal[""] = ""
    window: AtLeast0 = 0  # messages that "sliding" and "summarize" leave whole


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models by what they are for, each as provider/model. "": as `main`."""

    main: str = ""  # does the work; "": what can be found
    small: str = ""  # summaries, titles and other small things
    big: str = ""  # what the main one finds too hard
    judge: str = ""  # looks at the work of others


class Terminal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line terminal: how it is drawn and how it is typed into."""

    display: Literal["auto", "plain", "status", "line"] = "auto"  # auto: what it can do
    theme: Literal["auto", "dark", "light", "mono"] = "auto"  # auto: the terminal's colours
    vi: bool = False  # the keys of vi instead of those of Emacs


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: Roles = Roles()
    effort: Effort = ""  # how hard the model thinks; "": as the provider has it
    fallback: tuple[str, ...] = ()  # models to ask while the main one is down
    trace: bool = False  # keep every model call exactly as it went over the wire
    log: LogLevel = "info"  # what is written down for `refold logs`, from this level on
    permission_mode: Mode = "default"
    durability: Literal["kept", "written"] = "kept"
    agent: Word = "main"  # who works: its prompt, tools and rights
    preset: Word = "coding"  # the prompt of the agent `main`
    instructions: bool = True  # heed AGENTS.md and its kin in trusted folders
    skills: bool = True  # tell the model which skills there are
    memory: bool = True  # learn what to remember, and tell the model
    titles: bool = True  # have a model find titles of sessions that were left
    reminders: bool = True  # tell the model of open todos and of files others changed
    notify: NotNegative = 30.0  # seconds of work after which its end rings; 0: never
    checkpoints: bool = True  # keep files as they are before a step that may change them
    permissions: Permissions = Permissions()
    sandbox: Sandbox = Sandbox()
    limits: Limits = Limits()
    budget: Spending = Spending()
    context: ContextSettings = ContextSettings()
    children: Children = Children()
    python: Python = Python()
    terminal: Terminal = Terminal()
    http: Http = Http()
    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    backend: Backend = Backend()
    commands: dict[str, Command] = field(default_factory=dict[str, Command])
    prices: dict[str, Override] = field(default_factory=dict[str, Override])
