"""Sets up the Python of a session, from the settings and the session's agent.

Most sessions never run any Python: of `rlm` only the module that holds the worker is
imported before code runs.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.agents.children import Children
from refold.agents.profile import Profile
from refold.config.settings import Python
from refold.engine.world import World
from refold.errors import BadInput
from refold.journal.session_index import SessionIndex
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.rate_limit import RateLimit
from refold.rlm.worker_port import Worker, WorkerKeeper, WorkerLimits
from refold.session.recorder import Recorder
from refold.tools.python_tool import PythonResult

if TYPE_CHECKING:
    from refold.rlm.memo import Memo
    from refold.rlm.repl import Repl

_MIB = 1024**2


class PythonSetup(Struct, frozen=True):
    """Shared by the Python processes of one start. `memo_directory` caches model responses of a project."""

    settings: Python
    directory: str
    rate: RateLimit  # shared by all sessions
    sessions: SessionIndex
    memo_directory: Path


class SessionPython:
    """Implements `tools.python_tool.Repl` for the session `id_`.

    Call `begin_turn` at the start of each turn. `begins` are the initial variables of a
    child; `depth` is the number of sessions above it whose code started the next one.
    """

    def __init__(
        self,
        setup: PythonSetup,
        record: Recorder,
        id_: str,
        children: Children,
        begins: InitialVariables,
        depth: int = 0,
    ) -> None:
        self._coding, self._record, self._id = setup, record, id_
        self._children, self._begins, self._depth = children, begins, depth
        self._keeper = WorkerKeeper(self._workers)
        self._repls: dict[str, Repl] = {}  # by agent: each has its own code_limits
        self._world: World | None = None
        self._agent: Profile | None = None

    def begin_turn(self, world: World, agent: Profile) -> None:
        """Set the world and the agent of a turn. The agent's `code_limits` apply."""
        self._world, self._agent = world, agent

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Keep the worker process while a turn runs, as `World.beside`; end it with the
        turn.
        """
        if self._begins.values:
            from refold.rlm.initial_variables import inject

            await inject(self._begins, self._record)
        async with self._keeper.background():
            yield

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        return await self._repl().run(call_id, cells, progress)

    def _turn_world(self) -> World:
        assert self._world is not None  # `begin_turn` is called before any call is made
        return self._world

    def _repl(self) -> "Repl":
        from refold.rlm.other_sessions import CodeSubagents, OtherSessions
        from refold.rlm.repl import Repl, ReplLimits

        assert self._agent is not None
        agent, coding = self._agent, self._coding
        if agent.name not in self._repls:
            limits = ReplLimits(
                code_limits=agent.code_limits,
                steps=agent.bounds.steps,
                memory=coding.settings.memory_mib * _MIB,
                rate=coding.rate,
                memo=self._memo(),
                below=CodeSubagents(self._children),
                snapshots=OtherSessions(coding.sessions, self._id, coding.directory),
                begins=self._begins,
                depth=self._depth,
            )
            repl = Repl(self._record, self._turn_world, self._keeper, limits)
            self._repls[agent.name] = repl
        return self._repls[agent.name]

    def _memo(self) -> "Memo | None":
        from refold.rlm.memo import ProjectMemo, SessionMemo

        match self._coding.settings.cache:
            case "off":
                return None
            case "session":
                return SessionMemo(self._record)
            case "project":
                return ProjectMemo(self._coding.memo_directory, self._record)

    @asynccontextmanager
    async def _workers(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AsyncGenerator[Worker]:
        from refold.rlm.worker import PythonWorkers

        commands = self._turn_world().commands
        assert commands is not None  # a session of the app has a workspace
        engine = self._coding.settings.engine
        workers = PythonWorkers(commands, self._coding.directory, engine)
        async with workers(limits, functions) as worker:
            yield worker


def check_engine(settings: Python) -> None:
    """Raise `BadInput` if the engine of the settings is not installed."""
    if settings.engine == "monty" and find_spec("pydantic_monty") is None:
        raise BadInput(
            'python.engine is "monty", which is not installed: pip install "refold[monty]", '
            'or set it to "cpython"'
        )


def memo_directory(data: Path, project: str) -> Path:
    """The directory in which responses of models are cached for a project."""
    return data / "memo" / sha256(project.encode(errors="surrogateescape")).hexdigest()[:16]
