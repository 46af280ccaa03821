"""The tasks that another agent gave to refold, each in a session of its own.

A task runs in the background, whether or not a program follows it. A question for the user
waits until a program shows it. If no user can be asked, it is denied, as in a run without a
terminal. `task_tools` has the tools by which another agent gives and follows tasks.
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

# Called with a directory, and whether a user can be asked.
LaunchAt: TypeAlias = Callable[[Path, bool], Launch]
Answer: TypeAlias = bool | str | Sequence[str]
MAX_RUNNING_TASKS = 8
_MAX_KEPT_TASKS = 32  # tasks whose state can be requested
_MAX_ARGUMENTS_CHARS = 8_000  # of the arguments of a call
_MAX_FILE_BYTES = 1_000_000
_SECRET_BYTES = 8  # of an id that cannot be guessed
_STOP_REASON = "the agent that gave the task has left"


class _OpenQuestion(Struct, frozen=True):
    question: Question
    answer: Callable[[Answer], None]


class DelegatedTask:
    """A task and its session, whose turns run in a task group.

    `wait_for_change` returns when a call, a question or the end of a turn is new.
    """

    def __init__(
        self, launch: Launch, session: Session, group: TaskGroup, patience: float = math.inf
    ) -> None:
        self._launch = launch
        self._group = group
        self._patience = patience  # seconds that a question waits for its answer
        self.session = session
        # A caller that knows the secret may follow the task and stop it; ids of sessions
        # can be guessed.
        self.id = f"{session.id}-{secrets.token_hex(_SECRET_BYTES)}"
        self.result: Result | None = None
        self.failure = ""  # why there is no result
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
        """Run a turn with this message in the background."""
        self.result, self.failure = None, ""
        self._group.start_soon(self._run, text)

    @property
    def steps(self) -> Sequence[str]:
        """All calls that have begun, each described in one line."""
        return self._all_steps

    @property
    def answer_text(self) -> str:
        """The answer of the last turn, or the plan that it ended with; "" while it runs."""
        if self.result is None:
            return ""
        plan = self.session.plan
        if self.result.outcome == "plan_ready" and plan:
            return plan.text
        return self.result.text

    async def notices(self) -> Sequence[str]:
        """Return what the user must know about the workspace. Each notice is returned once."""
        return await to_thread.run_sync(self.session.notices)

    async def wait_for_change(self) -> None:
        """Wait until a call begins, a question arrives or is answered, or the turn ends."""
        await self._news.wait()

    def new_steps(self) -> Sequence[str]:
        """Return the calls that began since this method was last called, each in one line."""
        steps = self._all_steps[self._reported_steps :]
        self._reported_steps = len(self._all_steps)
        return steps

    def answer(self, key: str, reply: Answer) -> bool:
        """Answer the question with this key. Return False if it no longer waits."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            waiting.answer(reply)
        return waiting is not None

    async def approve(self, question: Question) -> Answer:
        """Have a call of `follow_task` ask the user a question, and return the user's answer.

        Return a reason to refuse the call if the user does not answer in time, or if the
        call is too long to be shown completely: an approval would cover all of it.
        """
        if len(json.dumps(question.arguments)) > _MAX_ARGUMENTS_CHARS:
            return f"it has more than {_MAX_ARGUMENTS_CHARS:,} characters, too many to ask about here"
        answers = list[Answer]()  # at most one
        is_answered = anyio.Event()

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
        """How each changed file was changed, by its path relative to the workspace."""
        changed = self.session.view.changed_files.files
        workspace = self.session.workspace.directory
        return {os.path.relpath(path, workspace): kind for path, kind in changed.items()}

    def read(self, path: str) -> str:
        """Return the text of a file that the task changed. It reads the disk.

        Raises `BadInput` for any other file, and for a file that may not or cannot be read.
        """
        existing = [name for name, change in self.files.items() if change != "deleted"]
        if os.path.normpath(path) not in existing:
            names = ", ".join(existing) or "none"
            raise BadInput(
                f"{path!r} is not a file that this task changed; it changed {names}"
            )
        files = self.session.workspace.files
        try:
            if files.outside(path) is not None:  # the file is a link now
                raise BadInput(f"{path!r} leads out of the workspace")
            real = files.real(path)
            if why := files.why_hidden(real):
                raise BadInput(f"{path!r} may not be read: {why}")
            return files.read(real, _MAX_FILE_BYTES).decode(errors="replace")
        except ToolFailed as error:
            raise BadInput(str(error)) from error

    async def close(self) -> None:
        """Stop the turn, and close the session."""
        with suppress(RefoldError):
            await self.session.interrupt(reason=_STOP_REASON)
        with anyio.CancelScope(shield=True):
            while self.state != "ended":
                await self.wait_for_change()
            await self._launch.aclose()
        self._launch.finish_notes()

    async def _run(self, text: str) -> None:
        """Run the task to its end, and set its `result`, or `failure` to the reason."""
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
        """Note each call that the model makes as a step of the task."""
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

    A question waits for its answer for `patience` seconds.
    """

    def __init__(
        self, root: Path, launch_at: LaunchAt, group: TaskGroup, patience: float = math.inf
    ) -> None:
        self._root = root
        self._launch_at = launch_at
        self._group = group
        self._patience = patience
        self._tasks = dict[str, DelegatedTask]()

    async def start(self, text: str, workspace: str, *, attended: bool) -> DelegatedTask:
        """Start a task. Its questions wait for a user if `attended`, and otherwise are denied.

        Raises `BadInput` for a workspace outside of the root, and if too many tasks run.
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

        # The session needs the task, which is made after it.
        async def approve(question: Question) -> Answer:
            return await task.approve(question)

        session = Session(launch, opened, approve)
        task = DelegatedTask(launch, session, self._group, self._patience)
        self._tasks[task.id] = task
        task.begin(text)
        await self._close_old()
        return task

    def find(self, id_: str) -> DelegatedTask:
        if (task := self._tasks.get(id_)) is None:
            raise BadInput(f"there is no task {id_!r}: start_task begins one")
        return task

    async def say(self, id_: str, text: str) -> DelegatedTask:
        """Send a message to the running turn of a task, or begin its next turn with it."""
        task = self.find(id_)
        if task.state != "ended":
            await task.session.steer(text)
            return task
        self._check_task_count()
        task.begin(text)
        return task

    async def close(self) -> None:
        """Stop all running tasks, and close all sessions."""
        for task in tuple(self._tasks.values()):
            await task.close()

    async def _close_old(self) -> None:
        """Close and forget the oldest ended tasks if there are too many.

        Their sessions stay stored.
        """
        ended = [task for task in self._tasks.values() if task.state == "ended"]
        excess = max(len(self._tasks) - _MAX_KEPT_TASKS, 0)
        for task in ended[:excess]:
            del self._tasks[task.id]
            await task.close()

    def _check_task_count(self) -> None:
        """Raise `BadInput` if `MAX_RUNNING_TASKS` tasks run already."""
        running = [task for task in self._tasks.values() if task.state != "ended"]
        if len(running) >= MAX_RUNNING_TASKS:
            raise BadInput(
                f"{MAX_RUNNING_TASKS} tasks run already: follow one to its end, or stop it"
            )

    def _directory(self, workspace: str) -> Path:
        """Return the real path of `workspace`, which is relative to the root.

        Raises `BadInput` unless it is a directory in the root.
        """
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
    """Return the key of a question. If a question about a call changes, so does its key."""
    return f"{question.call_id}:{question.hash}"
