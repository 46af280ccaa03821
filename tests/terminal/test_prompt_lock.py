"""Who may read the keyboard while the session works: one at a time, and Ctrl+C works."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from refold.terminal.work import PromptLock


@pytest.mark.parametrize("steps", range(6))
def test_ctrl_c_is_heard_however_early_it_comes(steps: int) -> None:
    """Also after the keyboard was asked for, and before it is read."""
    heard = list[str]()

    async def story() -> None:
        async def nothing() -> str:
            await anyio.sleep_forever()
            return ""

        lock = PromptLock(nothing)

        async def listen() -> None:
            heard.append(await lock.next_line())

        with anyio.move_on_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                for _ in range(steps):
                    await checkpoint()
                lock.want()

    anyio.run(story)

    assert heard == [""]
