"""Starts commands on this machine, in a sandbox if there is one, and within limits.

It needs no event loop. Two modules wait for the commands: `commands` in an event loop, and
`far.far_commands` in a thread, where refold runs commands for another machine. `supervise` runs
each command from its start to its end, and `sandbox` decides how it is confined.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.environment import READ_ONLY_GIT_ENVIRONMENT, environment
from refold.place.limits import Limits
from refold.place.port import CommandExtras
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.place.sandbox import Launch, Sandbox
    from refold.place.sandbox_ahead import SandboxAhead
    from refold.place.spawn import SpawnRequest
    from refold.place.supervise import Supervisor

_MAX_AHEAD = 2  # the number of sandboxes that wait for a command


class CommandStarter:
    """Starts commands of one session. Without a sandbox they can do whatever the user can.

    A command gets the variables of `environ` that hold no secrets. `sandbox` makes the sandbox,
    and is called when the first command starts, because many sessions run none.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sandbox: "Callable[[], Sandbox] | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._own_environment = os.environ if environ is None else environ
        self._make_sandbox, self.limits = sandbox, limits or Limits()
        self._hidden_paths: Callable[[], Sequence[str]] = lambda: ()
        self._ahead = _Ahead()  # also used by the objects that `with_hidden_paths` returns

    @cached_property
    def sandbox(self) -> "Sandbox | None":
        return self._make_sandbox() if self._make_sandbox else None

    @cached_property
    def _read_only_environment(self) -> dict[str, str]:
        roots = self.sandbox.config.roots if self.sandbox else ()
        return environment(self._own_environment, roots) | READ_ONLY_GIT_ENVIRONMENT

    @cached_property
    def _environment(self) -> dict[str, str]:
        return environment(self._own_environment)

    def has(self, program: str) -> bool:
        """Whether a program is in the PATH of commands."""
        from shutil import which  # its compressors take long to load

        return which(program, path=self._read_only_environment["PATH"]) is not None

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "CommandStarter":
        """Return a copy whose commands also cannot read the paths that `unread` returns."""
        starter = copy(self)
        paths_before = self._hidden_paths
        starter._hidden_paths = lambda: (*paths_before(), *unread())
        return starter

    def request(
        self, command: str, cwd: str, confines: Confinement, extras: CommandExtras
    ) -> "SpawnRequest":
        """Return the request for a command. Its variables depend on whether it may write."""
        from refold.place.spawn import SpawnRequest  # a first request runs nothing

        environ = self._environment if confines.writes else self._read_only_environment
        if extras.environ:
            environ = {**environ, **extras.environ}
        return SpawnRequest(command, cwd, confines, environ, extras)

    def begin(
        self,
        request: "SpawnRequest",
        seconds: float | None,
        on_output: Callable[[str], None] | None,
    ) -> "Supervisor":
        """Start a command, and return the supervisor that runs it.

        The command is stopped after `seconds`, unless that is None. At the end, the
        supervisor's `broken` says why the sandbox could not be set up; "" if it was.
        """
        from refold.place.supervise import Supervisor

        limits = request.extras.limits or self.limits
        make_launch = partial(self._launch, request)
        is_filtered = request.confines.network and request.confines.hosts is not None
        # Only a usual command can run in a sandbox that was set up before it was known.
        ahead = None
        if request.extras.usual and not is_filtered:
            ahead = self._ahead.take(request)
        running = Supervisor(request, limits, seconds, on_output, make_launch, ahead)
        running.on_start = partial(self._prepare_next, request)
        running.begin()
        return running

    def discard_ahead(self) -> None:
        """Stop the sandboxes that were set up for later commands."""
        self._ahead.discard()

    def close(self) -> None:
        """Stop the waiting sandboxes, and delete the private /tmp of the session's commands."""
        self._ahead.close()
        if sandbox := self.__dict__.get("sandbox"):  # only if it was created
            sandbox.close()

    def _launch(self, request: "SpawnRequest") -> "Launch":
        """Return how to start a command. Raises `ToolFailed` if its directory does not exist."""
        from refold.place.sandbox import Launch

        if not os.path.isdir(request.cwd):
            raise ToolFailed(
                f"The command could not be started in {escape_name(request.cwd)}: "
                "there is no such directory."
            )
        if self.sandbox is None:
            return Launch()
        return self.sandbox.launch(
            request.cwd, request.confines, request.extras, self._hidden_paths
        )

    def _prepare_next(
        self, request: "SpawnRequest", launch: "Launch"
    ) -> Callable[[], None] | None:
        """Return a function that sets up a sandbox for another command like this one.

        Return None if that saves no time or is not possible. `launch` is how this command was
        started.
        """
        sandbox = self.sandbox
        if sandbox is None or sandbox.kind != "bubblewrap" or not request.extras.usual:
            return None  # other kinds of sandboxes are set up quickly
        confines = request.confines
        if confines.opened or confines.of_git or confines.seen:
            # Paths that the user approved were approved for one command only.
            confines = replace(confines, opened=(), of_git=(), seen=())
            request = replace(request, confines=confines)
            launch = sandbox.launch_without_guards(
                request.cwd, confines, self._hidden_paths
            )
        if launch.hosts is not None:
            return None  # the listener belongs to one command
        return partial(self._ahead.set_up, request, launch)


class _Ahead:
    """The sandboxes that wait for later commands: at most `_MAX_AHEAD`; none after `close`.

    Agents run read-only and writing commands in turn, so one sandbox is set up for each of the
    two kinds. If a sandbox was not ready when its command arrived, two of that kind are set up
    next time.
    """

    def __init__(self) -> None:
        self._waiting: list[SandboxAhead] = []
        self._lock = Lock()
        self._closed = False
        # How many sandboxes to set up for the kind of the last command.
        self._wanted_count = 1

    def set_up(self, request: "SpawnRequest", launch: "Launch") -> None:
        """Set up the missing sandboxes for commands like `request`, and stop outdated ones.

        A sandbox is outdated if it has ended, or is not what `launch` would set up now.
        """
        from refold.place.sandbox_ahead import SandboxAhead

        with self._lock:
            if self._closed:
                return
            waiting: list[SandboxAhead] = []
            suitable_count = 0
            for ahead in self._waiting:
                is_suitable = ahead.suits(request)
                is_outdated = is_suitable and not ahead.is_of(launch)
                if ahead.has_ended or is_outdated:
                    ahead.close()
                else:
                    waiting.append(ahead)
                    if is_suitable:
                        suitable_count += 1
            for _ in range(suitable_count, self._wanted_count):
                waiting.append(SandboxAhead(request, launch))
            # If they are too many, the oldest are stopped.
            for ahead in waiting[:-_MAX_AHEAD]:
                ahead.close()
            self._waiting = waiting[-_MAX_AHEAD:]

    def take(self, request: "SpawnRequest") -> "SandboxAhead | None":
        """Return the oldest waiting sandbox for a command like `request`; None if none waits."""
        with self._lock:
            suited = [ahead for ahead in self._waiting if ahead.suits(request)]
            # If commands arrive faster than sandboxes are ready, two are set up next time.
            is_one_unready = any(not ahead.is_ready for ahead in suited)
            self._wanted_count = _MAX_AHEAD if is_one_unready else 1
            if not suited:
                return None
            oldest = suited[0]
            self._waiting.remove(oldest)
        return oldest

    def discard(self) -> None:
        """Stop all waiting sandboxes: first tell each to end, then wait for each."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for ahead in waiting:
            ahead.close()
        for ahead in waiting:
            ahead.wait_until_ended()

    def close(self) -> None:
        """Stop all waiting sandboxes, and set up no more."""
        with self._lock:
            self._closed = True
        self.discard()
