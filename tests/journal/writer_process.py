"""Writes a journal, and reports on its standard output which lines are safe.

    python writer_process.py DIRECTORY COUNT [wait]

It prints `written N` and `kept N` after the store has written and kept the first N lines. After a
fault it prints `failed`, takes the lock again and continues after the lines that the journal has.
With `wait` it keeps the lock and waits for its standard input to end.
"""

import os
import sys
from pathlib import Path

import anyio

from refold.errors import Held, JournalError
from refold.journal.store.file import FileStore
from refold.journal.store.writer_threads import Writers


def print_words(text: str) -> None:
    os.write(1, text.encode() + b"\n")


async def write_to(store: FileStore, count: int) -> None:
    epoch = (await store.lease()).epoch
    for n in range(len(await store.read()), count):
        await store.append([b"line %d" % n], expect=n, epoch=epoch, head=(n + 1, "h"))
        print_words(f"written {n + 1}")
        if n % 2:
            await store.keep()
            print_words(f"kept {n + 1}")
    await store.keep()
    print_words(f"kept {count}")


async def main(directory: str, count: str, *wait: str) -> None:
    store = FileStore(Path(directory), Writers(threads=1))
    for _ in range(10):
        try:
            await write_to(store, int(count))
            break
        except Held as error:
            print_words(f"held {error}")
            return
        except JournalError as error:
            print_words(f"failed {error}")
    if wait:
        sys.stdin.read()
    try:
        await store.release()
        print_words("done")
    except JournalError as error:
        print_words(f"failed {error}")


anyio.run(main, *sys.argv[1:])
