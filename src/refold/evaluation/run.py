"""Gives tasks to a model, each in its own folder and session, and measures time and tokens.

The sessions are not stored. `judge` checks the result of a task, and `report` computes the
figures.
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
_MAX_ANSWER_CHARS = 1_000  # characters of an answer that are stored


class Conditions(Struct, frozen=True, kw_only=True):
    """The options with which tasks are run.

    `model` "" means the model in the settings. `seconds` is the time limit of one attempt,
    `samples` the number of attempts at each task. If `provider` is set, it is called with each
    task, and returns the provider to use in place of the model.
    """

    model: str = ""
    mode: Mode = "sandbox"
    seconds: float = 300.0
    samples: int = 1
    settings: dict[str, object] = {}
    provider: Callable[[Task], Provider] | None = None


async def run_all(
    tasks: Sequence[Task], conditions: Conditions, report: Callable[[Trial], None]
) -> tuple[Trial, ...]:
    """Run every task `samples` times, and return the attempts.

    `report` is called after each attempt.
    """
    trials = list[Trial]()
    for sample in range(conditions.samples):
        for task in tasks:
            trials.append(await run_one(task, conditions, sample))
            report(trials[-1])
    return tuple(trials)


async def run_one(task: Task, conditions: Conditions, sample: int = 0) -> Trial:
    """Attempt a task once, and return the judged attempt.

    `sample` is the number of the attempt. Raises `BadInput` if the setup of the task fails.
    """
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
    """Send the prompt, and wait for the end of the turn, which is cancelled after `seconds`."""

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
    """Write the files of the task into its folder."""
    for name, text in task.files.items():
        files.write(files.real(name), text.encode(), expect="")


def _agent(task: Task, conditions: Conditions, folder: Path) -> Agent:
    """Return the agent that works on the task in `folder`. It has no memory."""
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
    """Yield a workspace for the folder with default settings, and close it afterwards."""
    workspace = Workspace(
        Settings(), paths(os.environ), os.environ, WorkspaceDirectories(folder)
    )
    try:
        yield workspace
    finally:
        workspace.close()


async def _succeeds(place: Workspace, command: str) -> bool:
    """Run a command in the task's folder, and return whether its exit code was 0.

    The command is confined like commands of a model.
    """
    result = await place.commands.run(
        command,
        cwd=place.directory,
        seconds=_COMMAND_SECONDS,
        confines=Confinement(writes=True, narrow=True),
    )
    return result.code == 0


class Stopwatch:
    """Measures, from the events of a turn, how its time is spent, in seconds.

    `load` is the time in which an embedded model is loaded and reads its first prompt. `wait`
    is the time from a request to the first token of its response, if no model is loaded
    meanwhile, and `write` the time from the first token to the last. Tools take the rest.
    `first_tokens` has the wait for each response that arrived in pieces while no model was
    loaded.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = self._asked = clock()
        self._is_loading = False
        self.load = self.wait = self.write = 0.0
        self.first_tokens = list[float]()
        self.steps = 0
        self.calls = list[str]()

    def add_frame(self, frame: Frame) -> None:
        """Add the times and calls of an event or of live news."""
        match frame.item:
            case Entry(event=events.ModelAsked()):
                self._asked = self._clock()
                self._is_loading = False
            case Waiting(reason=reason):
                self._is_loading = self._is_loading or reason.startswith("loading ")
            case Entry(event=events.ModelAnswered(message, first_piece=first_piece)):
                self.steps += 1
                self.calls += [
                    f"{c.name} {bytes(c.arguments).decode()}" for c in message.calls
                ]
                self._add_response(first_piece)
            case Entry(event=events.ModelFailed()):
                self._add_response(None)
            case _:
                pass

    def _add_response(self, first_piece: float | None) -> None:
        """Add the times of a response that has just ended.

        `first_piece` is the seconds until its first token. None means that they are unknown:
        then the whole response counts as waiting.
        """
        elapsed = self._clock() - self._asked
        first_token = elapsed if first_piece is None else min(first_piece, elapsed)
        self.write += elapsed - first_token
        if self._is_loading:
            self.load += first_token
            return
        self.wait += first_token
        if first_piece is not None:
            self.first_tokens.append(first_token)
