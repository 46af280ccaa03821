"""The options of one start of refold, in addition to its settings."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Raw, Struct

from refold.agents.profile import Profile
from refold.config.api_keys import TenantKey
from refold.journal.session_index import SessionIndex
from refold.place.port import Editor
from refold.provider.port import Provider
from refold.rlm.initial_variables import InitialVariables
from refold.tools.contract import Tool
from refold.values.usage import NO_RUN_LIMITS, RunLimits


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The options of a client for one start."""

    directory: Path
    more_roots: tuple[Path, ...] = ()
    model: str = ""  # overrides the settings; may be a role
    attended: bool = True  # whether a user can be asked
    timed: bool = False  # whether the client limits the time of each turn
    watched: bool = False  # whether a person watches: in a terminal, a page, an editor
    trust: bool = False  # trust the files of the folder for this start
    like: str = ""  # the trusted directory that the folder is a worktree of
    own_system: str = ""  # replaces our system text
    more_system: str = ""  # added to it
    tenant_keys: Mapping[str, TenantKey] = {}  # by provider, on a worker
    script: Path | None = None  # answers from a file instead of a model
    record: Path | None = None  # a cassette to write model calls to
    replay: Path | None = None  # a cassette to take the answers from
    schema: Raw | None = None  # JSON Schema that final responses must match
    checks: str = ""  # the session whose claims a new session checks
    schedule: int = 0  # the schedule of which a new session is a run
    own_words: bool = True  # the user writes the messages; false: another agent does
    keep: bool = True  # false: the journal ends with the process
    sessions: SessionIndex | None = None  # where they are stored; None: on this machine
    notices: tuple[str, ...] = ()  # further notices for the start
    given: RunLimits = NO_RUN_LIMITS  # settings for this start only, from flags
    provider: Provider | None = None  # a provider of the caller's own
    tools: tuple[Tool, ...] | None = None  # instead of the built-in ones
    tool_names: tuple[str, ...] | None = None  # only these of them; None: all
    more_tools: tuple[Tool, ...] = ()  # of declared agents, which name them
    dependencies: Mapping[str, object] = {}  # that those tools name after `*`
    agents: tuple[Profile, ...] = ()  # beside the built-in ones and those of folders
    begins: InitialVariables = InitialVariables()  # initial variables of its Python
    mcp_servers: Mapping[
        str, object
    ] = {}  # of an editor or a program, as `mcpServers` in .mcp.json
    hooks: Mapping[str, object] = {}  # functions of a program, by their events
    editor: Editor | None = None  # has open files of the directories

    @property
    def takes_notes(self) -> bool:
        """Whether the messages of this start can become notes: they are the user's own."""
        return self.keep and self.own_words and not self.schedule


class DeclaredStart(Struct, frozen=True):
    """Changes by declared agents. `profiles` are of all of them, the rest of the chosen one."""

    profiles: tuple[Profile, ...] = ()
    model: str = ""
    settings: Mapping[str, object] = {}
    allow: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    address: tuple[str, int] = ("", 0)
    notices: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()  # of all of them
