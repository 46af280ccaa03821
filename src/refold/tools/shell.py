"""The tools that run shell commands: `bash`, `background_run` with its companions, `monitor`.

The place starts, watches and stops a command; rules have decided before whether it may
run. `agents.background_commands` keeps those that run in the background. `careful` keeps
redirections from overwriting files.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.journal.state.background import BackgroundCommand, end_text
from refold.place.port import CommandExtras, Commands, Files, Finished, Handover
from refold.tools.contract import Reply, Tool, tool
from refold.tools.find import directory as a_directory
from refold.values.display import Note, Output
from refold.values.kept_output import Printed
from refold.values.tools import Confinement, Effect

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
_SHOWN_HOSTS = 10
_NO_PROXY = (
    "the network is reached only through the proxy that HTTPS_PROXY names, by HTTP, and this "
    "program seems not to use it: give it the proxy, or ask for every host with "
    'hosts=["all"]'
)
_CURL_FOUND_NOBODY = (6, 7)  # and with -s it says nothing
_NO_MODE = r"(?:chmod|mode|permissions)\b[^\n]*operation not permitted"
_NOT_WRITABLE = r"(?i:read-only file system|EROFS)|Device or resource busy"


Hosts: TypeAlias = Annotated[
    tuple[str, ...],
    Meta(
        max_length=20,
        description="the hosts that it must reach, besides those of URLs in it, remotes of git "
        'and package registries: "api.example.org", "*.example.org:8443"; ["all"]: every host',
    ),
]


class BackgroundRequest(Struct, frozen=True):
    """A command, and where and how confined it is to run."""

    command: str
    directory: str
    confines: Confinement
    notify: bool = False  # wake the agent at its end
    until: str = ""  # and when it prints one of these texts, with | between them


class BackgroundOutput(Struct, frozen=True):
    """`ended` says how the command ended; "": it runs. `code`: None if it did not exit."""

    text: str
    ended: str = ""
    code: int | None = None
    whole: bool = True
    outside: bool = False  # it was to reach the network


class BackgroundRunner(Protocol):
    """The background commands of a session. All raise `ToolFailed`.

    `output` is what was printed since the last time, or all of it. `stop` waits for the end,
    and is False if it had ended before; with `told` the model need not hear of it.

    The user can move a command of another call here while it is `movable`. `adopt` then takes
    it over, and ends it if that cannot be recorded: `so_far` is what the call has returned of
    it, and `printed` gets its output.
    """

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str: ...
    def movable(self, call_id: str) -> AbstractContextManager[Handover]: ...
    async def adopt(
        self,
        call_id: str,
        request: BackgroundRequest,
        so_far: Finished,
        printed: Printed,
    ) -> str: ...
    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput: ...
    async def stop(self, name: str, *, told: bool = False) -> bool: ...
    def every(self) -> Sequence[BackgroundCommand]: ...


@tool(Effect.RUN)
async def bash(  # noqa: PLR0913 - the parameters are the schema
    command: str,
    timeout: Annotated[int, Meta(ge=1, le=600, description="seconds")] = 60,  # noqa: ASYNC109 - the name models expect
    cwd: str = "",
    network: Annotated[bool, Meta(description="it must reach the network")] = False,
    hosts: Hosts = (),
    *,
    files: Files,
    commands: Commands,
    confines: Confinement,
    directory: Path,
    progress: Callable[[str], None],
    background: BackgroundRunner,
    call: str,
) -> Reply:
    """Run a bash command in the workspace. It gets no input and must end by itself."""
    where, name = await _standing(cwd, directory, files)
    printed = Printed()
    with background.movable(call) as handover:
        done = await commands.run(
            command,
            cwd=where,
            seconds=timeout,
            confines=confines,
            on_output=progress,
            given=CommandExtras(printed=printed, handover=handover),
        )
    if done.continued is not None:
        request = BackgroundRequest(command, where, confines)
        return _moved(done, command, await background.adopt(call, request, done, printed))
    text, whole = done.read()
    text = readable(text)
    remarks = _remarks(done, timeout, "" if name == "." else name)
    wanted = network or bool(hosts)
    remarks += _held_back(done, text[-_LOOKED_THROUGH:], command, network=wanted)
    remarks += host_remarks(done)
    remarks += done.guarded.sentences(files.called)
    if not whole:
        remarks.append(f"it printed {done.printed:,} bytes in all")
    body = text.rstrip("\n") if text.strip() else "(no output)"
    said = f"{body}\n({'; '.join(remarks)})" if remarks else body
    ended = _ended(done, timeout)
    shown = Output(command, _shortened(text, done), done.code, ended, done.attempts)
    return Reply(said, (shown,), whole=whole)


def _moved(so_far: Finished, command: str, name: str) -> Reply:
    """The result of a call whose command goes on without it."""
    text, whole = so_far.read()
    text = readable(text)
    body = text.rstrip("\n") if text.strip() else "(no output so far)"
    said = (
        f"{body}\n(it has not ended: the user moved it to the background, where it goes on as "
        f"{name}, without a time limit. {_companions(name)})"
    )
    return Reply(said, (_runs(name, command),), whole=whole)


def _runs(name: str, command: str) -> Note:
    return Note(f"{name} runs in the background: {command}")


def _companions(name: str, *, notify: bool = False) -> str:
    end = (
        "When it has ended, you are woken: you may finish until then."
        if notify
        else "You are told at your next step after its end, and it ends with the session."
    )
    return (
        f"background_output({name!r}) reads what it prints, and background_stop({name!r}) ends "
        f"it. {end}"
    )


@tool(Effect.RUN)
async def background_run(  # noqa: PLR0913 - the parameters are the schema
    command: str,
    cwd: str = "",
    network: Annotated[
        bool,
        Meta(
            description="it must reach the network, or other commands must reach it (then "
            'hosts=["all"], and they need network=true, too)'
        ),
    ] = False,
    hosts: Hosts = (),
    notify: Annotated[
        bool, Meta(description="wake me when it ends, even if I have finished by then")
    ] = False,
    *,
    files: Files,
    commands: Commands,
    confines: Confinement,
    directory: Path,
    background: BackgroundRunner,
    call: str,
) -> Reply:
    """Start a bash command in the background: a server, a watcher, a long build. It has no time limit, goes on after this turn, and ends with the session."""
    where, _ = await _standing(cwd, directory, files)
    request = BackgroundRequest(command, where, confines, notify)
    name = await background.start(call, request, commands)
    said = f"{name} runs. {_companions(name, notify=notify)}"
    return Reply(said, (_runs(name, command),))


@tool(Effect.RUN, subject="command")
async def monitor(  # noqa: PLR0913 - the parameters are the schema
    until: Annotated[
        str,
        Meta(min_length=1, description='texts to wait for, plain, as in "ready|Error"'),
    ],
    command: str = "",
    file: Annotated[
        str, Meta(description="a log to watch instead of a command; it need not exist yet")
    ] = "",
    cwd: str = "",
    network: Annotated[bool, Meta(description="it must reach the network")] = False,
    hosts: Hosts = (),
    *,
    files: Files,
    commands: Commands,
    confines: Confinement,
    directory: Path,
    background: BackgroundRunner,
    call: str,
) -> Reply:
    """Start a bash command in the background, and be woken when it prints one of some texts, or ends; or when one is written to a file from now on."""
    where, _ = await _standing(cwd, directory, files)
    if file:
        await to_thread.run_sync(_check_log, file, files)
    request = BackgroundRequest(command, where, confines, notify=True, until=until)
    name = await background.start(call, request, commands)
    said = (
        f"{name} runs. You get a message when it prints {' or '.join(until.split('|'))}, and "
        f"when it ends. You may finish until the first of these. background_stop({name!r}) ends it."
    )
    return Reply(said, (Note(f"{name} waits for {until}: {file or command}"),))


def _watching(given: dict[str, object]) -> dict[str, object]:
    """A file is watched by a command, and so judged, confined and shown like one.

    `tail` follows the name: a file that is rotated, cut short or made later. What it says
    about that is no part of the log.
    """
    command, file = given.get("command", ""), str(given.get("file", ""))
    if not file:
        if not command:
            raise ToolFailed(
                "monitor takes a command or a file: give one. Nothing was done."
            )
        return given
    from shlex import quote

    made = f"tail -n 0 -F -- {quote(file)} 2>/dev/null"
    if command not in ("", made) or given.get("cwd"):
        raise ToolFailed(
            "monitor takes a file alone, without command and cwd. Nothing was done."
        )
    return {**given, "command": made}


def _check_watched(given: Mapping[str, object], files: Files) -> None:
    if file := str(given.get("file", "")):
        _check_log(file, files)


monitor = replace(monitor, rewrite=_watching, check=_check_watched)


def _check_log(file: str, files: Files) -> None:
    """Raises `ToolFailed` for what is no file, or may not be read."""
    if outside := files.outside(file):
        raise ToolFailed(
            f"{files.called(outside)} lies outside the workspace: watch it with a command, "
            "such as tail -n 0 -F FILE."
        )
    real = files.real(file)
    if why := files.unread(real):
        raise ToolFailed(f"{files.called(real)} may not be watched: {why}.")
    if (kind := files.kind(real)) not in ("file", "nothing"):
        what = "a directory" if kind == "directory" else "no regular file"
        raise ToolFailed(f"Cannot watch {files.called(real)}: it is {what}.")


@tool(Effect.SELF, subject="name")
async def background_output(
    name: Annotated[str, Meta(description='as in "background-1"; "": list them')] = "",
    all: Annotated[bool, Meta(description="from the beginning")] = False,
    *,
    background: BackgroundRunner,
) -> Reply:
    """Read what a background command has printed since you last looked, or list the commands."""
    if not name:
        lines = [_line(each) for each in background.every() if not each.foreign]
        text = "\n".join(lines) or "No command was started in the background."
        many = "1 command" if len(lines) == 1 else f"{len(lines)} commands"
        return Reply(text, (Note(f"{many} in the background so far"),))
    found = await background.output(name, all_of_it=all)
    text = readable(found.text).rstrip("\n")
    body = text or ("(no output)" if all else "(nothing new)")
    how = found.ended or "it runs"
    if found.code is not None:
        shown = Output(name, text[-_SHOWN:], found.code)
    else:
        last = f"; its last line: {text.splitlines()[-1].strip()}" if text else ""
        shown = Note(f"{name}: {how}{last}")
    said = f"{body}\n({how})"
    return Reply(said, (shown,), whole=found.whole, outside=found.outside)


@tool(Effect.SELF)
async def background_stop(name: str, *, background: BackgroundRunner) -> Reply:
    """Stop a background command, with all that it started."""
    stopped = await background.stop(name, told=True)
    said = f"{name} is stopped." if stopped else f"{name} had ended before."
    return Reply(said, (Note(said),))


def _line(command: BackgroundCommand) -> str:
    how = end_text(command.end) if command.end else "runs"
    return f"{command.name}: {how}: {' '.join(command.started.command.split())}"


def readable(text: str) -> str:
    """Without colours, with a placeholder for other control sequences, and without NUL."""
    if "\x1b" in text:
        text = re.sub(_TERMINAL_ORDERS, _AN_ORDER, re.sub(_COLOURS_AND_MOVES, "", text))
    return text.replace("\0", "\\0") if "\0" in text else text


async def _standing(cwd: str, directory: Path, files: Files) -> tuple[str, str]:
    """Where a command runs, and its name in the workspace if the call named it."""
    if not cwd:
        return str(directory), ""
    return await to_thread.run_sync(partial(_inside, cwd, files))


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


def _held_back(done: Finished, text: str, command: str, *, network: bool) -> list[str]:
    """Why something may have failed that works elsewhere."""
    remarks = list[str]()
    silent = done.code in _CURL_FOUND_NOBODY and not text.strip()
    if done.filtered:
        pass  # `host_remarks` says what there is to say
    elif done.offline and (silent or re.search(_NO_NETWORK, text, re.IGNORECASE)):
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
    if done.no_namespaces and (done.code or "|" in command):  # of the last in a pipe
        remarks += _refused_by_kernel(text)
    return remarks


def host_remarks(done: Finished) -> list[str]:
    """Which hosts it reached and which it may not, and how to ask for those."""
    if not done.filtered:
        return []
    from refold.values.hosts import in_rule

    reached = sorted({in_rule(a.host, a.port) for a in done.attempts if not a.refused})
    refused = sorted({in_rule(a.host, a.port) for a in done.attempts if a.refused})
    remarks = [f"it reached {', '.join(reached[:_SHOWN_HOSTS])}"] if reached else []
    if refused:
        names = ", ".join(f'"{place}"' for place in refused[:_SHOWN_HOSTS])
        why = next(a.refused for a in done.attempts if a.refused)
        remarks.append(
            f"refused: {names} ({why}); if it must reach them, run it again with hosts=[{names}], "
            f"which asks the user; a rule is net({refused[0]})"
        )
    text = done.text[-_LOOKED_THROUGH:]
    if not done.attempts and done.code and re.search(_NO_NETWORK, text, re.IGNORECASE):
        remarks.append(_NO_PROXY)
    return remarks


def _refused_by_kernel(text: str) -> list[str]:
    from refold.values.namespaces import REFUSED, refused_namespaces  # of few commands

    remarks = [REFUSED] if refused_namespaces(text) else []
    if re.search(_NO_MODE, text, re.IGNORECASE):
        remarks.append("no command gives a file a setuid or setgid bit")
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
    if tool.name not in ("bash", "background_run", "monitor"):
        return tool

    async def run(command: str, **given: object) -> Reply:
        return await tool.run(_NO_CLOBBER + command, **given)

    return replace(tool, run=run)
