"""The tool that runs a shell command.

How a command is started, watched and ended is the place's business; whether
it may run was judged before.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from refold.errors import ToolFailed
from refold.place.port import Commands, Files, Finished
from refold.tools.contract import Reply, tool
from refold.tools.find import directory as a_directory
from refold.values.shown import Output
from refold.values.tools import Effect

_SHOWN = 10_000  # characters, for the person
_TERMINAL_ORDERS = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"


@tool(Effect.RUN)
async def bash(  # noqa: PLR0913 - the parameters are the schema
    command: str,
    timeout: Annotated[int, Meta(ge=1, le=600, description="seconds")] = 60,  # noqa: ASYNC109 - the name models expect
    cwd: str = "",
    *,
    files: Files,
    commands: Commands,
    directory: Path,
    progress: Callable[[str], None],
) -> Reply:
    """Run a bash command in the workspace. It gets no input and must end by itself."""
    where, name = str(directory), ""
    if cwd:
        where, name = await to_thread.run_sync(partial(_inside, cwd, files))
    done = await commands.run(command, cwd=where, seconds=timeout, on_output=progress)
    text = readable(done.text)
    remarks = _remarks(done, timeout, "" if name == "." else name)
    body = text.rstrip("\n") if text.strip() else "(no output)"
    said = f"{body}\n({'; '.join(remarks)})" if remarks else body
    return Reply(said, (Output(command, _shortened(text), done.code),))


def readable(text: str) -> str:
    """Without colours and other orders to a terminal, and without NUL."""
    if "\x1b" in text:
        text = re.sub(_TERMINAL_ORDERS, "", text)
    return text.replace("\0", "\\0") if "\0" in text else text


def _inside(cwd: str, files: Files) -> tuple[str, str]:
    if outside := files.outside(cwd):
        raise ToolFailed(
            f"{files.called(outside)} lies outside the workspace: cwd must not. "
            "Go there with cd in the command instead."
        )
    return a_directory(cwd, files)


def _remarks(done: Finished, seconds: int, where: str) -> list[str]:
    remarks = list[str]()
    if done.timed_out:
        remarks.append(
            f"ended by us after {seconds} s; at most 600 can be given, and no input"
        )
    elif done.code:
        remarks.append(f"exit code {done.code}")
    if where:
        remarks.append(f"in {where}")
    return remarks


def _shortened(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    left = len(text) - 2 * half
    return f"{text[:half]}\n[{left:,} characters are not shown]\n{text[-half:]}"
