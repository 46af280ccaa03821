"""The tools that run shell commands: `bash`, `monitor`, and those for background commands.

The place starts, watches and stops a command; permission rules have decided before whether it
may run. `agents.background_commands` manages background commands. `without_overwriting`
prevents redirections from overwriting files.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias

from anyio import to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.journal.state.background import BackgroundCommand, end_text
from refold.place.port import CommandExtras, Commands, Files, Finished
from refold.tools.contract import Reply, Tool, tool
from refold.tools.find import find_directory
from refold.values.display import HostAttempt, Note, Output
from refold.values.kept_output import Printed
from refold.values.tools import Confinement, Effect

if TYPE_CHECKING:
    from refold.place.handover import Handover

_MAX_SHOWN_CHARS = 10_000  # shown to the user
_COLOURS_AND_MOVES = r"\x1b\[[0-?]*[ -/]*[@-~]"
# Control sequences for the clipboard, the title or the keyboard: replaced by a mark.
_TERMINAL_ORDERS = r"\x1b(?:[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\])"
_TERMINAL_ORDER_MARK = "[an order to the terminal]"

_SEARCHED_CHARS = 20_000  # at the end of the output, where programs report why they failed
_NO_NETWORK = (
    r"resolve host|name resolution|name or service not known|network is unreachable|"
    r"no address associated|getaddrinfo|failed to lookup address|nodename nor servname|"
    r"ENOTFOUND|EAI_AGAIN|ENETUNREACH|dial tcp|establish a new connection|dns error"
)
_NO_PROXY = (
    "the network is reached only through the proxy that HTTPS_PROXY names, by HTTP, and this "
    "program seems not to use it: give it the proxy, or ask for every host with "
    'hosts=["all"]'
)
_CURL_NETWORK_CODES = (6, 7)  # with these, curl -s prints nothing
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
    """A command to run in the background, its directory, and how it is confined."""

    command: str
    directory: str
    confines: Confinement
    notify: bool = False  # wake the agent when it ends
    # Also wake the agent when one of these texts is printed. "|" separates them.
    until: str = ""


class BackgroundOutput(Struct, frozen=True):
    """The output of a background command. `ended` says how it ended; "" if it still runs.

    `code` is its exit code; None unless the command has exited by itself.
    """

    text: str
    ended: str = ""
    code: int | None = None
    whole: bool = True
    outside: bool = False  # the command needed the network


class BackgroundRunner(Protocol):
    """The background commands of a session. All methods raise `ToolFailed`.

    `output` returns what was printed since the last call, or everything. `stop` waits for the
    end, and returns False if the command had ended before; with `silent` the model gets no
    message about it.

    The user can move the command of a `bash` call to the background while it is `movable`. Then
    `adopt` manages the command, or stops it if the change cannot be recorded. `so_far` is the
    result that the call returns, and `printed` gets the later output of the command.
    """

    async def start(
        self, call_id: str, request: BackgroundRequest, commands: Commands
    ) -> str: ...  # the name of the command
    def movable(self, call_id: str) -> "AbstractContextManager[Handover]": ...
    async def adopt(
        self,
        call_id: str,
        request: BackgroundRequest,
        so_far: Finished,
        printed: Printed,
    ) -> str: ...  # the name of the command
    async def output(self, name: str, *, all_of_it: bool = False) -> BackgroundOutput: ...
    async def stop(self, name: str, *, silent: bool = False) -> bool: ...
    def all_commands(self) -> Sequence[BackgroundCommand]: ...  # also those that have ended


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
    location, name = await _working_directory(cwd, directory, files)
    printed = Printed()
    with background.movable(call) as handover:
        result = await commands.run(
            command,
            cwd=location,
            seconds=timeout,
            confines=confines,
            on_output=progress,
            extras=CommandExtras(printed=printed, handover=handover),
        )
    if result.continued is not None:
        request = BackgroundRequest(command, location, confines)
        moved_name = await background.adopt(call, request, result, printed)
        return _reply_moved(result, command, moved_name)
    text, whole = result.read()
    text = to_readable(text)
    remarks = _remarks(result, timeout, other_directory="" if name == "." else name)
    output_end = text[-_SEARCHED_CHARS:]
    requested_network = network or bool(hosts)
    remarks += _offline_remarks(result, output_end, requested_network=requested_network)
    remarks += _sandbox_remarks(result, output_end, command)
    remarks += host_remarks(result)
    remarks += result.guarded.sentences(files.display_name)
    if not whole:
        remarks.append(f"it printed {result.total_bytes:,} bytes in all")
    body = text.rstrip("\n") if text.strip() else "(no output)"
    reply_text = f"{body}\n({'; '.join(remarks)})" if remarks else body
    ended = _end_reason(result, timeout)
    part, left_out = _shorten(text, result)
    shown = Output(command, part, result.code, ended, result.attempts, left_out)
    return Reply(reply_text, (shown,), whole=whole)


def _reply_moved(so_far: Finished, command: str, name: str) -> Reply:
    """Return the result of a `bash` call whose command the user moved to the background."""
    text, whole = so_far.read()
    text = to_readable(text)
    body = text.rstrip("\n") if text.strip() else "(no output so far)"
    reply_text = (
        f"{body}\n(it has not ended: the user moved it to the background, where it continues as "
        f"{name}, without a time limit. {_usage_hint(name)})"
    )
    return Reply(reply_text, (_running_note(name, command),), whole=whole)


def _running_note(name: str, command: str) -> Note:
    return Note(f"{name} runs in the background: {command}")


def _usage_hint(name: str, *, notify: bool = False) -> str:
    """Return how to read and stop a background command, whose end wakes the model if `notify`."""
    end = (
        "When it has ended, you are woken: you may finish until then."
        if notify
        else "You are notified at your next step after its end, and it ends with the session."
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
            description="the command must reach the network, or serve other commands: then "
            'also give hosts=["all"], and call those with network=true'
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
    """Start a bash command in the background: a server, a watcher, a long build. It has no
    time limit, continues after this turn, and ends with the session."""
    location, _ = await _working_directory(cwd, directory, files)
    request = BackgroundRequest(command, location, confines, notify)
    name = await background.start(call, request, commands)
    reply_text = f"{name} runs. {_usage_hint(name, notify=notify)}"
    return Reply(reply_text, (_running_note(name, command),))


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
    location, _ = await _working_directory(cwd, directory, files)
    if file:
        await to_thread.run_sync(_check_log, file, files)
    request = BackgroundRequest(command, location, confines, notify=True, until=until)
    name = await background.start(call, request, commands)
    reply_text = (
        f"{name} runs. You get a message when it prints {' or '.join(until.split('|'))}, and "
        f"when it ends. You may finish until the first of these. background_stop({name!r}) ends it."
    )
    return Reply(reply_text, (Note(f"{name} waits for {until}: {file or command}"),))


def _with_tail_command(arguments: dict[str, object]) -> dict[str, object]:
    """Replace a watched file in the arguments by a command, so that rules for commands apply.

    `tail` follows the name of the file, even if it is rotated, truncated or created later. The
    messages of `tail` itself are discarded, because they are not part of the log.
    """
    command, file = arguments.get("command", ""), str(arguments.get("file", ""))
    if not file:
        if not command:
            raise ToolFailed(
                "monitor takes a command or a file: give one. Nothing was done."
            )
        return arguments
    from shlex import quote

    tail_command = f"tail -n 0 -F -- {quote(file)} 2>/dev/null"
    if command not in ("", tail_command) or arguments.get("cwd"):
        raise ToolFailed(
            "monitor takes a file alone, without command and cwd. Nothing was done."
        )
    return {**arguments, "command": tail_command}


def _check_watch(arguments: Mapping[str, object], files: Files) -> None:
    if file := str(arguments.get("file", "")):
        _check_log(file, files)


monitor = replace(monitor, rewrite=_with_tail_command, check=_check_watch)


def _check_log(file: str, files: Files) -> None:
    """Raise `ToolFailed` if a log cannot be watched: it is not a file, or may not be read."""
    if outside := files.outside(file):
        raise ToolFailed(
            f"{files.display_name(outside)} lies outside the workspace: watch it with a command, "
            "such as tail -n 0 -F FILE."
        )
    real = files.real(file)
    if why := files.why_unreadable(real):
        raise ToolFailed(f"{files.display_name(real)} may not be watched: {why}.")
    if (kind := files.kind(real)) not in ("file", "nothing"):
        noun = "a directory" if kind == "directory" else "no regular file"
        raise ToolFailed(f"Cannot watch {files.display_name(real)}: it is {noun}.")


@tool(Effect.SELF, subject="name")
async def background_output(
    name: Annotated[str, Meta(description='as in "background-1"; "": list them')] = "",
    all: Annotated[bool, Meta(description="from the beginning")] = False,
    *,
    background: BackgroundRunner,
) -> Reply:
    """Read what a background command has printed since you last looked, or list the commands."""
    if not name:
        lines = [
            _line(command) for command in background.all_commands() if not command.foreign
        ]
        text = "\n".join(lines) or "No command was started in the background."
        count_text = "1 command" if len(lines) == 1 else f"{len(lines)} commands"
        return Reply(text, (Note(f"{count_text} in the background so far"),))
    output = await background.output(name, all_of_it=all)
    text = to_readable(output.text).rstrip("\n")
    body = text or ("(no output)" if all else "(nothing new)")
    state = output.ended or "it runs"
    if output.code is not None:
        shown = Output(name, text[-_MAX_SHOWN_CHARS:], output.code)
    else:
        last = f"; its last line: {text.splitlines()[-1].strip()}" if text else ""
        shown = Note(f"{name}: {state}{last}")
    reply_text = f"{body}\n({state})"
    return Reply(reply_text, (shown,), whole=output.whole, outside=output.outside)


@tool(Effect.SELF)
async def background_stop(name: str, *, background: BackgroundRunner) -> Reply:
    """Stop a background command, with all that it started."""
    stopped = await background.stop(name, silent=True)
    reply_text = f"{name} is stopped." if stopped else f"{name} had ended before."
    return Reply(reply_text, (Note(reply_text),))


def _line(command: BackgroundCommand) -> str:
    state = end_text(command.end) if command.end else "runs"
    return f"{command.name}: {state}: {' '.join(command.started.command.split())}"


def to_readable(text: str) -> str:
    """Return `text` without colours. NUL is escaped, and a mark replaces other control
    sequences.
    """
    if "\x1b" in text:
        text = re.sub(_COLOURS_AND_MOVES, "", text)
        text = re.sub(_TERMINAL_ORDERS, _TERMINAL_ORDER_MARK, text)
    return text.replace("\0", "\\0") if "\0" in text else text


async def _working_directory(cwd: str, directory: Path, files: Files) -> tuple[str, str]:
    """Return the directory in which a command runs, and its display name.

    The name is "" if the call gives no directory (`cwd`).
    """
    if not cwd:
        return str(directory), ""
    return await to_thread.run_sync(partial(_directory_inside, cwd, files))


def _directory_inside(cwd: str, files: Files) -> tuple[str, str]:
    """Return a directory as `find_directory` does. Raises `ToolFailed` outside the workspace."""
    if outside := files.outside(cwd):
        raise ToolFailed(
            f"{files.display_name(outside)} lies outside the workspace: cwd must not. "
            "Go there with cd in the command instead."
        )
    return find_directory(cwd, files)


def _end_reason(result: Finished, seconds: int) -> str:
    """Return why refold stopped a command with this time limit, or "" if it ended by itself."""
    if result.stopped:
        return result.stopped
    return f"it took longer than {seconds} s" if result.timed_out else ""


def _remarks(result: Finished, seconds: int, other_directory: str) -> list[str]:
    """Return remarks on how a command ended and where it ran; none after a usual end.

    `other_directory` is "" if it ran in the workspace.
    """
    remarks = list[str]()
    if result.stopped:
        remarks.append(f"ended by us: {result.stopped}")
    elif result.timed_out:
        remarks.append(
            f"ended by us after {seconds} s; at most 600 can be given, and no input"
        )
    elif result.code:
        remarks.append(f"exit code {result.code}")
    if other_directory:
        remarks.append(f"in {other_directory}")
    return remarks


def _offline_remarks(result: Finished, text: str, *, requested_network: bool) -> list[str]:
    """Return a remark if a command failed because it had no network."""
    # `host_remarks` is about commands that reach some hosts.
    if not result.offline or result.filtered:
        return []
    # `curl -s` reports a failure only by its code.
    is_silent_failure = result.code in _CURL_NETWORK_CODES and not text.strip()
    if not is_silent_failure and not re.search(_NO_NETWORK, text, re.IGNORECASE):
        return []
    if requested_network:
        return ["the network was off all the same: it was not allowed"]
    return ["the network was off: pass network=true if it is needed"]


def _sandbox_remarks(result: Finished, text: str, command: str) -> list[str]:
    """Return remarks on failures that the sandbox may have caused, as the output `text` shows."""
    remarks = list[str]()
    is_sandboxed = result.offline or result.looking
    if is_sandboxed and re.search(_NOT_WRITABLE, text):
        remarks.append(
            "it ran as a read-only command, so it could not change files"
            if result.looking
            else "only the workspace and /tmp can be written, and no guarded files in it"
        )
    # In a pipe, the exit code is that of the last program.
    may_have_failed = result.code or "|" in command
    if result.no_namespaces and may_have_failed:
        remarks += _kernel_remarks(text)
    return remarks


def host_remarks(result: Finished) -> list[str]:
    """Return sentences about hosts that the command reached or was refused, and how to request
    them.
    """
    if not result.filtered:
        return []
    from refold.values.hosts import attempt_remarks

    remarks = attempt_remarks(result.attempts, _host_advice)
    tried_no_host = not result.attempts
    text = result.text[-_SEARCHED_CHARS:]
    if tried_no_host and result.code and re.search(_NO_NETWORK, text, re.IGNORECASE):
        remarks.append(_NO_PROXY)
    return remarks


def _host_advice(names: str, attempt: HostAttempt) -> str:
    """Return a clause on how to reach the hosts `names`, with a rule for one of them."""
    from refold.values.hosts import rule_for

    rule = rule_for(attempt)
    rule_text = f"; a rule is {rule}" if rule else ""
    return f"; if it must reach them, run it again with hosts=[{names}], which asks the user{rule_text}"


def _kernel_remarks(text: str) -> list[str]:
    """Return sentences about system calls that the kernel refuses in a sandbox."""
    from refold.values.namespaces import NAMESPACES_REFUSED, reports_no_namespaces

    remarks = [NAMESPACES_REFUSED] if reports_no_namespaces(text) else []
    if re.search(_NO_MODE, text, re.IGNORECASE):
        remarks.append("no command gives a file a setuid or setgid bit")
    return remarks


def _shorten(text: str, result: Finished) -> tuple[str, int]:
    """Return the beginning and end of `text` for the user, and how many lines are omitted."""
    if len(text) <= _MAX_SHOWN_CHARS:
        return text, 0
    half = _MAX_SHOWN_CHARS // 2
    omitted = f"{len(text) - 2 * half:,} characters"
    if result.dropped:
        omitted = f"{omitted}, and {result.dropped:,} bytes that were not kept,"
    short = f"{text[:half]}\n[{omitted} are not shown]\n{text[-half:]}"
    # The sentence about the omission is a line, too, so the number may be below 0.
    omitted_lines = text.count("\n") - short.count("\n")
    return short, max(omitted_lines, 0)


# `set -C` forbids overwriting; SHELLOPTS passes it to every bash that the command starts.
_NO_CLOBBER = "set -C; export SHELLOPTS; "


def without_overwriting(tool: Tool) -> Tool:
    """Return a tool whose shell redirections do not overwrite files (`set -o noclobber`).

    A tool that runs no shell is returned unchanged.
    """
    if tool.name not in ("bash", "background_run", "monitor"):
        return tool

    async def run(command: str, **arguments: object) -> Reply:
        return await tool.run(_NO_CLOBBER + command, **arguments)

    return replace(tool, run=run)
