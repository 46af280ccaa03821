"""A temporary directory in which a test can run tools, and doubles for what tools depend on.

    with temporary_place() as place:
        (place.directory / "a.txt").write_text("one")
        reply = anyio.run(place.use, read_file, {"path": "a.txt"})

Files are real, commands real or scripted, everything else is in memory.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

from refold.errors import JournalError, ToolFailed
from refold.journal.board.task_graph import Board, fold_board
from refold.journal.events.kinds import BackgroundStarted
from refold.journal.state.background import BackgroundCommand
from refold.permissions.facts import Decision
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.handover import Handover
from refold.place.port import (
    NOTHING_MORE,
    READ_ONLY,
    CommandExtras,
    Commands,
    Files,
    Finished,
    Real,
)
from refold.tools.code import Mention, Mentions, Problem, Problems, Symbol, Symbols
from refold.tools.contract import Context, Reply, Tool
from refold.tools.page_text import SearchHits, WebHit, WebPage
from refold.tools.python_tool import PythonResult
from refold.tools.shell import BackgroundOutput, BackgroundRequest
from refold.tools.task import Report, TaskRequest
from refold.tools.web import Judge
from refold.values.claims import CheckedClaim, Claim
from refold.values.control import BoardTask, NewTask, TaskChange
from refold.values.display import AskedQuestion, Diff
from refold.values.kept_output import Printed
from refold.values.messages import SearchHit
from refold.values.modes import Mode
from refold.values.tools import Confinement


class ScriptedCommands:
    """Implements `Commands` without starting a process: the outputs are in the dict `answers`.

    A command that is not in the dict fails with exit code 127, as in a shell. `has` returns
    whether a program is in `programs`. `heard` has each command with its directory, `confines`
    its confinement.
    """

    def __init__(
        self, answers: Mapping[str, str | Finished], programs: tuple[str, ...] = ()
    ) -> None:
        self.answers, self.programs = dict(answers), programs
        self.heard = list[tuple[str, str]]()
        self.confines = list[Confinement]()

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confinement = READ_ONLY,
        on_output: Callable[[str], None] | None = None,
        extras: CommandExtras = NOTHING_MORE,
    ) -> Finished:
        self.heard.append((command, cwd))
        self.confines.append(confines)
        missing = Finished(127, f"bash: {command}: command not found\n".encode())
        answer = self.answers.get(command, missing)
        result = Finished(0, answer.encode()) if isinstance(answer, str) else answer
        if on_output and result.text:
            on_output(result.text)
        if extras.printed is not None:
            extras.printed.add(result.start + result.end)
        return result

    def has(self, program: str) -> bool:
        return program in self.programs

    def close(self) -> None:
        pass


class WithoutPrograms:
    """Wraps `commands`, and reports the programs `missing` as not installed."""

    def __init__(self, commands: Commands, *missing: str) -> None:
        self._commands, self._missing = commands, missing
        self.run, self.close = commands.run, commands.close

    def has(self, program: str) -> bool:
        return program not in self._missing and self._commands.has(program)


class BlobsInMemory:
    """Reads blobs from the dict `kept`, by name."""

    def __init__(self) -> None:
        self.kept = dict[str, bytes]()

    async def get(self, name: str) -> bytes:
        if name not in self.kept:
            raise JournalError(f"there is no blob {name}")
        return self.kept[name]


class PastInMemory:
    """Returns given messages as those of former sessions, for `history_search`."""

    def __init__(self, *hits: SearchHit) -> None:
        self.all: Sequence[SearchHit] = hits

    async def all_hits(self) -> Sequence[SearchHit]:
        return self.all


class SkillsInMemory:
    """Offers skills from a dict of texts by name. The first line describes the skill."""

    def __init__(self, skills: Mapping[str, str] | None = None) -> None:
        self.all = dict(skills or {"tea": "how tea is made\nBoil water."})

    def search(self, query: str) -> Sequence[tuple[str, str]]:
        first_lines = ((name, text.partition("\n")[0]) for name, text in self.all.items())
        return [(name, line) for name, line in first_lines if query in line]

    def text_of(self, name: str) -> str:
        if name not in self.all:
            raise ToolFailed(f"There is no skill {name!r}.")
        return self.all[name]

    def content(self, name: str, file: str) -> bytes:
        raise ToolFailed(f"The skill {name} has no file {file!r}.")


class SchedulesInMemory:
    """Records the schedules that are `added`: prompt, when and every."""

    def __init__(self) -> None:
        self.added = list[tuple[str, str, str]]()

    async def add(self, call: str, prompt: str, when: str, every: str) -> str:
        self.added.append((prompt, when, every))
        return f"schedule {len(self.added)} is due {when or every}"


class NotesInMemory:
    """Records the notes that `memory_write` writes: section, text, and the text to replace."""

    def __init__(self) -> None:
        self.notes = list[tuple[str, str, str]]()

    async def write(self, section: str, text: str, replaces: str) -> str:
        self.notes.append((section, text, replaces))
        return f"Remembered: {text}"


class BoardInMemory:
    """Implements `tools.todo.Board` in memory, with the rules of the real board."""

    def __init__(self) -> None:
        self._board = Board()

    async def add(self, task: NewTask, author: str, key: str) -> BoardTask:
        addition = self._board.addition(task, key)
        self._board = fold_board(self._board, [addition] if addition else [])
        return self._board.task(self._board.calls[key])

    async def change(self, id_: int, change: TaskChange, author: str) -> BoardTask:
        update = self._board.update(id_, change, author)
        self._board = fold_board(self._board, [update] if update else [])
        return self._board.task(id_)

    async def claim(self, id_: int, author: str, key: str) -> BoardTask:
        change = self._board.claim(id_, author, key)
        if change is None:  # the author has the task already
            return self._board.task(id_ or self._board.calls[key])
        self._board = fold_board(self._board, [change])
        return self._board.task(change.id)

    async def task(self, id_: int) -> BoardTask:
        return self._board.task(id_)

    async def tasks(self) -> Sequence[BoardTask]:
        return self._board.tasks


class NothingSeen:
    """A checker of claims whose result is always "unknown"."""

    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        return [CheckedClaim(claim, "unknown", "not checked") for claim in claims]


class ChildrenInMemory:
    """Implements `tools.task.ChildStarter`: the report of each subagent is its own task."""

    async def run(self, call_id: str, request: TaskRequest) -> Report:
        await anyio.lowlevel.checkpoint()
        return Report("child-1", "runs" if request.background else "done", request.prompt)


class BackgroundInMemory:
    """Implements `tools.shell.BackgroundRunner`: runs nothing; the output is the command
    itself.
    """

    def __init__(self) -> None:
        self.requests = dict[str, BackgroundRequest]()
        self.stopped = list[str]()

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str:
        name = f"background-{len(self.requests) + 1}"
        self.requests[name] = request
        return name

    @contextmanager
    def movable(self, call_id: str) -> Generator[Handover]:
        yield Handover()

    async def adopt(
        self,
        call_id: str,
        request: BackgroundRequest,
        so_far: Finished,
        printed: Printed,
    ) -> str:
        return await self.start(call_id, request, ShellCommands())

    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput:
        return BackgroundOutput(self._request(name).command)

    async def stop(self, name: str, *, silent: bool = False) -> bool:
        """Stop a command. Return False if it was stopped before."""
        self._request(name)  # raises `ToolFailed` for an unknown name
        is_new = name not in self.stopped
        self.stopped.append(name)
        return is_new

    def all_commands(self) -> Sequence[BackgroundCommand]:
        return [
            BackgroundCommand(BackgroundStarted(name, request.command))
            for name, request in self.requests.items()
        ]

    def _request(self, name: str) -> BackgroundRequest:
        if name not in self.requests:
            raise ToolFailed(f"There is no background command {name!r}.")
        return self.requests[name]


class PythonInMemory:
    """Implements `tools.python_tool.Repl`: returns the code instead of running it."""

    async def run(
        self, call_id: str, cells: Sequence[str], progress: Callable[[str], None]
    ) -> PythonResult:
        await anyio.lowlevel.checkpoint()
        return PythonResult("\n".join(cells), summary=f"{len(cells)} cells")


class PagesInMemory:
    """A web of plain-text pages, by address. A search finds the pages that contain the query."""

    def __init__(self, pages: Mapping[str, str] | None = None) -> None:
        self.pages = dict(pages or {"https://example.org/": "An example."})

    async def fetch(self, url: str, judge: Judge) -> WebPage:
        await anyio.lowlevel.checkpoint()
        if url not in self.pages:
            raise ToolFailed(f"{url} answered with status 404 (Not Found).")
        return WebPage(url, "text/plain", "utf-8", self.pages[url].encode())

    async def search(self, query: str, count: int) -> SearchHits:
        await anyio.lowlevel.checkpoint()
        hits = [WebHit(u, u, t) for u, t in self.pages.items() if query in t]
        return SearchHits("memory", tuple(hits[:count]))


class CodeInMemory:
    """Code navigation that finds one symbol and one problem, both in line 1 of the given file."""

    by = "memory"

    async def list_symbols(self, file: Real, query: str) -> Symbols:
        await anyio.lowlevel.checkpoint()
        return Symbols(self.by, symbols=(Symbol(query or "tea", "function", file, 1),))

    async def find_symbols(self, query: str) -> Symbols:
        await anyio.lowlevel.checkpoint()
        return Symbols(self.by)

    async def outline(self, focus: Sequence[str], tokens: int) -> str:
        await anyio.lowlevel.checkpoint()
        return f"the map around {', '.join(focus)}, in {tokens} tokens\n"

    async def mentions(self, file: Real, line: int, symbol: str) -> Mentions:
        await anyio.lowlevel.checkpoint()
        return Mentions(self.by, definitions=(Mention(file, line, symbol),))

    async def problems(self, files: Sequence[Real]) -> Problems:
        await anyio.lowlevel.checkpoint()
        problems = tuple(Problem(path, 1, "error", "it is cold") for path in files)
        return Problems(self.by, files=tuple(files), problems=problems)


class WorktreesInMemory:
    """Pretends to enter and leave worktrees. `name` is that of the entered one, or "".

    Removing a worktree never loses anything.
    """

    def __init__(self) -> None:
        self.name = ""

    async def enter(self, name: str, branch: str, call: str) -> str:
        await anyio.lowlevel.checkpoint()
        self.name = name or branch
        return f"Works in {self.name}."

    async def describe_loss(self) -> tuple[str, str]:
        await anyio.lowlevel.checkpoint()
        return self.name, ""

    async def leave(self, *, remove: bool, call: str) -> str:
        await anyio.lowlevel.checkpoint()
        left, self.name = self.name, ""
        return f"{'Removed' if remove else 'Left'} {left}."


class ToolDirectory:
    """A directory, and all dependencies of tools that work in it.

    `known` has the hash of each file that a tool has read or written, as in a session. `said`
    has the progress that tools have reported.
    """

    def __init__(self, directory: Path, commands: Commands | None = None) -> None:
        self.directory, self.call_id = directory, "call-0"
        self.files: Files = DiskFiles(directory)
        self.commands: Commands = commands or ShellCommands()
        self.confines = Confinement(writes=True)
        self.mode: Mode = "default"
        self.answers = tuple[str, ...]()  # answers of a user to questions
        self.deferred = tuple[Tool, ...]()  # tools of which the model knows only the names
        self.blobs = BlobsInMemory()
        self.history = PastInMemory()
        self.skills = SkillsInMemory()
        self.memory = NotesInMemory()
        self.schedules = SchedulesInMemory()
        self.board = BoardInMemory()
        self.checks = NothingSeen()
        self.children = ChildrenInMemory()
        self.background = BackgroundInMemory()
        self.repl = PythonInMemory()
        self.web = PagesInMemory()
        self.code = CodeInMemory()
        self.worktrees = WorktreesInMemory()
        self.known = dict[str, str]()
        self.unread = frozenset[str]()
        self.said = list[str]()

    def supplies(self, tool: Tool) -> dict[str, object]:
        """Return the dependencies of this tool, by name."""
        dependencies: dict[str, object] = {
            "files": self.files,
            "commands": self.commands,
            "confines": self.confines,
            "mode": self.mode,
            "answers": self.answers,
            "deferred": self.deferred,
            "blobs": self.blobs,
            "history": self.history,
            "skills": self.skills,
            "memory": self.memory,
            "schedules": self.schedules,
            "board": self.board,
            "checks": self.checks,
            "children": self.children,
            "background": self.background,
            "repl": self.repl,
            "call": self.call_id,
            "web": self.web,
            "code": self.code,
            "worktrees": self.worktrees,
            "judge": _allow,
            "known": self.known,
            "unread": self.unread,
            "directory": self.directory,
            "progress": self.said.append,
        }
        signature = tool.signature()
        needed = {name: dependencies[name] for name in signature.needs}
        if signature.context:
            needed[signature.context] = Context(
                self.directory, "session", self.call_id, self.said.append, _no_user
            )
        return needed

    async def use(self, tool: Tool, arguments: Mapping[str, object]) -> Reply:
        """Call a tool with arguments in JSON, as a model does, and return its reply."""
        parsed = tool.parse(msgspec.json.encode(arguments))
        reply = await tool.run(**parsed, **self.supplies(tool))
        self.known |= {version.path: version.sha256 for version in reply.seen}
        self.known |= {s.path: s.after for s in reply.shown if isinstance(s, Diff)}
        return reply


async def _no_user(asking: AskedQuestion) -> str:
    raise ToolFailed(f"No user is there to be asked {asking.question!r}.")


def _allow(subject: str, private: bool) -> Decision:
    """Allow every request."""
    return Decision("allow", reason=f"{subject} may be read")


@contextmanager
def temporary_place(commands: Commands | None = None) -> Generator[ToolDirectory]:
    """Yield an empty directory for tools, and delete it afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="place-")).resolve()
    try:
        yield ToolDirectory(directory, commands)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
