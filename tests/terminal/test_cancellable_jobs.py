"""A job outside the session ends with Ctrl+C, whether or not it notices."""

import io
import os
import signal
from pathlib import Path
from threading import Event

import anyio

from refold.console.capabilities import TerminalCapabilities
from refold.console.console_context import CancellableJob
from refold.console.printer import Printer
from refold.place.files import DiskFiles
from refold.terminal.run import PromptLoop
from refold.testing.providers import ScriptedProvider
from tests.terminal.stage import handle_on, open_session
from tests.terminal.test_conversation import Typist


def test_a_cancelled_job_is_abandoned_while_its_thread_still_runs() -> None:
    out, began, over = io.StringIO(), Event(), Event()
    apart = CancellableJob(Printer(out, TerminalCapabilities()), Typist())

    def stuck() -> str:
        began.set()
        over.wait(60)
        return "at last"

    async def run_stuck() -> str:
        return await anyio.to_thread.run_sync(stuck, abandon_on_cancel=True)

    async def another() -> str:
        return "another"

    async def main() -> list[str | None]:
        texts = list[str | None]()

        async def do() -> None:
            texts.append(await apart.wait(run_stuck))
            texts.append(await apart.wait(another))

        async with anyio.create_task_group() as group:
            group.start_soon(do)
            await anyio.to_thread.run_sync(began.wait)
            assert apart.stop()
        over.set()
        return texts

    assert anyio.run(main) == [None, "another"]
    assert out.getvalue().strip() == "stopped"


def test_stopping_without_a_running_job_returns_false() -> None:
    assert not CancellableJob(
        Printer(io.StringIO(), TerminalCapabilities()), Typist()
    ).stop()


class Stuck(DiskFiles):
    """Files on a disk that never answers, and that reports when it is asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked, self.answers = Event(), Event()

    def real(self, path: str) -> str:
        self.asked.set()
        self.answers.wait(60)
        return super().real(path)


def test_ctrl_c_stops_verify_and_the_session_continues(tmp_path: Path) -> None:
    claim = '{"claim": "It greets.", "evidence": [{"path": "a.py", "quote": "hello"}]}'
    provider, out, files = ScriptedProvider(claim, "Fine."), io.StringIO(), Stuck(tmp_path)

    async def press() -> None:
        await anyio.to_thread.run_sync(files.asked.wait)
        os.kill(os.getpid(), signal.SIGINT)

    async def main() -> None:
        async with await open_session(provider, tmp_path) as session:
            typist = Typist("look", "/verify", "and you?")
            handle = handle_on(session, provider, tmp_path, files=files)
            there = PromptLoop(handle, Printer(out, TerminalCapabilities()), typist)
            async with anyio.create_task_group() as group:
                group.start_soon(press)
                await there.run("")
        files.answers.set()

    anyio.run(main)

    text = out.getvalue()
    assert claim in text
    assert "stopped\n" in text
    assert text.index("stopped") < text.index("Fine.")
