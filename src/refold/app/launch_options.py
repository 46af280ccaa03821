"""The options of one start of refold, in addition to its settings."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Raw, Struct

from refold.agents.profile import Profile
from refold.journal.session_index import SessionIndex
from refold.place.port import Editor
from refold.provider.port import Provider
from refold.rlm.initial_variables import InitialVariables
from refold.tools.contract import Tool
from refold.values.usage import NO_RUN_LIMITS, RunLimits


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """What a client asks of this start only."""

    directory: Path
    more_roots: tuple[Path, ...] = ()
    model: str = ""  # this one, whatever the settings say; a role, too
    attended: bool = True  # is there a user to ask?
    timed: bool = False  # does the client end each turn after a time of its own?
    watched: bool = False  # does a person look on: a terminal, a page, an editor?
    trust: bool = False  # the files of the folder are trusted, this time
    like: str = ""  # the trusted directory that the folder is a worktree of
    own_system: str = ""  # instead of our system text
    more_system: str = ""  # added to it
    script: Path | None = None  # answers from a file instead of a model
    record: Path | None = None  # a cassette to write model calls to
    replay: Path | None = None  # a cassette to take the answers from
    schema: Raw | None = None  # JSON Schema that final answers have to match
    checks: str = ""  # the session whose claims a new one checks
    schedule: int = 0  # the schedule that a new session is a run of
    own_words: bool = True  # the user writes the messages; false: another agent does
    keep: bool = True  # false: the journal ends with the process
    sessions: SessionIndex | None = None  # where they are stored; None: on this machine
    notices: tuple[str, ...] = ()  # what else a person has to be told at the start
    given: RunLimits = NO_RUN_LIMITS  # what of the settings only this start was told
    provider: Provider | None = None  # a provider of the caller's own
    tools: tuple[Tool, ...] | None = None  # instead of the built-in ones
    tool_names: tuple[str, ...] | None = None  # only these of them; None: all
    more_tools: tuple[Tool, ...] = ()  # of declared agents, which name them
    dependencies: Mapping[str, object] = {}  # what those tools name after their `*`
    agents: tuple[Profile, ...] = ()  # beside the built-in ones and those of folders
    begins: InitialVariables = InitialVariables()  # what its Python begins with
    mcp_servers: Mapping[
        str, object
    ] = {}  # of an editor or a program, as `mcpServers` in .mcp.json
    hooks: Mapping[str, object] = {}  # functions of a program, by their events
    editor: Editor | None = None  # has files of the directories open

    @property
    def takes_notes(self) -> bool:
        """Whether the messages of this start can become notes: they are the user's own."""
        return self.keep and self.own_words and not self.schedule


class DeclaredStart(Struct, frozen=True):
    """What a declared agent changes. `profiles` are all of them; the rest is of the chosen one."""

    profiles: tuple[Profile, ...] = ()
    model: str = ""
    settings: Mapping[str, object] = {}
    allow: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    address: tuple[str, int] = ("", 0)
    notices: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()  # of all of them
