"""Tasks that another agent gave to refold, each a session of its own.

A task runs in the background, with or without followers. What would ask the user waits
until the question is put; without a user it is denied, as in a run without a terminal. What
a program at the other end sees of this is in `task_tools`.
"""

import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import Struct

from refold.client.launch import Launch
from refold.client.questions import Question
from refold.client.result import Result
from refold.client.session import Session
from refold.client.types import Entry, events
from refold.errors import BadInput, RefoldError, ToolFailed, first
from refold.views.call_summary import label

LaunchAt: TypeAlias = Callable[[Path, bool], Launch]  # in a directory; is a user there?
Answer: TypeAlias = bool | str | Sequence[str]
MAX_RUNNING_TASKS = 8
_MAX_KEPT_TASKS = 32  # tasks that can be asked about
_MAX_ARGUMENTS_CHARS = 8_000  # of the arguments of a call
_MAX_FILE_BYTES = 1_000_000
_SECRET_BYTES = 8  # of an id that cannot be guessed
_STOP_REASON = "the agent that gave the task has left"


class _OpenQuestion(Struct, frozen=True):
    question: Question
    answer: Callable[[Answer], None]


class DelegatedTask:
    """One session. Its turns run in a task group, and `wait_for_change` returns when there is news."""

    def __init__(
        self, launch: Launch, session: Session, group: TaskGroup, patience: float = math.inf
    ) -> None:
        self._launch, self._group, self._patience = launch, group, patience
        self.session = session
        # Who knows it may follow the task and stop it: ids of sessions can be guessed.
        self.id = f"{session.id}-{secrets.token_hex(_SECRET_BYTES)}"
        self.result: Result | None = None
        self.failure = ""
        self._all_steps = list[str]()
        self._reported_steps = 0
        self._waiting = dict[str, _OpenQuestion]()
        self._news = anyio.Event()
        session.on_event(self._on_event)

    @property
    def state(self) -> Literal["working", "asking", "ended"]:
        if self.result is not None or self.failure:
            return "ended"
        return "asking" if self._waiting else "working"

    @property
    def questions(self) -> Sequence[Question]:
        return [waiting.question for waiting in self._waiting.values()]

    def begin(self, text: str) -> None:
        self.result, self.failure = None, ""
        self._group.start_soon(self._run, text)

    @property
    def steps(self) -> Sequence[str]:
        """The calls that have begun: what each does, in one line."""
        return self._all_steps

    @property
    def answer_text(self) -> str:
        """The answer of the turn, or the plan that it ended with."""
        plan = self.session.plan
        if self.result is not None and self.result.outcome == "plan_ready" and plan:
            return plan.text
        return self.result.text if self.result is not None else ""

    async def notices(self) -> Sequence[str]:
        """Return what the user must know of its workspace. Each notice is returned once."""
        return await to_thread.run_sync(self.session.notices)

    async def wait_for_change(self) -> None:
        await self._news.wait()

    def new_steps(self) -> Sequence[str]:
        """The calls that began since this was asked last."""
        steps, self._reported_steps = (
            self._all_steps[self._reported_steps :],
            len(self._all_steps),
        )
        return steps

    def answer(self, key: str, reply: Answer) -> bool:
        """Answer the question with this key. False: it is gone."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.answer(reply)
        return waiting is not None

    async def approve(self, question: Question) -> Answer:
        """Wait for the answer of the user, whom a call of `follow_task` asks.

        A call is refused if it is too long to be shown whole, because a yes would cover all
        of it. It is also refused if the user does not answer in time.
        """
        if len(json.dumps(question.arguments)) > _MAX_ARGUMENTS_CHARS:
            return f"it has more than {_MAX_ARGUMENTS_CHARS:,} characters, too many to ask about here"
        answers, is_answered = list[Answer](), anyio.Event()

        def answer(reply: Answer) -> None:
            answers.append(reply)
            is_answered.set()

        key = key_of(question)
        self._waiting[key] = _OpenQuestion(question, answer)
        self._notify()
        try:
            with anyio.move_on_after(self._patience):
                await is_answered.wait()
        finally:
            self._waiting.pop(key, None)
            self._notify()
        return answers[0] if answers else f"no answer came within {self._patience:g} s"

    @property
    def files(self) -> Mapping[str, str]:
        """Return every file that the task changed, by its name in the workspace."""
        changed = self.session.view.changed_files.files
        top = self.session.workspace.directory
        return {os.path.relpath(real, top): kind for real, kind in changed.items()}

    def read(self, path: str) -> str:
        """A file that it changed. Raises `BadInput`; waits for a disk."""
        kind = self.files.get(os.path.normpath(path))
        if kind is None or kind == "deleted":
            names = ", ".join(n for n, k in self.files.items() if k != "deleted") or "none"
            raise BadInput(
                f"{path!r} is not a file that this task changed; it changed {names}"
            )
        files = self.session.workspace.files
        try:
            if files.outside(path) is not None:  # a link that stands there now
                raise BadInput(f"{path!r} leads out of the workspace")
            real = files.real(path)
            if why := files.why_hidden(real):
                raise BadInput(f"{path!r} may not be read: {why}")
            return files.read(real, _MAX_FILE_BYTES).decode(errors="replace")
        except ToolFailed as error:
            raise BadInput(str(error)) from error

    async def close(self) -> None:
        with suppress(RefoldError):
            await self.session.interrupt(reason=_STOP_REASON)
        with anyio.CancelScope(shield=True):
            while self.state != "ended":
                await self.wait_for_change()
            await self._launch.aclose()
        self._launch.finish_notes()

    async def _run(self, text: str) -> None:
        try:
            await self.session.run(text)
            self.result = await self.session.run_woken()
        except RefoldError as error:
            self.failure = str(error)
        except Exception as error:  # a bug in one task must not end the others
            message = f"{type(error).__name__}: {first(error)}"
            self.failure = f"refold itself failed: {message}"
        self._notify()

    def _on_event(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, events.ModelAnswered):
            self._all_steps += [
                label(call, self.session.tool(call.name)) for call in event.message.calls
            ]
            self._notify()

    def _notify(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class DelegatedTasks:
    """The tasks of one process. Every workspace is `root` or below it.

    `patience` is how many seconds a question waits for its answer.
    """

    def __init__(
        self, root: Path, launch_at: LaunchAt, group: TaskGroup, patience: float = math.inf
    ) -> None:
        self._root, self._launch_at, self._group = root, launch_at, group
        self._patience = patience
        self._tasks = dict[str, DelegatedTask]()

    async def start(self, text: str, workspace: str, *, attended: bool) -> DelegatedTask:
        """Start a task. Raises `BadInput` for a workspace elsewhere, and if too many tasks
        run.
        """
        if not text.strip():
            raise BadInput("the task is empty: say what the agent should do")
        self._check_task_count()
        directory = await to_thread.run_sync(self._directory, workspace)
        launch = await to_thread.run_sync(self._launch_at, directory, attended)
        try:
            launch.check_model()
            opened = await launch.start()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await launch.aclose()
            raise
        tasks = list[DelegatedTask]()  # the session asks the task, which has the session
        session = Session(launch, opened, lambda question: tasks[0].approve(question))
        tasks.append(DelegatedTask(launch, session, self._group, self._patience))
        self._tasks[tasks[0].id] = tasks[0]
        tasks[0].begin(text)
        await self._close_old()
        return tasks[0]

    def find(self, id_: str) -> DelegatedTask:
        if (task := self._tasks.get(id_)) is None:
            raise BadInput(f"there is no task {id_!r}: start_task begins one")
        return task

    async def say(self, id_: str, text: str) -> DelegatedTask:
        """Send a message to the running turn, or begin the next turn with it."""
        task = self.find(id_)
        if task.state != "ended":
            await task.session.steer(text)
            return task
        self._check_task_count()
        task.begin(text)
        return task

    async def close(self) -> None:
        """Stop what runs, and close all."""
        for task in tuple(self._tasks.values()):
            await task.close()

    async def _close_old(self) -> None:
        """Drop the oldest tasks that have ended; their sessions stay."""
        ended = [task for task in self._tasks.values() if task.state == "ended"]
        for task in ended[: max(len(self._tasks) - _MAX_KEPT_TASKS, 0)]:
            del self._tasks[task.id]
            await task.close()

    def _check_task_count(self) -> None:
        if sum(task.state != "ended" for task in self._tasks.values()) >= MAX_RUNNING_TASKS:
            raise BadInput(
                f"{MAX_RUNNING_TASKS} tasks run already: follow one to its end, or stop it"
            )

    def _directory(self, workspace: str) -> Path:
        root = os.path.realpath(self._root)
        directory = os.path.realpath(os.path.join(root, workspace))
        if directory != root and not directory.startswith(os.path.join(root, "")):
            raise BadInput(
                f"{workspace!r} is not {root} or below it: refold mcp serve works where it was "
                "started"
            )
        if not os.path.isdir(directory):
            raise BadInput(f"{workspace!r} is not a directory")
        return Path(directory)


def key_of(question: Question) -> str:
    """The key of a question: it changes with the question."""
    return f"{question.call_id}:{question.hash}"
