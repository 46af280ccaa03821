"""The tool `bash`: runs a shell command.

The place starts, watches and stops the command; rules have decided before whether it may
run. `careful` keeps redirections from overwriting files.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.port import Commands, Files, Finished, Real
from refold.tools.contract import Reply, Tool, tool
from refold.tools.find import directory as a_directory
from refold.values.display import Output
from refold.values.printable_names import escaped
from refold.values.tools import Confines, Effect

_SHOWN = 10_000  # characters, for the person
_COLOURS_AND_MOVES = r"\x1b\[[0-?]*[ -/]*[@-~]"
# To the clipboard, to the title, to the keyboard: nobody misses these, but they are told.
_TERMINAL_ORDERS = r"\x1b(?:[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\])"
_AN_ORDER = "[an order to the terminal]"

_LOOKED_THROUGH = 20_000  # characters at the end, where programs say why they failed
_NO_NETWORK = (
    r"resolve host|name resolution|name or service not known|network is unreachable|"
    r"no address associated|getaddrinfo|failed to lookup address|nodename nor servname|"
    r"ENOTFOUND|EAI_AGAIN|ENETUNREACH|dial tcp|establish a new connection|dns error"
)
_CURL_FOUND_NOBODY = (6, 7)  # and with -s it says nothing
_NOT_WRITABLE = r"(?i:read-only file system|EROFS)|Device or resource busy"


@tool(Effect.RUN)
async def bash(  # noqa: PLR0913 - the parameters are the schema
    command: str,
    timeout: Annotated[int, Meta(ge=1, le=600, description="seconds")] = 60,  # noqa: ASYNC109 - the name models expect
    cwd: str = "",
    network: Annotated[bool, Meta(description="it must reach the network")] = False,
    *,
    files: Files,
    commands: Commands,
    confines: Confines,
    directory: Path,
    progress: Callable[[str], None],
) -> Reply:
    """Run a bash command in the workspace. It gets no input and must end by itself."""
    where, name = str(directory), ""
    if cwd:
        where, name = await to_thread.run_sync(partial(_inside, cwd, files))
    done = await commands.run(
        command, cwd=where, seconds=timeout, confines=confines, on_output=progress
    )
    text, whole = done.read()
    text = readable(text)
    remarks = _remarks(done, timeout, "" if name == "." else name)
    remarks += _held_back(done, text[-_LOOKED_THROUGH:], network)
    remarks += [
        f"{files.called(Real(path))} is guarded: what was made there is now {escaped(goal)}"
        for path, goal in done.taken
    ]
    if not whole:
        remarks.append(f"it printed {done.printed:,} bytes in all")
    body = text.rstrip("\n") if text.strip() else "(no output)"
    said = f"{body}\n({'; '.join(remarks)})" if remarks else body
    shown = Output(command, _shortened(text, done), done.code, _ended(done, timeout))
    return Reply(said, (shown,), whole=whole)


def readable(text: str) -> str:
    """Without colours, with a placeholder for other control sequences, and without NUL."""
    if "\x1b" in text:
        text = re.sub(_TERMINAL_ORDERS, _AN_ORDER, re.sub(_COLOURS_AND_MOVES, "", text))
    return text.replace("\0", "\\0") if "\0" in text else text


def _inside(cwd: str, files: Files) -> tuple[str, str]:
    if outside := files.outside(cwd):
        raise ToolFailed(
            f"{files.called(outside)} lies outside the workspace: cwd must not. "
            "Go there with cd in the command instead."
        )
    return a_directory(cwd, files)


def _ended(done: Finished, seconds: int) -> str:
    if done.stopped:
        return done.stopped
    return f"it took longer than {seconds} s" if done.timed_out else ""


def _remarks(done: Finished, seconds: int, where: str) -> list[str]:
    remarks = list[str]()
    if done.stopped:
        remarks.append(f"ended by us: {done.stopped}")
    elif done.timed_out:
        remarks.append(
            f"ended by us after {seconds} s; at most 600 can be given, and no input"
        )
    elif done.code:
        remarks.append(f"exit code {done.code}")
    if where:
        remarks.append(f"in {where}")
    return remarks


def _held_back(done: Finished, text: str, network: bool) -> list[str]:
    """Why something may have failed that works elsewhere."""
    remarks = list[str]()
    silent = done.code in _CURL_FOUND_NOBODY and not text.strip()
    if done.offline and (silent or re.search(_NO_NETWORK, text, re.IGNORECASE)):
        remarks.append(
            "the network was off all the same: it was not allowed"
            if network
            else "the network was off: pass network=true if it is needed"
        )
    if (done.offline or done.looking) and re.search(_NOT_WRITABLE, text):
        remarks.append(
            "it ran as a read-only command, so it could not change files"
            if done.looking
            else "only the workspace and /tmp can be written, and no guarded files in it"
        )
    return remarks


def _shortened(text: str, done: Finished) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    left = f"{len(text) - 2 * half:,} characters"
    if done.dropped:
        left = f"{left}, and {done.dropped:,} bytes that were not kept,"
    return f"{text[:half]}\n[{left} are not shown]\n{text[-half:]}"


_NO_CLOBBER = "set -C; export SHELLOPTS; "  # also in the bash that a command starts


def careful(tool: Tool) -> Tool:
    """`tool`, if it is the shell with nothing overwritten by a redirection."""
    if tool.spec.name != "bash":
        return tool

    async def run(command: str, **given: object) -> Reply:
        return await tool.run(_NO_CLOBBER + command, **given)

    return replace(tool, run=run)
