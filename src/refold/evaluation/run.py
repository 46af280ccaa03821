"""Gives tasks to a model, each in a folder and a session of its own, and measures.

Sessions are not stored. `judge` judges a result, `report` computes the figures.
"""

import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from msgspec import Struct

from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.client.agent import Agent
from refold.client.session import Session
from refold.client.types import Entry, Frame, events
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.evaluation.judge import judge
from refold.evaluation.report import Trial
from refold.evaluation.tasks import Task
from refold.place.port import Files
from refold.provider.port import Provider
from refold.values.live import Waiting
from refold.values.modes import Mode
from refold.values.tools import Confinement

_COMMAND_SECONDS = 60.0
_MAX_ANSWER_CHARS = 1_000  # of an answer that are kept


class Conditions(Struct, frozen=True, kw_only=True):
    """The options of a run. `model` "": that of the settings. `seconds` is the limit of a task."""

    model: str = ""
    mode: Mode = "sandbox"
    seconds: float = 300.0
    samples: int = 1
    settings: dict[str, object] = {}
    provider: Callable[[Task], Provider] | None = None  # instead of the model


async def run_all(
    tasks: Sequence[Task], conditions: Conditions, report: Callable[[Trial], None]
) -> tuple[Trial, ...]:
    """Every task `samples` times, one after the other. `report` gets each result at once."""
    trials = list[Trial]()
    for sample in range(conditions.samples):
        for task in tasks:
            trials.append(await run_one(task, conditions, sample))
            report(trials[-1])
    return tuple(trials)


async def run_one(task: Task, conditions: Conditions, sample: int = 0) -> Trial:
    with TemporaryDirectory(prefix="refold-eval-") as path:
        folder = Path(path)
        async with _workspace(folder) as place:
            await anyio.to_thread.run_sync(_prepare, task, place.files)
            succeeds = partial(_succeeds, place)
            if task.setup and not await succeeds(task.setup):
                raise BadInput(f"task {task.name!r}: its setup failed: {task.setup}")
            watch = Stopwatch()
            async with _agent(task, conditions, folder).session() as session:
                if conditions.provider is None:
                    session.check_model()
                await _run_turn(session, task.prompt, conditions.seconds, watch)
                result, model = session.result, session.view.turn.model
            verdict = await judge(task, place.files, result.text, succeeds)
    return Trial(
        task=task.name,
        kind=task.kind,
        sample=sample,
        failures=verdict.failures,
        destroyed=verdict.destroyed,
        outcome=result.outcome,
        reason=result.reason,
        answer=result.text[:_MAX_ANSWER_CHARS],
        calls=tuple(watch.calls),
        steps=watch.steps,
        seconds=time.monotonic() - watch.began,
        load_seconds=watch.load,
        wait_seconds=watch.wait,
        write_seconds=watch.write,
        first_tokens=tuple(round(wait, 3) for wait in watch.first_tokens),
        input_tokens=result.usage.input,
        cached_tokens=result.usage.cached,
        output_tokens=result.usage.output,
        cost=result.cost,
        model=model,
    )


async def _run_turn(
    session: Session, prompt: str, seconds: float, watch: "Stopwatch"
) -> None:
    async def stop_in_time() -> None:
        await anyio.sleep(seconds)
        await session.cancel(f"it took longer than {seconds:g} s")

    async with anyio.create_task_group() as group:
        group.start_soon(stop_in_time)
        async with session.stream(prompt) as frames:
            async for frame in frames:
                watch.add_frame(frame)
        group.cancel_scope.cancel()


def _prepare(task: Task, files: Files) -> None:
    for name, text in task.files.items():
        files.write(files.real(name), text.encode(), expect="")


def _agent(task: Task, conditions: Conditions, folder: Path) -> Agent:
    settings = {**conditions.settings, "memory": False}
    if task.allow:
        settings["permissions.allow"] = list(task.allow)
    return Agent(
        model=conditions.model,
        mode=conditions.mode,
        provider=conditions.provider(task) if conditions.provider else None,
        directory=folder,
        persist=False,
        settings=settings,
    )


@asynccontextmanager
async def _workspace(folder: Path) -> AsyncGenerator[Workspace, None]:
    workspace = Workspace(
        Settings(), paths(os.environ), os.environ, WorkspaceDirectories(folder)
    )
    try:
        yield workspace
    finally:
        workspace.close()


async def _succeeds(place: Workspace, command: str) -> bool:
    """Run a command of a task in its folder, confined as those of a model."""
    result = await place.commands.run(
        command,
        cwd=place.directory,
        seconds=_COMMAND_SECONDS,
        confines=Confinement(writes=True, narrow=True),
    )
    return result.code == 0


class Stopwatch:
    """Measures where the time of a turn goes.

    `load`: an embedded model is loaded, and reads its first prompt; `wait`: from a request to
    the first token of the response; `write`: from there to its end. The rest is the work of
    tools. `first_tokens` has the wait of each response that came in pieces from a loaded model.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = self._asked = clock()
        self._loads = False
        self.load = self.wait = self.write = 0.0
        self.first_tokens = list[float]()
        self.steps = 0
        self.calls = list[str]()

    def add_frame(self, frame: Frame) -> None:
        match frame.item:
            case Entry(event=events.ModelAsked()):
                self._asked, self._loads = self._clock(), False
            case Waiting(reason=reason):
                self._loads = self._loads or reason.startswith("loading ")
            case Entry(event=events.ModelAnswered(message, first_piece=first)):
                self.steps += 1
                self.calls += [
                    f"{c.name} {bytes(c.arguments).decode()}" for c in message.calls
                ]
                self._add_response(first)
            case Entry(event=events.ModelFailed()):
                self._add_response(None)
            case _:
                pass

    def _add_response(self, first: float | None) -> None:
        """Add a response whose first token came after `first` seconds; None: unknown."""
        elapsed = self._clock() - self._asked
        until = elapsed if first is None else min(first, elapsed)
        self.write += elapsed - until
        if self._loads:
            self.load += until
            return
        self.wait += until
        if first is not None:
            self.first_tokens.append(until)
