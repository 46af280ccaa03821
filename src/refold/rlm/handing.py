"""What the Python of a session begins with goes into the journal, before anybody uses it.

So whoever goes on after a crash has it, and what was read of files can be looked up. How
it comes into a process is the business of `repl`.
"""

import msgspec

from refold.journal.below import Handed
from refold.rlm.below import Beginning, Files
from refold.rlm.within import Journal

MOST = 2_000  # files that an event names itself


async def hand_over(begins: Beginning, record: Journal) -> None:
    """Each variable once: what a session was handed is not changed afterwards."""
    for name, value in begins.values.items():
        if name in dict(record.view.account.handed):
            continue
        blob = await record.put_bytes(msgspec.json.encode(value))
        files = begins.files.get(name, ())
        listed = ""
        if len(files) > MOST:
            listed, files = await record.put_bytes(msgspec.json.encode(files)), ()
        await record(Handed(name, blob, files, listed), by="code")


def listed_in(blob: bytes) -> Files:
    """The files of such a list. Raises `msgspec.DecodeError`."""
    return msgspec.json.decode(blob, type=Files)
