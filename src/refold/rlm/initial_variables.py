"""The variables that the Python of a session begins with: values, files, another session's.

They are recorded in the journal before code uses them, so a session that is resumed after a
crash has them, and the files that were read can be looked up. `repl` puts them into a process.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from refold.journal.events.child_events import VariableInjected

if TYPE_CHECKING:
    from refold.rlm.call_context import Journal

Files: TypeAlias = tuple[tuple[str, str], ...]  # real paths, and the sha256 of each
MAX_NAMED_FILES = 2_000  # named in the event itself; longer lists are a blob


class InitialVariables(Struct, frozen=True):
    """What the Python of a session begins with.

    `values` are variables, as JSON values, until `inject` has recorded them; `files` are the files that a variable was read from, in
    the order of its texts. Variables of the session `attached`, as ID or ID@3 (after its third
    turn), are restored before them.
    """

    values: dict[str, object] = {}
    attached: str = ""
    files: Mapping[str, Files] = {}


async def inject(begins: InitialVariables, record: "Journal") -> None:
    """Record each variable once: initial variables never change afterwards.

    A value that is recorded is removed from `begins`: large material is not held in memory, too.
    """
    for name in list(begins.values):
        if name not in dict(record.view.account.injected):
            blob = await record.put_bytes(msgspec.json.encode(begins.values[name]))
            files = begins.files.get(name, ())
            listed = ""
            if len(files) > MAX_NAMED_FILES:
                listed, files = await record.put_bytes(msgspec.json.encode(files)), ()
            await record(VariableInjected(name, blob, files, listed), author="code")
        begins.values.pop(name, None)


def files_in(blob: bytes) -> Files:
    """Decode a list of files. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(blob, type=Files)
