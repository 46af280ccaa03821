"""What the line terminal may use beside the session. The app fills it in."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from refold.agents.profile import OfferedTools
from refold.agents.registry import Registry
from refold.app.project_memory import Learned, ProjectMemory
from refold.errors import BadInput
from refold.journal.home import Home
from refold.journal.state.fold import View
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
from refold.place.port import Files, Snapshots
from refold.session.session import Session
from refold.skills.catalogue import Catalogue
from refold.skills.slash_commands import Shortcuts
from refold.tools.contract import Tool
from refold.values.modes import Effort, Mode
from refold.values.usage import NO_LIMIT, Budget

# Shows these lines, asks the question below them, and says whether the answer is yes.
Asks: TypeAlias = Callable[[Sequence[str], str], Awaitable[bool]]


class Way(Struct, frozen=True):
    """Where a person wants to go on: in which session, and where that is to work.

    `directory` is a real path, "": as it is; `added` belongs to its workspace from then
    on. With `tree` it works in a git working tree of that name ("": called after the time).
    """

    session: str
    directory: str = ""
    added: tuple[str, ...] = ()
    tree: str | None = None


async def _only_this_model(name: str) -> str:
    raise BadInput(f"the model cannot be changed here, so {name!r} was not chosen")


def _not_remembered(key: str, value: str) -> None:
    raise BadInput(f"{key} = {value!r} cannot be made the default here")


def _no_snapshots(view: View) -> Snapshots | None:
    return None


async def _only_this_session() -> Session:
    raise BadInput("a new session cannot be started here: quit, and start refold again")


async def _no_fork(view: View, at: int | None) -> Session:
    raise BadInput("a session cannot be forked here: leave, and say refold -c --fork")


async def only_here(left: Session, way: "Way", asks: Asks) -> "Arrived":
    raise BadInput(
        f"nothing can be gone over to here: leave, and say refold -r {way.session}"
    )


async def _no_settings(keys: tuple[str, ...]) -> Sequence[str]:
    raise BadInput("settings cannot be shown here: refold config show does it")


async def _nothing_learned(session: Session) -> Learned:
    raise BadInput("notes cannot be made of a session here")


class Surroundings(Struct, frozen=True, kw_only=True):
    """`choose_model` gives the full name, provider/model, or raises `BadInput`.

    The terminal records the choice itself.
    `remember` makes a setting the default of every session to come; `settings` tells those
    of these keys, or all, a line each. `go_on` leaves a session, closes it, and takes one
    up where the way leads; it raises where that cannot be, and all is as it was. `new_session` opens
    another session in the same directory; the terminal closes the one it leaves, and any
    that it asked for; the first one stays its giver's to close as well. `rules`, `mode`
    and `facts` are what calls are judged by: from them follows which rule can be offered.
    `always` saves an allow rule for this folder, in the file `saved_in`. `snapshots` are
    of the files of this session, for going back; None where none are taken. `learn` makes
    notes of a session and says what came of it; `learn_idle` does so while nobody types.
    """

    model: str = ""  # the one in use until a person chooses another
    models: Sequence[str] = ()  # names to offer and to complete
    choose_model: Callable[[str], Awaitable[str]] = _only_this_model
    remember: Callable[[str, str], None] = _not_remembered
    new_session: Callable[[], Awaitable[Session]] = _only_this_session
    fork: Callable[[View, int | None], Awaitable[Session]] = _no_fork  # at an event, or now
    go_on: Callable[[Session, Way, Asks], Awaitable["Arrived"]] = only_here
    home: Home | None = None  # where sessions are kept; None: nowhere
    settings: Callable[[tuple[str, ...]], Awaitable[Sequence[str]]] = _no_settings
    files: Files | None = None  # of the workspace; None: they cannot be looked at here
    tools: Sequence[Tool] = ()
    given: Callable[[Session], OfferedTools] | None = (
        None  # tools of the next turn; None: all
    )
    rules: Sequence[Rule] = ()
    effort: Effort = ""  # until a person chooses another
    budget: Budget = NO_LIMIT  # of a turn, until a person chooses another
    steps: int = 50  # answers of a turn, until a person chooses another number
    window: int = 32_000  # tokens, where a model's own is not known
    notify: float = 0.0  # seconds of work after which its end rings; 0: never
    agents: Registry = Registry()  # those that may be chosen
    agent: str = "main"  # who works until a person chooses another
    preset: str = ""  # the prompt of the agent `main`
    presets: Callable[[], Sequence[tuple[str, str]]] = tuple  # names, and what they are for
    skills: Catalogue | None = None  # None: they are off
    shortcuts: Shortcuts | None = (
        None  # what `/name words` stands for, where it is no command
    )
    remembering: ProjectMemory | None = None  # None: memory is off
    learn: Callable[[Session], Awaitable[Learned]] = _nothing_learned
    learn_idle: Callable[[Session], Awaitable[object]] | None = None  # unasked; None: never
    idle: float = 600.0  # seconds without a word, after which that is done
    mode: Mode = "default"  # until a person chooses another
    facts: Callable[[], Facts] = Facts
    unread: Callable[[str], str] = lambda _: ""  # why a file may not be read, or ""
    always: Callable[[str], None] | None = None
    saved_in: str = ""
    snapshots: Callable[[View], Snapshots | None] = _no_snapshots
    history: Path | None = None  # of what was typed; None: not kept
    color: bool | None = None  # None: as the terminal and NO_COLOR say
    display: str = "auto"
    theme: str = "auto"
    vi: bool = False  # the keys of vi at the prompt
    # Sessions that a command may name: ids, names and titles, the newest first.
    sessions: Callable[[], Sequence[tuple[str, str, str]]] = tuple
    notices: Sequence[str] = ()  # said at the start: no sandbox, a journal mended

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.spec.name == name), None)


class Arrived(Struct, frozen=True):
    """A session that was taken up, what is around it, and what the person has to know."""

    session: Session
    around: Surroundings
    notices: Sequence[str] = ()
