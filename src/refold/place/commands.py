"""Commands: bash, in a sandbox if there is one, within limits.

Implements `port.Commands`, on the side of the event loop. What starts a command is a
`command_starter` on this machine, or `elsewhere.place_commands` at the other end of a pipe.
Permissions have been decided before.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import anyio

from refold.errors import ToolFailed
from refold.place.limits import Limits
from refold.place.port import NOTHING_MORE, READ_ONLY, CommandExtras, Finished
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.place.command_starter import CommandStarter
    from refold.place.editor_files import EditorGate
    from refold.place.sandbox import Sandbox

_MAX_START_TRIES = 5  # mounted files may be deleted or renamed during setup


class RunningCommand(Protocol):
    """A command that was started, as `supervise.Supervisor` describes it."""

    @property
    def news(self) -> int: ...
    @property
    def over(self) -> bool: ...
    @property
    def broken(self) -> str: ...
    @property
    def has_ended_by_itself(self) -> bool: ...
    @property
    def needs_settling(self) -> bool: ...
    def deliver(self) -> None: ...
    def stop(self) -> None: ...
    def detach(self) -> None: ...
    def settle(self) -> None: ...
    def result(self) -> Finished: ...
    def close(self) -> None: ...


class ShellCommands:
    """Runs commands on this machine. The parameters are those of `CommandStarter`."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sandbox: "Callable[[], Sandbox] | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._environ, self._sandbox, self.limits = environ, sandbox, limits or Limits()
        self.gate: EditorGate | None = None  # for an editor that writes the same files

    @cached_property
    def _starter(self) -> "CommandStarter":
        from refold.place.command_starter import CommandStarter  # many starts run nothing

        return CommandStarter(self._environ, self._sandbox, self.limits)

    def has(self, program: str) -> bool:
        return self._starter.has(program)

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "ShellCommands":
        hidden = copy(self)
        hidden._starter = self._starter.with_hidden_paths(unread)
        return hidden

    async def run(
        self,
        command: str,
        *,
        cwd: str,
        seconds: float | None,
        confines: Confinement = READ_ONLY,
        on_output: Callable[[str], None] | None = None,
        extras: CommandExtras = NOTHING_MORE,
    ) -> Finished:
        starter = self._starter
        request = starter.request(command, cwd, confines, extras)
        broken = ""
        for _ in range(_MAX_START_TRIES):
            gate = self._editor_gate_for(confines)
            if gate is not None:
                await gate.begin_command()
            try:
                running = starter.begin(request, seconds, on_output)
            except BaseException:
                if gate is not None:
                    gate.end_command()
                raise
            finished = await _Command(running, starter.discard_ahead, gate).run(extras)
            if not (broken := running.broken):
                return finished
            if extras.printed is not None:
                extras.printed.clear()  # it holds why the sandbox was not set up
        raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")

    def close(self) -> None:
        """End the session: delete the private /tmp of its commands, too."""
        if "_starter" in self.__dict__:  # only if it was created
            self._starter.close()

    def _editor_gate_for(self, confines: Confinement) -> "EditorGate | None":
        """The gate, or None if the command cannot change files or no editor writes them."""
        if self.gate is None or confines.writes:
            return self.gate
        sandbox = self._starter.sandbox
        return None if sandbox is not None and sandbox.confines else self.gate


def _do_nothing() -> None:
    pass


async def run_command(running: RunningCommand, extras: CommandExtras) -> Finished:
    """Wait for the end of a command, or until it is handed over."""
    return await _Command(running).run(extras)


class _Command:
    """A command from its start to its end. Implements `port.Continued`."""

    def __init__(
        self,
        running: RunningCommand,
        discard_ahead: Callable[[], None] = _do_nothing,
        gate: "EditorGate | None" = None,
    ) -> None:
        self._running, self._discard_ahead, self._gate = running, discard_ahead, gate

    async def run(self, extras: CommandExtras) -> Finished:
        running, handover = self._running, extras.handover
        if handover is None:
            return await self._wait()
        let_go = False
        try:
            let_go = await handover.wait_for_request(_wait_for_end(running))
        finally:
            if not let_go:
                await self._settle()
        if not let_go:
            return running.result()
        running.detach()
        assert extras.printed is not None  # `handover` needs it
        start, lost, end, _ = extras.printed.since(0)
        return Finished(None, start, end, lost, continued=self)

    async def end(self) -> Finished:
        finished = await self._wait()
        if broken := self._running.broken:
            raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")
        return finished

    async def _wait(self) -> Finished:
        try:
            await _wait_for_end(self._running)
        finally:
            await self._settle()
        return self._running.result()

    async def _settle(self) -> None:
        """End the command if it runs, and release its resources."""
        running = self._running
        with anyio.CancelScope(shield=True):
            running.stop()
            await _wait_for_end(running)
            if running.needs_settling:
                await anyio.to_thread.run_sync(running.settle)
        running.close()
        if not running.has_ended_by_itself:
            self._discard_ahead()
        if self._gate is not None:
            self._gate.end_command()


async def _wait_for_end(running: RunningCommand) -> None:
    while not running.over:
        await anyio.wait_readable(running.news)
        running.deliver()
