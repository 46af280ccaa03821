"""Runs the stage with a bug, which raises an error in the middle of an answer."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
from stage import handle_on, open_session

from refold.provider.port import Delta, Request, TextDelta
from refold.terminal.run import run


class Mistaken:
    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield TextDelta("word word ")
        await anyio.wait_all_tasks_blocked()  # so that it is printed, where it can be
        raise ZeroDivisionError


async def main() -> int:
    here, provider = Path.cwd(), Mistaken()
    session = await open_session(provider, here)
    return await run(handle_on(session, provider, here))


if __name__ == "__main__":
    sys.exit(anyio.run(main))
