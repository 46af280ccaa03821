"""Runs sessions with subagents for tests: on disk through the library, or in memory."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec

from refold import Agent, Result
from refold.agents.child import ChildSpec, TreePosition
from refold.agents.children import Children
from refold.agents.profile import Profile
from refold.agents.worktree import Worktrees
from refold.client.session import Session as Conversation
from refold.engine.decide import Policy
from refold.engine.policies.conversation import converse, final
from refold.engine.policies.turn_end import stopping, wait_for_children
from refold.engine.world import Model, World
from refold.errors import BadInput
from refold.journal.events import codec
from refold.journal.events.kinds import Entry, Event
from refold.journal.state.session_tree import Node, walk
from refold.journal.store.port import MemoryStore
from refold.journal.store.tree_reader import tree
from refold.permissions.rules import parse
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedConversations, StrictProvider
from refold.tools.contract import Reply, Tool, tool
from refold.tools.task import task
from refold.values.tools import Effect
from tests.engine.worlds import world_with

Call = tuple[str, str]


def task_call(prompt: str, agent: str = "code", **arguments: object) -> Call:
    """Return a call of `task`."""
    return "task", msgspec.json.encode(
        {"prompt": prompt, "agent": agent, **arguments}
    ).decode()


def tool_call(name: str, /, **arguments: object) -> Call:
    return name, msgspec.json.encode(arguments).decode()


class AgentFamily:
    """An agent of the library, with a home and a directory of its own."""

    def __init__(
        self, root: Path, scripts: Mapping[str, Sequence[Line]], **options: Any
    ) -> None:
        self.home, self.directory = root / "home", root / "work"
        self.directory.mkdir(exist_ok=True)
        self.cast = ScriptedConversations(scripts)
        plain: dict[str, Any] = {
            "directory": self.directory,
            "home": self.home,
            "mode": "accept-edits",
        }
        self.agent = Agent(provider=self.cast, **{**plain, **options})

    def run(self, text: str) -> Result:
        return self.agent.run(text)

    @asynccontextmanager
    async def session(self, id_: str = "") -> AsyncGenerator[Conversation]:
        async with self.agent.session(id_) as session:
            yield session

    def tree(self, session: str) -> Node:
        return tree(self.home / "sessions" / session, session)

    def nodes(self, session: str) -> dict[str, Node]:
        return {node.address: node for node in walk(self.tree(session))}


def events(node: Node, kind: type[Event] | tuple[type[Event], ...]) -> list[Any]:
    return [entry.event for entry in node.entries if isinstance(entry.event, kind)]


def last_message(cast: ScriptedConversations, name: str, request: int = -1) -> str:
    """Return the last message of a request in a conversation, as text."""
    parts = cast.requests_of(name)[request].messages[-1].message.parts
    return " ".join(getattr(part, "text", "") for part in parts)


# In memory: one list has the writes of all sessions, so that the tree can be cut after each.


@tool(Effect.LOOK)
async def weather(city: str) -> Reply:
    """Say what the weather is."""
    return Reply(f"rain in {city}")


@tool(Effect.RUN)
async def book(what: str, *, orders: list[str]) -> Reply:
    """Order something."""
    orders.append(what)
    return Reply(f"{what} ordered")


@tool(Effect.LOOK)
async def wait(*, at_work: list[str], call: str) -> Reply:
    """Never come back."""
    at_work.append(call)
    try:
        await anyio.sleep_forever()
    finally:
        at_work.remove(call)
    raise AssertionError


TOOLS = (weather, book, wait, task)
POLICIES: tuple[Policy, ...] = (stopping, final, wait_for_children, converse)
WORKER = Profile(name="worker", description="Works.", use="child")


class _Logged(MemoryStore):
    def __init__(self, log: list[tuple[str, str]], name: str, *lines: bytes) -> None:
        super().__init__(*lines)
        self._log, self._name = log, name

    async def append(self, lines: Sequence[bytes], **options: Any) -> None:
        await super().append(lines, **options)
        entries = [e for e, _ in codec.decode(self.lines)][-len(lines) :]
        self._log += [(self._name, type(e.event).__name__) for e in entries]


class Tree:
    """A root session and its subagents, in memory.

    `log` has, for each written event, the session whose journal grew and the kind of the event.
    """

    def __init__(self, provider: Provider, **world: Any) -> None:
        self.provider, self.world = StrictProvider(provider), world
        self.log, self.stores = list[tuple[str, str]](), dict[str, _Logged]()
        self.orders, self.at_work = list[str](), list[str]()
        self.profiles = {"worker": WORKER}
        self.position, self.tools = TreePosition(), TOOLS

    def after(self, writes: int, provider: Provider) -> "Tree":
        """Return the tree as a crash after this number of writes would have left it."""
        result = type(self)(provider, **self.world)
        result.profiles, result.position = self.profiles, self.position
        result.log = self.log[:writes]
        for name, store in self.stores.items():
            total = sum(1 for name_of_call, _ in result.log if name_of_call == name)
            if total:
                result.stores[name] = _Logged(result.log, name, *store.lines[:total])
        return result

    async def open_session(
        self, id_: str = "root", child: ChildSpec | None = None
    ) -> Session:
        store = self.stores.setdefault(id_, _Logged(self.log, id_))
        record = Recorder(store, clock=lambda: 0.0)
        position = child.position if child else self.position
        trees = Worktrees(Path("/nonexistent"), {}, "/")
        children = Children(record, id_, self._child, self._find, trees, position)
        family = self.tool_extensions(children, record, id_, child)
        world = self._world(children, child, family)
        children.begin_turn(world)
        return await Session.open(record, lambda _: world, id_=id_)

    def entries(self, id_: str) -> list[Entry]:
        return [entry for entry, _ in codec.decode(self.stores[id_].lines)]

    def events(self, id_: str, kind: type[Event] | tuple[type[Event], ...]) -> list[Any]:
        return [e.event for e in self.entries(id_) if isinstance(e.event, kind)]

    @asynccontextmanager
    async def _child(self, spec: ChildSpec) -> AsyncGenerator[Session]:
        async with await self.open_session(spec.id, spec) as session:
            yield session

    def _find(self, name: str) -> Profile:
        if name not in self.profiles:
            raise BadInput(f"there is no agent {name!r}")
        return self.profiles[name]

    def tool_extensions(
        self, children: Children, record: Recorder, id_: str, child: ChildSpec | None
    ) -> dict[str, object]:
        """Return the dependencies that tools of this session may ask for besides the built-
        in ones.
        """
        return {}

    def _world(
        self, children: Children, child: ChildSpec | None, more: dict[str, object]
    ) -> World:
        family = {"children": children, "orders": self.orders, "at_work": self.at_work}
        family |= more
        tools: tuple[Tool, ...] = self.tools
        if child is not None:
            without = child.agent.without
            tools = tuple(
                t for t in tools if t.name in child.tools and t.name not in without
            )
        plain = World(
            Model(self.provider),
            tools,
            POLICIES,
            (parse("book", "allow"),),
            tool_dependencies=family,
        )
        world = world_with(plain, background=children.background, **self.world)
        if child is None:
            return world
        return world_with(
            world, rules=(*world.rules, *child.agent.rules), parent=child.parent, grant=child.grant, address=child.address,
            shared=child.shared, agent=child.agent.name,
        )  # fmt: skip


async def run_turn(tree_: Tree, *text: str) -> Session:
    session = await tree_.open_session()
    for word in text:
        await session.inbox.say(word)
    await session.run_turns()
    return session
