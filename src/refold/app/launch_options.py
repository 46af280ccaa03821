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
    """The options that a client gives for one start."""

    directory: Path
    more_roots: tuple[Path, ...] = ()
    model: str = ""  # overrides the settings; may be a role
    attended: bool = True  # whether a user can be asked
    timed: bool = False  # whether the client limits the time of each turn
    watched: bool = False  # whether a person watches: in a terminal, a page, an editor
    trust: bool = False  # trust the files of the folder for this start
    like: str = ""  # the trusted directory of which the folder is a worktree
    own_system: str = ""  # replaces the system text of refold
    more_system: str = ""  # is appended to the system text
    tenant_keys: Mapping[str, TenantKey] = {}  # a worker's keys for a tenant, by provider
    script: Path | None = None  # a file with the responses, instead of a model
    record: Path | None = None  # a cassette to write model calls to
    replay: Path | None = None  # a cassette to take the answers from
    schema: Raw | None = None  # JSON Schema that final responses must match
    checks: str = ""  # the session whose claims a new session checks
    schedule: int = 0  # the schedule of which a new session is a run
    own_words: bool = True  # whether the user writes the messages, and not another agent
    keep: bool = True  # false: the journal is deleted when the process ends
    sessions: SessionIndex | None = None  # where sessions are stored; None: on this machine
    notices: tuple[str, ...] = ()  # further notices for the start
    given: RunLimits = NO_RUN_LIMITS  # settings from flags, for this start only
    provider: Provider | None = None  # a provider of the caller's own
    tools: tuple[Tool, ...] | None = None  # instead of the built-in ones
    tool_names: tuple[str, ...] | None = None  # the built-in tools to use; None: all
    more_tools: tuple[Tool, ...] = ()  # tools of declared agents, which name them
    dependencies: Mapping[str, object] = {}  # for the parameters of those tools after `*`
    # Agents in addition to the built-in ones and those of folders.
    agents: tuple[Profile, ...] = ()
    # Initial variables of the session's Python.
    initial_variables: InitialVariables = InitialVariables()
    # Servers of an editor or a program, as `mcpServers` in .mcp.json.
    mcp_servers: Mapping[str, object] = {}
    hooks: Mapping[str, object] = {}  # functions of a program, by event
    editor: Editor | None = None  # an editor that has files of the directories open

    @property
    def takes_notes(self) -> bool:
        """Whether notes may be made of the session.

        The session must be stored, and the user must write its messages: not an agent, and not
        a schedule.
        """
        return self.keep and self.own_words and not self.schedule


class DeclaredStart(Struct, frozen=True):
    """The options of a start that declared agents set.

    `profiles` and `tools` are those of all agents, the other fields those of the chosen agent.
    """

    profiles: tuple[Profile, ...] = ()
    model: str = ""
    settings: Mapping[str, object] = {}
    allow: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    address: tuple[str, int] = ("", 0)
    notices: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()  # the tools of all agents
