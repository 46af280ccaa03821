"""All settings with their defaults: one class for each table of the file.

`config.load` decides where values come from and which layer wins. The comment after each
field is its documentation: docs/reference/settings.md is generated from it.

A name says what the setting contains and in which unit (`result_chars`,
`question_seconds`), because users read the file without this documentation, long after they
wrote it. A former name is an error that gives the new one.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, field

from refold.provider.settings import Context, Format, Override, ProgramSettings
from refold.values.modes import Effort, Mode
from refold.values.usage import DEFAULT_TOKENS

AtLeast0: TypeAlias = Annotated[int, Meta(ge=0)]
InARow: TypeAlias = Annotated[int, Meta(ge=0, le=50)]
AtLeast1: TypeAlias = Annotated[int, Meta(ge=1)]
AtLeast1000: TypeAlias = Annotated[int, Meta(ge=1_000)]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error", "off"]
SecurityProfile: TypeAlias = Literal["", "open", "cautious", "guarded", "paranoid"]
SearchService: TypeAlias = Literal["auto", "brave", "tavily", "searxng", "duckduckgo"]
Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Share: TypeAlias = Annotated[float, Meta(gt=0, le=1)]


class RuleWithCases(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A permission rule with examples, which are checked when the file is loaded."""

    rule: Word  # the rule, such as "bash(git log *)"
    match: tuple[Word, ...] = ()  # calls that it must match: a command, or a path
    not_match: tuple[Word, ...] = ()  # calls that it must not match
    source: str = ""  # filled in by refold: the file or flag that the rule comes from


class Permissions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules: `tool`, `tool(pattern)`, or a table. Rules of all layers add up."""

    allow: tuple[Word | RuleWithCases, ...] = ()  # calls that run without asking
    ask: tuple[Word | RuleWithCases, ...] = ()  # calls that always ask
    deny: tuple[Word | RuleWithCases, ...] = ()  # calls that are refused in every mode


class Sandbox(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What commands can reach on this machine, even if you allowed them."""

    profile: Literal["workspace", "read-only", "off"] = "workspace"  # what they can write
    network: bool = False  # every command reaches every host
    user_namespaces: bool = False  # commands can make namespaces: containers, browsers
    sign_commits: bool = False  # git in commands signs with the key in your ssh-agent
    writable: tuple[Word, ...] = ()  # more directories that commands can write, as ~/x
    readable: tuple[Word, ...] = ()  # more that `python` and read-only commands can read


_UNWATCHED_STEPS = 50  # model responses in a turn that only a program sees


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a turn. A step is one model response."""

    steps: AtLeast0 = 0  # model responses in one turn; 0: 50, unlimited if you look on
    wrap_up_steps: AtLeast0 = 3  # steps left when the model is asked to wrap up
    continuations: AtLeast0 = 3  # times in a row that a cut-off response is continued
    corrections: AtLeast0 = 3  # times that a response with the wrong schema is sent back
    final_summary: bool = True  # at the step limit, one more response sums up the turn
    repeated_calls: InARow = 3  # same calls and results in a row before a warning; 0: off
    alternating_calls: InARow = 3  # rounds of A-B-A-B before a warning; 0: off
    repeated_errors: InARow = 4  # same error in a row before the turn ends; 0: off
    repeated_searches: InARow = 3  # responses in a row that only search; 0: off
    refused_responses: AtLeast1 = 3  # consecutive responses whose calls were all refused
    result_chars: AtLeast1000 = 30_000  # characters of one tool result that the model sees
    output_tokens: AtLeast0 = 0  # tokens of one model response; 0: the provider's default
    question_seconds: NotNegative = 0.0  # until a question counts as "no"; 0: never
    answer_seconds: Seconds = 3600.0  # that a client over stdio has to answer
    command_processes: AtLeast1 = 512  # processes of one command, with all that it starts
    command_memory_mib: AtLeast0 = 0  # MiB that a command may use; 0: 3/4 of the machine's

    def turn_steps(self, *, watched: bool) -> int:
        """Return how many model responses a turn may have.

        0: no limit, because the turn is `watched` by a person.
        """
        return self.steps or (0 if watched else _UNWATCHED_STEPS)


class Spending(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The budget of one turn, subagents included. 0: no limit."""

    dollars: NotNegative = 5.0  # US dollars, for models with a known price
    tokens: AtLeast0 = DEFAULT_TOKENS  # uncached tokens, for models without a known price
    calls: AtLeast0 = 0  # model calls
    seconds: NotNegative = 0.0  # seconds; checked between steps


class ContextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the conversation is compacted. Shares are fractions of the context window."""

    default_window_tokens: AtLeast1000 = 32_000  # context window of an unknown model
    prune_share: Share = 0.5  # context usage that prunes old tool results; 1: never
    min_freed_share: Share = 0.2  # prune only if it frees at least this share
    kept_results: AtLeast0 = 3  # newest tool results that are never pruned
    compact_share: Share = 0.8  # context usage that summarizes old messages; 1: never
    kept_messages: AtLeast0 = 8  # newest messages that are not summarized, if they fit


class ChildSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Subagents: agents that work for another agent, each in a session of its own."""

    max_depth: AtLeast0 = 2  # levels of subagents; 0: no subagents
    max_concurrent: AtLeast1 = 8  # subagents of one session that run at the same time
    max_per_turn: AtLeast1 = 200  # subagents that one turn starts, on all levels
    teams: bool = False  # may the agent lead a team of up to five teammates?


class Python(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of code that a model writes, and of the models and agents that it calls."""

    fan_out: AtLeast1 = 50  # items of one map_lm or map_rlm
    max_concurrent: AtLeast1 = 8  # items that run at the same time
    rlm_depth: AtLeast0 = 1  # levels of rlm called by rlm
    engine: Literal["cpython", "monty"] = "cpython"  # what runs the code; monty: a subset
    rlm_model: str = ""  # model of the subagents that code starts; "": that of main
    rlm_steps: AtLeast1 = 25  # model responses in a turn of the agent `rlm`
    cell_seconds: Seconds = 120.0  # seconds of one cell, without the wait for calls
    call_seconds: Seconds = 120.0  # seconds of one model call made by code
    memory_mib: AtLeast1 = 2048  # MiB of the Python process
    cache: Literal["off", "session", "project"] = "off"  # where equal calls are cached
    calls_per_minute: AtLeast0 = 0  # model calls by code per provider; 0: no limit


class Local(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Embedded models: one server for each, which all your sessions share."""

    keep_seconds: Seconds = 600.0  # how long a server stays after its last use


class StorageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much space refold's files may take, without downloaded models."""

    quota_gb: NotNegative = 10.0  # GB above which a start warns; 0: never


class Http(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts and retries of requests to a provider."""

    connect_seconds: Seconds = 10.0  # seconds to connect
    idle_seconds: Seconds = 120.0  # seconds without any data, before or within a response
    retries: AtLeast0 = 3  # retries of a failed request; thrice that after an overload
    max_retry_wait_seconds: Seconds = 60.0  # longest Retry-After that is waited for


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider of your own, or changes to a built-in one."""

    wire: Literal[
        "", "anthropic", "openai-responses", "openai-chat", "gemini", "ollama"
    ] = ""  # its protocol
    base_url: str = ""  # the address of its API
    key_env: str = ""  # the environment variable that holds the key
    key_command: tuple[Word, ...] = ()  # a program that prints the key on its first line
    tools: Literal["auto", "native", "text"] = "auto"  # how its models call tools
    text_tools: tuple[str, ...] = ()  # patterns of models whose calls are read as text
    window: AtLeast0 = 0  # context window in tokens; 0: as known for each model
    quirks: dict[str, bool | str] = field(
        default_factory=dict[str, bool | str]
    )  # its oddities


class Backend(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the conversation is sent to a model."""

    context: Context | Literal[""] = ""  # what is sent; "": the backend's default
    format: Format | Literal[""] = ""  # as one text; "": messages where there can be
    window_messages: AtLeast0 = 0  # kept by "sliding", "summarize"; 0: its default


class Roles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models by role, each as provider/model. "": the same as `main`."""

    main: str = ""  # does the work; "": the first that is available
    small: str = ""  # summaries, titles and other small tasks
    big: str = ""  # tasks that are too hard for `main`
    judge: str = ""  # reviews the work of other agents


class RoleOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the model of a role answers. For an option that is not set, the provider decides."""

    temperature: Temperature | None = None  # of its responses; higher is more varied
    output_tokens: AtLeast0 = 0  # of one response; 0: limits.output_tokens


class ByRole(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the models in `[models]`, by role."""

    main: RoleOptions = RoleOptions()
    small: RoleOptions = RoleOptions()
    big: RoleOptions = RoleOptions()
    judge: RoleOptions = RoleOptions()


class WebSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the tools `web_fetch` and `web_search` use the web."""

    robots: bool = True  # leave pages alone that robots.txt of their site excludes
    search: SearchService = "auto"  # auto: the first service that has its variable


class Otel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sends each turn to a collector of OpenTelemetry when it has ended. Off by default."""

    endpoint: str = ""  # its address; "environment": as OTEL_EXPORTER_OTLP_ENDPOINT says
    content: bool = False  # also messages and calls


class CodeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Language servers, for the tools `symbols`, `references` and `diagnostics`."""

    servers: Literal["sandboxed", "off"] = "sandboxed"  # run those that are installed
    answer_seconds: Seconds = 30.0  # that a server has to start, and to answer a question
    after_edit: Literal["auto", "on", "off"] = "auto"  # new errors; auto: if one runs


class Terminal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the terminal draws and reads input."""

    display: Literal["auto", "plain", "status", "line", "full"] = "auto"  # auto: never full
    theme: Literal[
        "auto",
        "dark",
        "light",
        "dark-contrast",
        "light-contrast",
        "dark-daltonized",
        "light-daltonized",
        "mono",
    ] = "auto"  # auto: the terminal's colours
    vi: bool = False  # vi keys instead of Emacs keys
    show_tokens: bool = True  # after each turn, its tokens and cost
    mouse: bool = True  # the display full reads the mouse; hold Shift to select text
    images: bool = True  # the display full draws images, where the terminal can


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Set above the first table of the file."""

    models: Roles = Roles()
    effort: Effort = ""  # reasoning effort of the model; "": the provider's default
    model_aliases: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # your short names
    command_aliases: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # for slash commands
    workspaces: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # addresses of workspaces elsewhere, by your short names
    fallback_models: tuple[str, ...] = ()  # models to use while the main one is unavailable
    log_requests: bool = False  # save model requests and responses as sent, secrets masked
    secret_variables: tuple[
        str, ...
    ] = ()  # environment variables whose values are always masked
    log_level: LogLevel = "info"  # the lowest level that is written to `refold logs`
    security_profile: SecurityProfile = ""  # mode, sandbox and rules by one name; "": none
    permission_mode: Mode = "default"  # what runs without asking
    ask_after_outside_text: bool = False  # after a web page, the next change asks
    durability: Literal["kept", "written"] = "kept"  # kept: synced to disk; written: not
    agent: Word = "main"  # the agent of new sessions: its prompt, tools and rights
    preset: Word = "coding"  # the prompt of the agent `main`
    instructions: bool = True  # send AGENTS.md and the like from trusted folders
    skills: bool = True  # tell the model which skills there are
    memory: bool = True  # learn notes from what you say, and send them to the model
    titles: bool = True  # let a model write titles of sessions
    reminders: bool = True  # remind the model of open todos and changed files
    notify_seconds: NotNegative = 30.0  # a longer turn notifies at its end; 0: never
    checkpoints: bool = True  # snapshot files before a step that may change them
    result_cache: bool = False  # reuse results of reads while a file is unchanged
    permissions: Permissions = Permissions()
    sandbox: Sandbox = Sandbox()
    limits: Limits = Limits()
    budget: Spending = Spending()
    context: ContextSettings = ContextSettings()
    roles: ByRole = ByRole()
    subagents: ChildSettings = ChildSettings()
    python: Python = Python()
    web: WebSettings = WebSettings()
    otel: Otel = Otel()
    code: CodeSettings = CodeSettings()
    terminal: Terminal = Terminal()
    http: Http = Http()
    local: Local = Local()
    storage: StorageSettings = StorageSettings()
    providers: dict[str, Provider] = field(default_factory=dict[str, Provider])
    backend: Backend = Backend()
    commands: dict[str, ProgramSettings] = field(default_factory=dict[str, ProgramSettings])
    prices: dict[str, Override] = field(default_factory=dict[str, Override])
