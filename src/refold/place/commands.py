"""Runs bash commands for callers in an event loop. Implements `port.Commands`.

`command_starter` starts commands on this machine, in a sandbox if there is one;
`elsewhere.place_commands` starts them at the other end of a pipe. Whether a command is
permitted was decided before.
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
    """A command that was started. On this machine it is a `supervise.Supervisor`."""

    @property
    def news(self) -> int:
        """Return a descriptor that is readable if there is news or the command has ended."""
        ...

    @property
    def over(self) -> bool:
        """Whether `deliver` has seen the end of the command."""
        ...

    @property
    def broken(self) -> str:
        """Return why the sandbox could not be set up; "" if it was set up."""
        ...

    @property
    def has_ended_by_itself(self) -> bool:
        """Whether the command ended without being stopped.

        Otherwise, sandboxes that wait for later commands are discarded.
        """
        ...

    @property
    def needs_settling(self) -> bool:
        """Whether `settle` must be called after the end."""
        ...

    def deliver(self) -> None:
        """Call the listeners with what is new, and set `over` at the end."""
        ...

    def stop(self) -> None:
        """Ask the command to stop. Its end is reported like any other."""
        ...

    def detach(self) -> None:
        """Remove the time limit, and pass no more output on. The command continues."""
        ...

    def settle(self) -> None:
        """Undo changes of guarded paths. Call it in a thread."""
        ...

    def result(self) -> Finished:
        """Return how the command ended. Raises an exception if it was not started."""
        ...

    def close(self) -> None:
        """Close the descriptors, after the end of the command."""
        ...


class ShellCommands:
    """Runs commands on this machine. The parameters are those of `CommandStarter`."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sandbox: "Callable[[], Sandbox] | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._environ, self._sandbox, self.limits = environ, sandbox, limits or Limits()
        self.gate: EditorGate | None = None  # set if an editor writes the same files

    @cached_property
    def _starter(self) -> "CommandStarter":
        # many sessions run no command
        from refold.place.command_starter import CommandStarter

        return CommandStarter(self._environ, self._sandbox, self.limits)

    def has(self, program: str) -> bool:
        return self._starter.has(program)

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "ShellCommands":
        """Return a copy whose commands also cannot read the paths that `unread` returns."""
        commands = copy(self)
        commands._starter = self._starter.with_hidden_paths(unread)
        return commands

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
        """Run a command. Start it again if mounted files changed during the setup."""
        starter = self._starter
        request = starter.request(command, cwd, confines, extras)
        broken = ""  # why the sandbox of the last try could not be set up
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
            # The gate is released at the end of the command.
            finished = await _Command(running, starter.discard_ahead, gate).run(extras)
            broken = running.broken
            if not broken:
                return finished
            if extras.printed is not None:
                extras.printed.clear()  # the output says why the sandbox was not set up
        raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")

    def close(self) -> None:
        """Release the resources of the commands, and delete their private /tmp."""
        if "_starter" in self.__dict__:  # only if it was created
            self._starter.close()

    def _editor_gate_for(self, confines: Confinement) -> "EditorGate | None":
        """Return the gate at which a command waits while an editor writes files.

        Return None if no editor writes files, or if the sandbox keeps the command from writing.
        """
        if self.gate is None:
            return None
        if confines.writes:
            return self.gate
        sandbox = self._starter.sandbox
        if sandbox is not None and sandbox.confines:
            return None
        return self.gate  # without a sandbox, any command can change files


def _do_nothing() -> None:
    pass


async def run_command(running: RunningCommand, extras: CommandExtras) -> Finished:
    """Wait until a running command has ended or is handed over to the background.

    Return its result.
    """
    return await _Command(running).run(extras)


class _Command:
    """Waits for a running command. Implements `port.Continued`."""

    def __init__(
        self,
        running: RunningCommand,
        discard_ahead: Callable[[], None] = _do_nothing,
        gate: "EditorGate | None" = None,
    ) -> None:
        self._running, self._discard_ahead, self._gate = running, discard_ahead, gate

    async def run(self, extras: CommandExtras) -> Finished:
        """Return how the command ended, or a result with `continued` if it was handed over."""
        running, handover = self._running, extras.handover
        if handover is None:
            return await self._wait()
        is_handed_over = False
        try:
            is_handed_over = await handover.wait_for_request(_wait_for_end(running))
        finally:
            if not is_handed_over:  # the command has ended, or the call was cancelled
                await self._settle()
        if not is_handed_over:
            return running.result()
        running.detach()
        assert extras.printed is not None  # `handover` needs it
        start, lost, end, _position = extras.printed.since(0)
        return Finished(code=None, start=start, end=end, dropped=lost, continued=self)

    async def end(self) -> Finished:
        """Wait until the handed over command has ended, and return how it ended."""
        finished = await self._wait()
        if broken := self._running.broken:
            raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")
        return finished

    async def _wait(self) -> Finished:
        """Wait until the command has ended, and return how it ended.

        If the wait is cancelled, stop the command.
        """
        try:
            await _wait_for_end(self._running)
        finally:
            await self._settle()
        return self._running.result()

    async def _settle(self) -> None:
        """Stop the command if it still runs, and release its resources."""
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
    """Deliver the output of a command until it is over."""
    while not running.over:
        await anyio.wait_readable(running.news)
        running.deliver()
