"""The user's hooks of one start: finds their files, and runs the hooks of its sessions.

The user's own are in `hooks.json` of refold's configuration directory; those of a folder count
only if the folder is trusted. Without such a file nothing of `refold.hooks` is imported.
Commands run in the sandbox of the workspace, as the agent's commands do, unless the user's
own file says otherwise. `engine.run_hooks` decides when a hook is run and what its answer
means.
"""

import inspect
import os
import shlex
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import SocketStream
from msgspec import Struct
from msgspec.json import encode

from refold.app.search_places import USER_HOOKS_FILE
from refold.app.workspace import Workspace
from refold.config.folder_settings import project_here
from refold.config.paths import HOOK_FILES, Paths
from refold.config.project import LARGEST, hook_files_in
from refold.config.secret_values import is_secret
from refold.errors import BadInput, ToolFailed, said_by
from refold.hooks.answers import MOST, HookAnswer, failed, of_document, of_program
from refold.hooks.configuration import Hook, HookFile, describe, matching, read, unfit
from refold.place.commands import ShellCommands
from refold.place.port import CommandExtras, Commands, Finished
from refold.plugins import installed, unique
from refold.safe_open import read_regular
from refold.tools.contract import Tool
from refold.values.modes import HookEvent
from refold.values.tools import Confinement

GROUP = "refold.hooks"  # of entry points
# Its input and output are a socket of ours. It gets pipes, for programs that open /dev/stdin.
_LINE = (
    "exec 3<&0 </dev/null; cat <&3 3<&- | bash --noprofile --norc -c {command} 3<&- | "
    'cat >&3; exit "${{PIPESTATUS[1]}}"'
)
_AT_ONCE = 64 * 1024


class SessionHooks(Struct, frozen=True):
    """Implements `world.Hooks` in one workspace. `transcript` is the journal of the session."""

    hooks: Sequence[Hook]
    environ: Mapping[str, str]
    workspace: Workspace
    mask: Callable[[bytes], bytes]
    transcript: str = ""

    def matching(self, on: HookEvent, *names: str) -> tuple[Hook, ...]:
        return matching(self.hooks, on, *names)

    async def run(self, hook: Hook, about: Mapping[str, object]) -> HookAnswer:
        document = {"transcript_path": self.transcript, **about}
        try:
            if hook.entry_point:
                return await _by_function(hook, document)
            return await self._by_command(hook, document)
        except ToolFailed as error:
            return failed(hook, str(error))

    async def _by_command(self, hook: Hook, document: Mapping[str, object]) -> HookAnswer:
        ours, its = socket.socketpair()
        printed = bytearray()
        ended: Finished | None = None
        async with await SocketStream.from_socket(ours) as stream:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(_send, stream, encode(document))
                    group.start_soon(_receive, stream, printed, group.cancel_scope)
                    ended = await self._ended(hook, its)
                    its.close()
                    its = None
            finally:
                if its is not None:
                    its.close()
        return _answer(hook, ended, bytes(printed))

    async def _ended(self, hook: Hook, its: socket.socket) -> Finished:
        directory = self.workspace.directory
        environ = {
            **({} if hook.sandbox else self._whole_environment()),
            "REFOLD_PROJECT_DIR": directory,
            "CLAUDE_PROJECT_DIR": directory,
            "REFOLD_HOOK_EVENT": hook.on,
        }
        given = CommandExtras(stdin=its.fileno(), environ=environ)
        return await self._commands(hook).run(
            _LINE.format(command=shlex.quote(hook.command)),
            cwd=directory,
            seconds=hook.seconds,
            confines=Confinement(writes=True),
            given=given,
        )

    def _commands(self, hook: Hook) -> Commands:
        commands = self.workspace.commands
        if hook.sandbox:
            return commands
        return ShellCommands(self.environ, None, commands.limits)

    def _whole_environment(self) -> dict[str, str]:
        """The user's variables, without keys and whatever else looks like a secret."""
        return {
            name: value
            for name, value in self.environ.items()
            if not is_secret(name) and self._harmless(os.fsencode(value))
        }

    def _harmless(self, value: bytes) -> bool:
        return self.mask(value) == value


class ConfiguredHooks(Struct, frozen=True):
    """The hooks that count in one start, for each session to have."""

    file: HookFile
    environ: Mapping[str, str]
    mask: Callable[[bytes], bytes]

    @property
    def listed(self) -> tuple[tuple[str, str], ...]:
        """What each does, and the file that has it, for a screen."""
        return tuple((describe(hook), hook.source) for hook in self.file.hooks)

    def notices(self, brought: Sequence[Tool]) -> tuple[str, ...]:
        """What a person should know of the files. `brought` are tools that are not built in."""
        return (*self.file.problems, *unfit(self.file.hooks, tool_names(brought)))

    def at(self, workspace: Workspace, journal: Path | None) -> SessionHooks:
        where = str(journal) if journal else ""
        return SessionHooks(self.file.hooks, self.environ, workspace, self.mask, where)


def tool_names(brought: Sequence[Tool]) -> frozenset[str]:
    """Our names of all tools that hooks may be run for, without those of MCP servers."""
    from refold.tools.builtin import builtin  # most hooks name none that is not there
    from refold.tools.team import TEAM_TOOLS
    from refold.tools.tool_search import tool_call, tool_search

    every = (*builtin(), *TEAM_TOOLS, tool_search, tool_call, *brought)
    return frozenset(tool.name for tool in every)


def configured(directory: str, paths: Paths, *, trust: bool = False) -> HookFile:
    """The hooks that count here, the user's own first. Raises `BadInput` for a bad file."""
    own, files = user_file(paths), list[HookFile]()
    try:
        content = read_regular(own, LARGEST)[0]
    except FileNotFoundError:
        pass
    except OSError as error:
        raise BadInput(f"the hooks in {own} cannot be read: {said_by(error)}") from error
    else:  # it may be a link to the settings of Claude Code
        theirs = os.path.basename(os.path.realpath(own)).startswith("settings")
        files.append(read(content, str(own), trusted_with_all=True, of_claude=theirs))
    if any(os.path.lexists(os.path.join(directory, name)) for name in HOOK_FILES):
        found, state = project_here(Path(directory), paths, trust=trust)
        for name, content in hook_files_in(found).items() if state == "trusted" else ():
            where, theirs = os.path.join(found.folder, name), name.startswith(".claude")
            files.append(read(content, where, trusted_with_all=False, of_claude=theirs))
    return HookFile(
        tuple(hook for file in files for hook in file.hooks),
        tuple(problem for file in files for problem in file.problems),
    )


def user_file(paths: Paths) -> Path:
    return paths.config / USER_HOOKS_FILE


def _answer(hook: Hook, ended: Finished | None, printed: bytes) -> HookAnswer:
    if ended is None or len(printed) > MOST:
        return failed(hook, f"it printed more than {MOST // 1024} KiB, and was ended")
    if ended.timed_out:
        return failed(hook, f"it ran longer than {hook.seconds:g} seconds, and was ended")
    if ended.stopped:
        return failed(hook, f"it was ended: {ended.stopped}")
    text = printed.decode("utf-8", "replace")
    answer = of_program(hook, ended.code, text, ended.text)
    if answer.outcome == "failed" and hook.sandbox:
        return failed(hook, f"{answer.reason} (it ran in the sandbox)")
    return answer


async def _send(stream: SocketStream, content: bytes) -> None:
    try:
        await stream.send(content)
        await stream.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass  # it has ended, or reads nothing


async def _receive(
    stream: SocketStream, printed: bytearray, scope: anyio.CancelScope
) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while len(printed) <= MOST:
            printed += await stream.receive(_AT_ONCE)
    scope.cancel()  # what is still sent is not read


async def _by_function(hook: Hook, document: Mapping[str, object]) -> HookAnswer:
    try:
        with anyio.fail_after(hook.seconds):
            function = await anyio.to_thread.run_sync(_loaded, hook.entry_point)
            if inspect.iscoroutinefunction(function):
                found = await cast("Callable[..., Awaitable[object]]", function)(document)
            else:
                found = await anyio.to_thread.run_sync(
                    function, document, abandon_on_cancel=True
                )
    except TimeoutError:
        return failed(
            hook, f"it ran longer than {hook.seconds:g} seconds, and was abandoned"
        )
    except BadInput as error:
        return failed(hook, str(error))
    except Exception as error:  # its bug must not take the session with it
        return failed(hook, f"it raised {type(error).__name__}: {error}")
    return of_document(hook, found)


def _loaded(name: str) -> Callable[..., Any]:
    plugin = unique(installed(GROUP), name)
    if plugin is None:
        raise BadInput(f"no installed package offers the entry point {name!r} of {GROUP}")
    return plugin.function()
