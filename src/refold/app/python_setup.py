"""Sets up the Python process of a session, from the settings and the session's agent.

Most sessions never run any Python. So before code runs, only the module of `rlm` that manages
the process is imported.
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
    """What the Python processes of all sessions of one start share.

    `memo_directory` has stored model responses of the project.
    """

    settings: Python
    directory: str
    rate: RateLimit  # shared by all sessions
    sessions: SessionIndex
    memo_directory: Path


class SessionPython:
    """Runs the Python code of the session `id_`: implements `tools.python_tool.Repl`.

    Call `begin_turn` at the start of each turn. The Python of a subagent starts with the
    variables `initial_variables`. `depth` is the number of its ancestors that were started by
    code.
    """

    def __init__(
        self,
        setup: PythonSetup,
        record: Recorder,
        id_: str,
        children: Children,
        initial_variables: InitialVariables,
        depth: int = 0,
    ) -> None:
        self._setup, self._record, self._id = setup, record, id_
        self._children, self._depth = children, depth
        self._initial_variables = initial_variables
        self._keeper = WorkerKeeper(self._workers)
        self._repls: dict[str, Repl] = {}  # by agent: each has its own limits
        self._world: World | None = None
        self._agent: Profile | None = None

    def begin_turn(self, world: World, agent: Profile) -> None:
        """Use this world and this agent, with its `code_limits`, in the turn that begins."""
        self._world, self._agent = world, agent

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Let the Python process run while the context is open.

        `World.beside` opens the context, which ends with the turn.
        """
        if self._initial_variables.values:
            from refold.rlm.initial_variables import inject

            await inject(self._initial_variables, self._record)
        async with self._keeper.background():
            yield

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        return await self._repl().run(call_id, cells, progress)

    def _turn_world(self) -> World:
        assert self._world is not None  # `begin_turn` was called before any call
        return self._world

    def _repl(self) -> "Repl":
        """Return the Python session of the current agent, which is created at its first use."""
        from refold.rlm.other_sessions import CodeSubagents, OtherSessions
        from refold.rlm.repl import Repl, ReplLimits

        assert self._agent is not None
        agent, setup = self._agent, self._setup
        if agent.name not in self._repls:
            limits = ReplLimits(
                code_limits=agent.code_limits,
                steps=agent.bounds.steps,
                memory=setup.settings.memory_mib * _MIB,
                rate=setup.rate,
                memo=self._memo(),
                subagents=CodeSubagents(self._children),
                snapshots=OtherSessions(setup.sessions, self._id, setup.directory),
                initial_variables=self._initial_variables,
                depth=self._depth,
            )
            repl = Repl(self._record, self._turn_world, self._keeper, limits)
            self._repls[agent.name] = repl
        return self._repls[agent.name]

    def _memo(self) -> "Memo | None":
        """Return the store of earlier results of code; None if the cache is off."""
        from refold.rlm.memo import ProjectMemo, SessionMemo

        match self._setup.settings.cache:
            case "off":
                return None
            case "session":
                return SessionMemo(self._record)
            case "project":
                return ProjectMemo(self._setup.memo_directory, self._record)

    @asynccontextmanager
    async def _workers(
        self, limits: WorkerLimits, functions: Mapping[str, tuple[str, ...]]
    ) -> AsyncGenerator[Worker]:
        """Yield a Python process that runs the code. Its sandbox is that of commands."""
        from refold.rlm.worker import PythonWorkers

        commands = self._turn_world().commands
        assert commands is not None  # a session of the app has a workspace
        engine = self._setup.settings.engine
        workers = PythonWorkers(commands, self._setup.directory, engine)
        async with workers(limits, functions) as worker:
            yield worker


def check_engine(settings: Python) -> None:
    """Raise `BadInput` if the Python engine that the settings name is not installed."""
    if settings.engine == "monty" and find_spec("pydantic_monty") is None:
        raise BadInput(
            'python.engine is "monty", which is not installed: pip install "refold[monty]", '
            'or set it to "cpython"'
        )


def memo_directory(data: Path, project: str) -> Path:
    """Return the directory in which the model responses of a project are stored."""
    digest = sha256(project.encode(errors="surrogateescape")).hexdigest()
    return data / "memo" / digest[:16]
