"""The initial variables of a session's Python: values, files, another session's variables.

They are recorded in the journal before code uses them. So a session that is resumed after a
crash has them, and the journal shows which files were read. `repl` sets them in a process.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from refold.journal.events.child_events import VariableInjected

if TYPE_CHECKING:
    from refold.rlm.call_context import Journal

Files: TypeAlias = tuple[tuple[str, str], ...]  # the real path and the sha256 of each file
MAX_NAMED_FILES = 2_000  # in the event itself; a longer list is stored as a blob


class InitialVariables(Struct, frozen=True):
    """The initial variables of a session's Python.

    `values` maps names to JSON values, until `inject` has recorded them. `files` maps the name
    of a variable to the files from which it was read, in the order of their texts. `attached`
    names another session, as ID or ID@3 (after its third turn); its variables are restored
    before `values` are set.
    """

    values: dict[str, object] = {}
    attached: str = ""
    files: Mapping[str, Files] = {}


async def inject(initial_variables: InitialVariables, record: "Journal") -> None:
    """Record each initial variable that is not in the journal yet.

    Its value is then removed from `initial_variables`, so that it is not in memory twice.
    """
    for name in list(initial_variables.values):
        if name not in dict(record.view.account.injected):
            value = msgspec.json.encode(initial_variables.values[name])
            blob = await record.put_bytes(value)
            files = initial_variables.files.get(name, ())
            list_blob = ""
            if len(files) > MAX_NAMED_FILES:  # too many for the event itself
                list_blob = await record.put_bytes(msgspec.json.encode(files))
                files = ()
            await record(VariableInjected(name, blob, files, list_blob), author="code")
        initial_variables.values.pop(name, None)


def files_in(blob: bytes) -> Files:
    """Decode a list of files. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(blob, type=Files)
