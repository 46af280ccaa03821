"""Measures how the processor time of each operation grows with the size of its input.

The size is doubled five times, and the exponent is the slope of the times of the last four sizes, on
logarithmic scales: with 1 the time is proportional to the size, with 2 to its square, and with 0 it
does not depend on the size. A fixed cost makes an exponent smaller, and at small sizes hides a large
exponent, so the times are printed, too. They are processor times, because clock times depend on the
other programs of the machine.

No exponent may be above 1.1, unless the docstring of its operation says why, after "Above 1.1:".
The exit code is 1 if an exponent is above it without a reason.

Usage: python -m bench.growth [--quick] [--runs 3] [--only WORD]
"""

import argparse
import gc
import inspect
import math
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from bench import journal, server, sessions, table, wires
from refold import Agent
from refold.client.storage import Storage
from refold.config.paths import paths
from refold.config.storage import sizes_by_kind
from refold.engine.answer_draft import Draft
from refold.journal.events import codec
from refold.journal.events.kinds import Event
from refold.journal.journal_directory import JournalDirectory
from refold.journal.state.fold import fold
from refold.journal.store.file import FileStore
from refold.journal.store.tree_reader import tree
from refold.place.checkpoints import Checkpoints
from refold.provider.port import Request
from refold.session.hub import Hub
from refold.session.recorder import Recorder
from refold.testing.places import ToolDirectory
from refold.testing.providers import Reply, ScriptedConversations
from refold.testing.wire_answers import answer
from refold.tools.contract import Tool
from refold.tools.find import glob
from refold.tools.grep import grep
from refold.tools.tool_search import tool_search
from refold.tools.tree import tree as tree_tool
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.tools import ToolSpec
from refold.views.screen.screen import screen_of

DOUBLINGS = 5
FITTED_SIZES = 4  # the slope is that of the times of the largest sizes
MAX_EXPONENT = 1.1
WATCHED_EVENTS = 200
SESSION_STEPS = 4
_EXPLAINED = "Above 1.1:"

Action = Callable[[], object]


class Run(NamedTuple):
    """One measurement: an empty directory, a size, and the resources that are closed at its
    end.
    """

    folder: Path
    size: int
    stack: ExitStack


Prepare = Callable[[Run], Action]


class Operation(NamedTuple):
    """`prepare` makes the input, untimed, and returns the action that is timed.

    If the action returns a float, this is the processor time of another process and is added.
    """

    dimension: str
    prepare: Prepare
    size: int  # the first size
    quick_size: int  # the first size with --quick

    @property
    def name(self) -> str:
        return self.prepare.__name__.replace("_", " ")

    @property
    def explanation(self) -> str:
        """Why the exponent may be above 1.1; "" if it may not."""
        text = inspect.getdoc(self.prepare) or ""
        return " ".join(text.partition(_EXPLAINED)[2].split())


class Growth(NamedTuple):
    operation: Operation
    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def exponent(self) -> float:
        return slope(self.sizes[-FITTED_SIZES:], self.seconds[-FITTED_SIZES:])

    @property
    def is_unexplained(self) -> bool:
        return self.exponent > MAX_EXPONENT and not self.operation.explanation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one run")
    parser.add_argument("--runs", type=int, default=3, help="of each size (3)")
    parser.add_argument("--only", default="", metavar="WORD", help="operations with WORD")
    chosen = parser.parse_args()
    growths = report(
        1 if chosen.quick else chosen.runs, quick=chosen.quick, only=chosen.only
    )
    return 1 if any(growth.is_unexplained for growth in growths) else 0


def report(runs: int, *, quick: bool, only: str = "") -> list[Growth]:
    growths = [
        measure(operation, runs, quick=quick)
        for operation in OPERATIONS
        if only in f"{operation.dimension} {operation.name}"
    ]
    table.show(
        f"growth: processor time at {2**DOUBLINGS} times the size (no exponent above {MAX_EXPONENT})",
        ["sizes", *(f"×{2**n}" for n in range(DOUBLINGS + 1)), "exponent", ""],
        [
            (
                f"{growth.operation.dimension}: {growth.operation.name}",
                f"{growth.sizes[0]:,}–{growth.sizes[-1]:,}",
                *map(table.ms, growth.seconds),
                f"{growth.exponent:.2f}",
                _verdict(growth),
            )
            for growth in growths
        ],
    )
    return growths


def measure(operation: Operation, runs: int, *, quick: bool) -> Growth:
    """Return the least processor time of some runs at each size."""
    first = operation.quick_size if quick else operation.size
    sizes = [first * 2**n for n in range(DOUBLINGS + 1)]
    measure_once(operation, first)  # imports modules, and fills caches
    seconds = [min(measure_once(operation, size) for _ in range(runs)) for size in sizes]
    return Growth(operation, sizes, seconds)


def measure_once(operation: Operation, size: int) -> float:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="refold-bench-"))
        action = operation.prepare(Run(Path(folder), size, stack))
        gc.collect()
        began = _processor_seconds()
        elsewhere = action()
        took = _processor_seconds() - began
    return took + (elsewhere if isinstance(elsewhere, float) else 0.0)


def _processor_seconds() -> float:
    """Return the processor time of this process and of the programs that it has awaited."""
    usages = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of the straight line that fits best on logarithmic scales."""
    points = [(math.log(n), math.log(t)) for n, t in zip(sizes, seconds, strict=True)]
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum(
        (x - x_mean) ** 2 for x, _ in points
    )


def _verdict(growth: Growth) -> str:
    if growth.exponent <= MAX_EXPONENT:
        return ""
    return growth.operation.explanation or f"ABOVE {MAX_EXPONENT}"


# Files of a workspace.


def find_by_name(run: Run) -> Action:
    """Call the tool `glob`, which looks at every directory."""
    return _tool(_files(run.folder, run.size), glob, pattern="**/f1*.py")


def find_by_content(run: Run) -> Action:
    """Call the tool `grep` for a word in one file of a hundred."""
    return _tool(_files(run.folder, run.size), grep, pattern="needle")


def list_as_tree(run: Run) -> Action:
    """Call the tool `tree`, whose result is bounded."""
    return _tool(_files(run.folder, run.size), tree_tool)


def first_checkpoint(run: Run) -> Action:
    """Hash and store all files."""
    return partial(anyio.run, _checkpoints(run.folder, run.size, "one").take)


def later_checkpoint(run: Run) -> Action:
    """Take the first checkpoint of another session in the same workspace, with no change."""
    anyio.run(_checkpoints(run.folder, run.size, "one").take)
    return partial(anyio.run, _checkpoints(run.folder, 0, "another").take)


def _files(folder: Path, count: int) -> Path:
    root = folder / "work"
    for n in range(count):
        file = root / f"d{n % 97}" / f"f{n}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"value = {n}\n{'needle' if n % 100 == 0 else ''}\n")
        os.utime(file, (1.7e9, 1.7e9))
    return root


def _tool(root: Path, tool: Tool, **arguments: object) -> Action:
    return _call(ToolDirectory(root), tool, **arguments)


def _call(place: ToolDirectory, tool: Tool, **arguments: object) -> Action:
    return lambda: anyio.run(place.use, tool, arguments)


def _checkpoints(folder: Path, files: int, session: str) -> Checkpoints:
    root = _files(folder, files) if files else folder / "work"
    return Checkpoints([root], folder / "data" / "checkpoints", os.environ, session)


# Events of a session.


def fold_events(run: Run) -> Action:
    """Fold entries in memory to the view of a session."""
    return partial(fold, list(journal.entries(run.size)))


def open_session(run: Run) -> Action:
    """Read, check and fold a journal."""
    anyio.run(journal.write, run.folder, list(journal.entries(run.size)))

    async def read() -> None:
        lines = await FileStore(run.folder).read()
        fold(entry for entry, _ in codec.decode(lines))

    return partial(anyio.run, read)


def show_session(run: Run) -> Action:
    """Fold entries in memory to the value that a screen shows."""
    return partial(screen_of, list(journal.entries(run.size)))


def record_events(run: Run) -> Action:
    """Record all events of a session, one after the other.

    The time is proportional to their number if each event costs the same.
    """
    story: list[Event] = list(islice(journal.long_turn(), run.size))

    async def write() -> None:
        record = Recorder(JournalDirectory(run.folder).store("bench"))
        await record.open()
        for event in story:
            await record(event)
        await record.close()

    return partial(anyio.run, write)


def encode_conversation(run: Run) -> Action:
    """Encode a request with a conversation of which nothing was sent before."""
    speakers: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    texts = Log(
        [
            StoredMessage(n, Message(speakers[n % 2], (Text(f"Message {n}. " * 20),)))
            for n in range(run.size)
        ]
    )
    return _request(replace(wires.ASKED, messages=texts))


def _request(request: Request) -> Action:
    body = answer("anthropic", Reply("Yes.")).body
    assert isinstance(body, bytes)
    provider = wires.provider_of("anthropic", wires.Recorded([body]))

    async def ask() -> None:
        draft = Draft(1, "m-1", lambda model, usage: None)
        async for delta in provider.stream(request):
            draft.add(delta)

    return partial(anyio.run, ask)


# Sessions of a user.


def index_sessions(run: Run) -> Action:
    """Build the catalogue from all journals."""
    return _sessions(run.folder, run.size).catalogue().rebuild


def list_sessions(run: Run) -> Action:
    """Get all cards of an up-to-date catalogue."""
    return _build_index(run.folder, run.size).catalogue().cards


def search_sessions(run: Run) -> Action:
    """Search for words that every session has."""
    return partial(_build_index(run.folder, run.size).catalogue().search, "the journal", 20)


def resume_newest(run: Run) -> Action:
    """Find the newest session of a directory in which only the oldest of all was started."""
    home = _build_index(run.folder, run.size)
    return partial(home.newest_of, run.folder / "work" / "oldest")


def measure_storage(run: Run) -> Action:
    """Measure the storage as `refold storage` does, with the files of no session."""
    home = _build_index(run.folder, run.size)
    here = paths({"REFOLD_HOME": str(home.root.parent)})
    storage = Storage(home, here, here.data / "models", lambda _, __: None)

    def measure() -> None:
        sizes_by_kind(storage.files(), 1.8e9)
        list(storage.leftovers())

    return measure


def _sessions(folder: Path, count: int) -> JournalDirectory:
    home = JournalDirectory(folder / "home" / "sessions")
    sessions.make_journals(home, count, SESSION_STEPS, folder / "work")
    return home


def _build_index(folder: Path, count: int) -> JournalDirectory:
    home = _sessions(folder, count)
    home.catalogue().rebuild()
    return home


# Connections to a conversation.


def publish_to_watchers(run: Run) -> Action:
    """Put events into the queues of all watchers in the same process."""
    hub, entries = Hub(), list(journal.entries(WATCHED_EVENTS))
    watches = [hub.watch() for _ in range(run.size)]

    def publish() -> None:
        for entry in entries:
            hub.publish(entry)
        assert watches[-1].waiting == len(entries)

    return publish


def join_over_websockets(run: Run) -> Action:
    """Connect clients to one conversation of a server, one after the other, and keep them."""
    served = run.stack.enter_context(server.serve())
    session = served.begin()

    async def join() -> float:
        before = served.cpu
        async with AsyncExitStack() as stack:
            for _ in range(run.size):
                socket = await stack.enter_async_context(served.follow(session))
                await socket.recv()
            return served.cpu - before

    return partial(anyio.run, join)


# Subagents.


def run_subagents(run: Run) -> Action:
    """Run a turn that starts this number of subagents, with a model that answers at once."""
    return partial(_family(run.folder, run.size).run, "Go.")


def read_tree_of_subagents(run: Run) -> Action:
    """Read the tree of a session with this number of subagents."""
    result = _family(run.folder, run.size).run("Go.")
    place = run.folder / "home" / "sessions" / result.session_id
    return partial(tree, place, result.session_id)


def _family(folder: Path, count: int) -> Agent:
    call = msgspec.json.encode({"prompt": "Look.", "agent": "explore"}).decode()
    scripts = {"Go": [[("task", call)] * count, "Done."], "Look": ["Nothing."]}
    (folder / "work").mkdir()
    return Agent(
        provider=ScriptedConversations(scripts),
        directory=folder / "work",
        home=folder / "home",
        settings={"memory": False},
    )


# Tools of a session.


def encode_tools(run: Run) -> Action:
    """Encode a request that offers this number of tools."""
    schema = Raw(b'{"type":"object","properties":{"path":{"type":"string"}}}')
    tools = tuple(
        ToolSpec(f"tool_{n}", "Look at something. " * 10, schema) for n in range(run.size)
    )
    return _request(replace(wires.ASKED, tools=tools))


def search_tools(run: Run) -> Action:
    """Call the tool `tool_search` over tools of which the model knows only the names."""
    chance, words = (
        random.Random(7),
        ["list", "send", "read", "write", "open", "close", "mail", "issue", "page"],
    )
    place = ToolDirectory(run.folder)
    place.deferred = tuple(
        replace(glob, name=f"mcp__s__{'_'.join(chance.choices(words, k=3))}_{n}")
        for n in range(run.size)
    )
    return _call(place, tool_search, query="send mail", limit=5)


OPERATIONS = (
    Operation("files", find_by_name, 500, 50),
    Operation("files", find_by_content, 500, 50),
    Operation("files", list_as_tree, 500, 50),
    Operation("files", first_checkpoint, 250, 20),
    Operation("files", later_checkpoint, 250, 20),
    Operation("events", fold_events, 1_000, 100),
    Operation("events", open_session, 1_000, 100),
    Operation("events", show_session, 1_000, 100),
    Operation("events", record_events, 100, 20),
    Operation("events", encode_conversation, 100, 20),
    Operation("sessions", index_sessions, 50, 4),
    Operation("sessions", list_sessions, 50, 4),
    Operation("sessions", search_sessions, 50, 4),
    Operation("sessions", resume_newest, 50, 4),
    Operation("sessions", measure_storage, 50, 4),
    Operation("connections", publish_to_watchers, 20, 5),
    Operation("connections", join_over_websockets, 10, 1),
    Operation("tools", encode_tools, 50, 10),
    Operation("tools", search_tools, 50, 10),
    Operation("subagents", run_subagents, 4, 1),
    Operation("subagents", read_tree_of_subagents, 4, 1),
)


if __name__ == "__main__":
    sys.exit(main())
