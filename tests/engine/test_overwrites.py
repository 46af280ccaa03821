"""An overwrite without a question, of a file that was not read since its last change."""

from pathlib import Path

import msgspec
import pytest

from refold.engine.world import World
from refold.journal.events.kinds import Ended
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.edit import write_file
from refold.tools.read import read_file
from tests.engine.house import entries, run, world

ALLOWED = (parse("write_file(**)", "allow"), parse("read_file(**)", "allow"))
LONG = "".join(f"line {n}\n" for n in range(30))


def call(name: str, **arguments: str) -> Line:
    return [(name, msgspec.json.encode({"path": "a.txt", **arguments}).decode())]


LONG_FILE = call("write_file", content=LONG)
SHORT_FILE = call("write_file", content="line 1\n")
OTHER_FILE = call("write_file", content="line 2\n")
READ = call("read_file")


def place(directory: Path, *script: Line) -> World:
    files = DiskFiles(directory)

    def facts() -> Facts:
        return Facts(follow=lambda path: str(files.real(path)), roots=(str(directory),))

    return world(
        ScriptedProvider(*script, "Done."),
        tools=(read_file, write_file),
        files=files,
        facts=facts,
        rules=ALLOWED,
        tool_dependencies={"blobs": None},
    )


@pytest.mark.parametrize(
    ("script", "outcomes"),
    [
        ([LONG_FILE, SHORT_FILE], ["done", "failed"]),
        ([LONG_FILE, SHORT_FILE, SHORT_FILE], ["done", "failed", "done"]),
        ([LONG_FILE, SHORT_FILE, OTHER_FILE], ["done", "failed", "failed"]),
        ([LONG_FILE, READ, SHORT_FILE], ["done", "done", "done"]),
        ([LONG_FILE, SHORT_FILE, READ, OTHER_FILE], ["done", "failed", "done", "done"]),
    ],
)
def test_overwrite_of_an_unread_file_that_drops_most_of_it_fails_once(
    tmp_path: Path, script: list[Line], outcomes: list[str]
) -> None:
    store = MemoryStore()

    run(store, place(tmp_path, *script), "Go.")

    ends = [entry.event for entry in entries(store) if isinstance(entry.event, Ended)]
    assert [end.outcome for end in ends] == outcomes
