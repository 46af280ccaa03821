"""Agents of one tree that change the same file take turns and overwrite nothing unseen."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import pytest

from refold.engine.policies.conversation import converse
from refold.engine.world import Lineage, Model, Shared, World
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.provider.port import Delta, Request
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.apply_patch import apply_patch
from refold.tools.contract import Reply, tool
from refold.tools.edit import edit_file, write_file
from refold.tools.read import read_file
from refold.values.messages import ToolResult
from refold.values.tools import Effect

READ = [("read_file", '{"path": "a.txt"}')]
PATCH = "*** Begin Patch\\n*** Update File: a.txt\\n@@\\n-two\\n+patched\\n*** End Patch"
PATCHED = [("apply_patch", f'{{"patch": "{PATCH}"}}')]


def edit_call(old: str, new: str) -> list[tuple[str, str]]:
    return [("edit_file", f'{{"path": "a.txt", "old": "{old}", "new": "{new}"}}')]


class InTurn:
    """A script that alternates with another one: it reports each request, and waits."""

    def __init__(
        self, *lines: Line, tells: dict[int, anyio.Event], waits: dict[int, anyio.Event]
    ) -> None:
        self._inner, self._tells, self._waits = ScriptedProvider(*lines), tells, waits

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        step = len(self._inner.heard)
        if step in self._tells:
            self._tells[step].set()
        if step in self._waits:
            await self._waits[step].wait()
        async for delta in self._inner.stream(request):
            yield delta


def make_world(
    directory: Path,
    model: ScriptedProvider | InTurn,
    shared: Shared,
    address: str,
    inside: Sequence[str] = (),
) -> World:
    return World(
        Model(model),
        (read_file, edit_file, write_file, apply_patch, slow_edit),
        (converse,),
        (parse("*", "allow"),),
        mode="bypass",
        files=DiskFiles(directory),
        tool_dependencies={"blobs": None, "inside": inside},
        facts=lambda: Facts((str(directory),), follow=lambda p: str(directory / p)),
        lineage=Lineage(address, shared=shared),
    )


@tool(Effect.CHANGE, path="path")
async def slow_edit(path: str, *, inside: list[str]) -> Reply:
    """Change a file, and take a while."""
    inside.append(path)
    alone = inside.count(path) == 1
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    inside.remove(path)
    return Reply("alone" if alone else "together")


def run_side_by_side(worlds: Sequence[World]) -> list[View]:
    """Run all of them concurrently, and return their results."""

    async def main() -> list[View]:
        sessions = [
            await Session.open(Recorder(MemoryStore()), lambda _, each=each: each)
            for each in worlds
        ]
        views: dict[int, View] = {}

        async def go(n: int, session: Session) -> None:
            await session.inbox.say("Go.")
            views[n] = await session.run_turns()

        async with anyio.create_task_group() as group:
            for n, session in enumerate(sessions):
                group.start_soon(go, n, session)
        return [views[n] for n in range(len(worlds))]

    return anyio.run(main)


def results(view: View) -> list[str]:
    parts = [part for spoken in view.conversation.messages for part in spoken.message.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


@pytest.mark.parametrize(
    "second", [edit_call("two", "second"), PATCHED], ids=["edit", "patch"]
)
def test_an_edit_of_a_file_changed_by_a_sibling_is_refused_naming_the_sibling(
    tmp_path: Path, second: list[tuple[str, str]]
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    shared, read, changed = Shared(), anyio.Event(), anyio.Event()
    one = InTurn(
        READ, edit_call("one", "first"), "Done.", waits={1: read}, tells={2: changed}
    )
    two = InTurn(READ, second, READ, second, "Done.", waits={1: changed}, tells={1: read})

    first, last = run_side_by_side(
        [
            make_world(tmp_path, one, shared, "root/child-1"),
            make_world(tmp_path, two, shared, "root/child-2"),
        ]
    )

    path = tmp_path / "a.txt"
    _, result, again, done = results(last)
    assert "has changed since you last read it" in result
    assert result.endswith(
        f"(The agent root/child-1, which works beside you, has changed {path} since.)"
    )
    assert "first" in again
    assert path.read_text().split() == [
        "first",
        "second" if "edit" in str(second) else "patched",
    ]
    assert "child" not in done
    assert not any("child" in text for text in results(first))


def test_a_file_created_by_a_sibling_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    making = [("write_file", '{"path": "new.txt", "content": "mine"}')]
    shared = Shared()
    one = make_world(tmp_path, ScriptedProvider(making, "Done."), shared, "root/child-1")
    two = make_world(tmp_path, ScriptedProvider(making, "Done."), shared, "root/child-2")

    run_side_by_side([one])
    (last,) = run_side_by_side([two])

    assert "root/child-1" in results(last)[0]
    assert "was not read in this session" in results(last)[0]


def test_edits_of_one_file_run_one_after_the_other_in_the_whole_tree(
    tmp_path: Path,
) -> None:
    call = ("slow_edit", '{"path": "a.txt"}')
    shared, inside = Shared(), list[str]()
    worlds = [
        make_world(
            tmp_path, ScriptedProvider([call, call], "Done."), shared, f"child-{n}", inside
        )
        for n in range(4)
    ]
    apart = [
        make_world(tmp_path, ScriptedProvider([call], "Done."), Shared(), "root", inside)
        for _ in range(2)
    ]

    texts = {text for view in run_side_by_side(worlds) for text in results(view)}
    unlocked = {text for view in run_side_by_side(apart) for text in results(view)}

    assert texts == {"alone"}
    assert unlocked == {"alone", "together"}


def test_other_writer_names_another_agent_that_changed_the_file_since_the_read() -> None:
    shared = Shared()
    shared.record_write("/a", "new", "root/child-1")

    assert shared.other_writer("/a", "old", "root") == "root/child-1"
    assert shared.other_writer("/a", "new", "root") == ""
    assert shared.other_writer("/a", "old", "root/child-1") == ""
    assert shared.other_writer("/b", "old", "root") == ""
