"""The hooks of one start: finds their files, and runs the hooks of its sessions.

The user's own hooks are in `hooks.json` of refold's configuration directory. The hooks of a
folder are used only if the folder is trusted. A program can add functions of its own. Without
any of these, nothing of `refold.hooks` is imported. Commands run in the sandbox of the
workspace, as the agent's commands do, unless the user's own file says otherwise.
`engine.run_hooks` decides when a hook is run and what its answer means.
"""

import inspect
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any, cast

import anyio
from anyio.abc import SocketStream
from msgspec import Struct, structs
from msgspec.json import encode

from refold.app.search_places import USER_HOOKS_FILE
from refold.app.workspace import Workspace
from refold.config.folder_settings import project_and_trust
from refold.config.paths import HOOK_FILES, Paths
from refold.config.project import MAX_SETTINGS_BYTES, hook_files_in
from refold.config.secret_values import is_secret
from refold.errors import BadInput, ToolFailed, reason_of
from refold.hooks.answers import (
    MAX_OUTPUT_BYTES,
    HookAnswer,
    document_answer,
    failure_answer,
    program_answer,
)
from refold.hooks.configuration import (
    Hook,
    HookFile,
    describe,
    function_hooks,
    matching_hooks,
    read,
    unfit_matchers,
)
from refold.place.commands import ShellCommands
from refold.place.port import CommandExtras, Commands, Finished
from refold.plugins import find_plugins, find_unique
from refold.safe_open import read_regular
from refold.tools.contract import Tool
from refold.values.hosts import attempt_remarks, only_hosts
from refold.values.modes import HookEvent
from refold.values.namespaces import NAMESPACES_REFUSED, reports_no_namespaces
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

HOOK_GROUP = "refold.hooks"  # of entry points
# The shell's input and output are a socket of ours. The hook gets pipes, for programs that
# open /dev/stdin. When the hook has exited, its status follows its output, without a wait
# for children that hold the pipe. The shell then stays until we close our end, so all
# output has arrived.
_HOOK_SCRIPT = """exec 3<&0 </dev/null
exec 4> >(exec cat >&3) 5< <(exec head -c {size} <&3 4>&-)
bash --noprofile --norc -c {command} <&5 >&4 3<&- 4>&- 5<&-
status=$?
exec 5<&-
printf '%s%s%d\\n' {mark} : "$status" >&4
exec 4>&-
cat <&3 >/dev/null
exit "$status"
"""
_READ_BYTES = 64 * 1024
# The end of the output, which is searched for the reason of a failure.
_MAX_ERROR_CHARS = 4_000


class SessionHooks(Struct, frozen=True):
    """Runs the hooks of a session in one workspace: implements `world.Hooks`.

    `transcript` is the path of the session's journal.
    """

    hooks: Sequence[Hook]
    environ: Mapping[str, str]
    workspace: Workspace
    mask: Callable[[bytes], bytes]
    transcript: str = ""

    def hooks_for(self, event: HookEvent, *names: str) -> tuple[Hook, ...]:
        return matching_hooks(self.hooks, event, *names)

    async def run(self, hook: Hook, about: Mapping[str, object]) -> HookAnswer:
        """Return the answer of a hook, also if it fails. `about` describes the event."""
        document = {"transcript_path": self.transcript, **about}
        try:
            if hook.entry_point or hook.function is not None:
                return await _run_function(hook, document)
            return await self._run_command(hook, document)
        except OSError as error:
            return failure_answer(hook, reason_of(error))
        except ToolFailed as error:
            return failure_answer(hook, str(error))

    async def _run_command(self, hook: Hook, document: Mapping[str, object]) -> HookAnswer:
        """Run a hook that is a command. Return its answer, with what its sandbox refused."""
        own_end, child_end = socket.socketpair()
        content = encode(document)
        finished = None  # it stays None if `receive` cancels the command
        with child_end:  # a second close does nothing
            async with await SocketStream.from_socket(own_end) as stream:
                output = _HookOutput(stream, token_hex(16))
                async with anyio.create_task_group() as group:
                    group.start_soon(_send, stream, content, output.ended)
                    group.start_soon(output.receive, group.cancel_scope)
                    line = _HOOK_SCRIPT.format(
                        command=shlex.quote(hook.command),
                        size=len(content),
                        mark=output.mark,
                    )
                    finished = await self._run_line(hook, line, child_end)
                    child_end.close()  # `receive` waits for the end of the output
        answer = _to_answer(hook, finished, output)
        if finished is None:
            return answer
        refused = (attempt for attempt in finished.attempts if attempt.refused)
        remarks = (
            *finished.guarded.sentences(escape_name),
            *attempt_remarks(refused),
        )
        notice = "; ".join(filter(None, (answer.notice, *remarks)))
        return structs.replace(answer, notice=notice, attempts=finished.attempts)

    async def _run_line(
        self, hook: Hook, line: str, program_socket: socket.socket
    ) -> Finished:
        """Run the command line of a hook, with `program_socket` as its standard input."""
        directory = self.workspace.directory
        environ = {
            **({} if hook.sandbox else self._whole_environment()),
            "REFOLD_PROJECT_DIR": directory,
            "CLAUDE_PROJECT_DIR": directory,
            "REFOLD_HOOK_EVENT": hook.on,
        }
        extras = CommandExtras(stdin=program_socket.fileno(), environ=environ)
        return await self._commands(hook).run(
            line,
            cwd=directory,
            seconds=hook.seconds,
            confines=Confinement(
                writes=True, network=bool(hook.hosts), hosts=only_hosts(hook.hosts)
            ),
            extras=extras,
        )

    def _commands(self, hook: Hook) -> Commands:
        """Return the commands that run a hook, in the sandbox only if it has `sandbox`."""
        commands = self.workspace.local_commands
        if hook.sandbox:
            return commands
        return ShellCommands(self.environ, None, commands.limits)

    def _whole_environment(self) -> dict[str, str]:
        """Return the user's variables, without those that look like secrets."""
        return {
            name: value
            for name, value in self.environ.items()
            if not is_secret(name) and self._is_harmless(os.fsencode(value))
        }

    def _is_harmless(self, value: bytes) -> bool:
        return self.mask(value) == value


class ConfiguredHooks(Struct, frozen=True):
    """The hooks configured for one start. `in_workspace` returns those of a session."""

    file: HookFile
    environ: Mapping[str, str]
    mask: Callable[[bytes], bytes]

    @property
    def list_hooks(self) -> tuple[tuple[str, str], ...]:
        """Return a description of each hook, and the file that it is from, for display."""
        return tuple((describe(hook), hook.source) for hook in self.file.hooks)

    @property
    def run_at_resume(self) -> bool:
        """Whether there is a hook that runs when a session is resumed."""
        return bool(matching_hooks(self.file.hooks, "SessionStart", "resume"))

    def notices(self, added_tools: Sequence[Tool], directory: str) -> tuple[str, ...]:
        """Return notices about problems in the files of hooks.

        `added_tools` are the tools that are not built in.
        """
        from refold.app.missing_hook_programs import missing_programs

        hooks = self.file.hooks
        return (
            *self.file.problems,
            *unfit_matchers(hooks, tool_names(added_tools)),
            *missing_programs(
                hooks, ShellCommands(self.environ).has, _entry_point_names(hooks), directory
            ),
        )

    def in_workspace(self, workspace: Workspace, transcript: str) -> SessionHooks:
        return SessionHooks(self.file.hooks, self.environ, workspace, self.mask, transcript)


def tool_names(added_tools: Sequence[Tool]) -> frozenset[str]:
    """Return refold's names of all tools for which hooks may run, `added_tools` included.

    Tools of MCP servers are left out.
    """
    from refold.tools.builtin import builtin  # imported late: most starts have no hooks
    from refold.tools.team import TEAM_TOOLS
    from refold.tools.tool_search import tool_call, tool_search

    all_tools = (*builtin(), *TEAM_TOOLS, tool_search, tool_call, *added_tools)
    return frozenset(tool.name for tool in all_tools)


def load_hooks(
    directory: str,
    paths: Paths,
    *,
    trust: bool = False,
    functions: Mapping[str, object] = MappingProxyType({}),
) -> HookFile:
    """Load the hooks to use: the `functions` of a program, the user's hooks and the project's.

    With `trust`, the folder counts as trusted for this start. Raises `BadInput` for an invalid
    file.
    """
    files = [HookFile(function_hooks(functions))]
    own_file = user_file(paths)
    try:
        content = read_regular(own_file, MAX_SETTINGS_BYTES)[0]
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BadInput(
            f"the hooks in {own_file} cannot be read: {reason_of(error)}"
        ) from error
    else:  # the file may be a link to the settings of Claude Code
        real_name = os.path.basename(os.path.realpath(own_file))
        of_claude = real_name.startswith("settings")
        files.append(
            read(content, str(own_file), trusted_with_all=True, of_claude=of_claude)
        )
    if any(os.path.lexists(os.path.join(directory, name)) for name in HOOK_FILES):
        source, state = project_and_trust(Path(directory), paths, trust=trust)
        if state == "trusted":
            for name, content in hook_files_in(source).items():
                path = os.path.join(source.folder, name)
                of_claude = name.startswith(".claude")
                files.append(
                    read(content, path, trusted_with_all=False, of_claude=of_claude)
                )
    return HookFile(
        tuple(hook for file in files for hook in file.hooks),
        tuple(problem for file in files for problem in file.problems),
    )


def user_file(paths: Paths) -> Path:
    return paths.config / USER_HOOKS_FILE


class _HookOutput:
    """The output and the exit status of a hook. `ended` says that nothing more is read."""

    def __init__(self, stream: SocketStream, mark: str) -> None:
        self._stream, self.mark = stream, mark
        self.printed = bytearray()
        self.status: int | None = None  # None: it has not exited
        self.ended = anyio.Event()

    async def receive(self, scope: anyio.CancelScope) -> None:
        """Read the output until the hook exits. Cancel `scope` if it prints too much."""
        with suppress(
            anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError
        ):
            while self.status is None and len(self.printed) <= MAX_OUTPUT_BYTES:
                self.printed += await self._stream.receive(_READ_BYTES)
                self._find_status()
        self.ended.set()
        if self.status is None:
            scope.cancel()  # no further output is read

    def _find_status(self) -> None:
        """Set the exit status once the whole line with the mark was printed.

        Then the output ends before the mark.
        """
        # The command line itself has the mark without the colon, so a hook that prints its
        # command line does not end the output.
        text, _, rest = self.printed.partition(f"{self.mark}:".encode())
        status, newline, _output_of_children = rest.partition(b"\n")
        if newline:
            self.status, self.printed = int(status), text


def _to_answer(hook: Hook, finished: Finished | None, output: _HookOutput) -> HookAnswer:
    """Return the answer of a hook, from its output and how it ended."""
    if len(output.printed) > MAX_OUTPUT_BYTES or finished is None:
        return failure_answer(
            hook, f"it printed more than {MAX_OUTPUT_BYTES // 1024} KiB, and was killed"
        )
    status = output.status
    if status is None:
        if finished.timed_out:
            return failure_answer(
                hook, f"it ran longer than {hook.seconds:g} seconds, and was killed"
            )
        if finished.stopped:
            return failure_answer(hook, f"it was killed: {finished.stopped}")
        status = finished.code
    text = output.printed.decode("utf-8", "replace")
    answer = program_answer(hook, status, text, finished.text)
    if (answer.outcome == "failed" or answer.by_failure) and hook.sandbox:
        why = "it ran in the sandbox"
        end = finished.text[-_MAX_ERROR_CHARS:]
        if finished.no_namespaces and reports_no_namespaces(end):
            why = f"{why}; {NAMESPACES_REFUSED}"
        return failure_answer(hook, f"{answer.reason} ({why})")
    return answer


async def _send(stream: SocketStream, content: bytes, end: anyio.Event) -> None:
    """Send the input of a hook, and close our end of the socket after `end`.

    Errors of a closed socket are ignored.
    """
    try:
        await stream.send(content)
        await end.wait()
        await stream.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # the hook has exited, or does not read


async def _run_function(hook: Hook, document: Mapping[str, object]) -> HookAnswer:
    """Return the answer of a hook that is a Python function. An exception is a failure."""
    try:
        with anyio.fail_after(hook.seconds):
            function = hook.function or await anyio.to_thread.run_sync(
                _load_entry_point, hook.entry_point
            )
            if inspect.iscoroutinefunction(function):
                answer = function(document)
            else:
                answer = await anyio.to_thread.run_sync(
                    function, document, abandon_on_cancel=True
                )
            # A callable object may return an awaitable, too.
            if inspect.isawaitable(answer):
                answer = await cast("Awaitable[object]", answer)
    except TimeoutError:
        return failure_answer(
            hook, f"it ran longer than {hook.seconds:g} seconds, and was abandoned"
        )
    except BadInput as error:
        return failure_answer(hook, str(error))
    except (Exception, SystemExit) as error:  # a bug of the hook must not end the session
        return failure_answer(hook, f"it raised {type(error).__name__}: {error}")
    return document_answer(hook, answer)


def _entry_point_names(hooks: Sequence[Hook]) -> frozenset[str]:
    plugins = find_plugins(HOOK_GROUP) if any(hook.entry_point for hook in hooks) else ()
    return frozenset(plugin.name for plugin in plugins)


def _load_entry_point(name: str) -> Callable[..., Any]:
    """Return the function of an entry point. Raises `BadInput` if no package has it."""
    plugin = find_unique(find_plugins(HOOK_GROUP), name)
    if plugin is None:
        raise BadInput(
            f"no installed package offers the entry point {name!r} of {HOOK_GROUP}"
        )
    return plugin.function()
