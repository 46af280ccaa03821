"""Runs a session that asks 300 questions, in a process of its own, which a test kills.

Usage: python fanning_out.py HOME LOG
"""

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
from msgspec.structs import replace

from refold.journal.journal_directory import JournalDirectory
from refold.provider.port import Delta, Done, Request, TextDelta
from refold.testing.providers import ScriptedProvider
from refold.values.usage import Usage
from tests.rlm.acting_by_code import LEASH, CodeSession, as_code

MANY = 300
SESSION = "fan"
CODE = (
    f"found = map_lm([str(n) for n in range({MANY})], 'q')\n"
    "FINAL([len(found), len(set(found)), all(found)])"
)


class Counting:
    """Writes down each request before it answers, as a real server would."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        line = request.messages[0].message.text.splitlines()[1]
        os.write(self._file, f"{line}\n".encode())
        await anyio.sleep(0.02)
        yield TextDelta(f"{line} is answered")
        yield Done(Usage(fresh=10, output=3))


async def main(home: Path, log: Path) -> None:
    store = JournalDirectory(home).store(SESSION)
    answers = [as_code(CODE)] * 2
    code_limits = replace(LEASH, fan_out=MANY)
    run = CodeSession(
        ScriptedProvider(*answers),
        Counting(log),
        store=store,
        repl_options={"code_limits": code_limits},
    )
    session = await run.session()
    if not session.view.turn.seq:
        await session.inbox.say("Go.")
    view = await session.run_turns()
    await session.close()
    print(view.turn.answer)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
