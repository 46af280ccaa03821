"""Starts commands on this machine: in a sandbox if there is one, within limits.

No event loop is needed: `commands` waits in one, and the far side of a pipe in a thread.
`supervise` runs each command from its start to its end, `sandbox` decides how it is confined.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.place.environment import READ_ONLY_GIT_ENVIRONMENT as LOOKING_GIT
from refold.place.environment import environment
from refold.place.limits import Limits
from refold.place.port import CommandExtras
from refold.values.printable_names import escape_name
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.place.sandbox import Launch, Sandbox
    from refold.place.sandbox_ahead import SandboxAhead
    from refold.place.spawn import SpawnRequest
    from refold.place.supervise import Supervisor

_MAX_AHEAD = 2  # sandboxes that wait for a command


class CommandStarter:
    """`environ` is our environment; commands get the harmless part of it.

    Without a sandbox a command can do what the user can. `sandbox` is called when the first
    command starts, because many sessions, and many first requests, run none.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        sandbox: "Callable[[], Sandbox] | None" = None,
        limits: Limits | None = None,
    ) -> None:
        self._given = os.environ if environ is None else environ
        self._of_session, self.limits = sandbox, limits or Limits()
        self._unread: Callable[[], Sequence[str]] = tuple
        self._ahead = _Ahead()  # shared with the results of `with_hidden_paths`

    @cached_property
    def sandbox(self) -> "Sandbox | None":
        return self._of_session() if self._of_session else None

    @cached_property
    def _read_only_environment(self) -> dict[str, str]:
        roots = self.sandbox.config.roots if self.sandbox else ()
        return environment(self._given, roots) | LOOKING_GIT

    @cached_property
    def _environment(self) -> dict[str, str]:
        return environment(self._given)

    def has(self, program: str) -> bool:
        from shutil import which  # its compressors take long to load

        return which(program, path=self._read_only_environment["PATH"]) is not None

    def with_hidden_paths(self, unread: Callable[[], Sequence[str]]) -> "CommandStarter":
        hidden, before = copy(self), self._unread
        hidden._unread = lambda: (*before(), *unread())
        return hidden

    def request(
        self, command: str, cwd: str, confines: Confinement, extras: CommandExtras
    ) -> "SpawnRequest":
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
        """Start a command. After its end, its `broken` is the reason if the sandbox failed."""
        from refold.place.supervise import Supervisor

        limits = request.given.limits or self.limits
        make_launch = partial(self._launch, request)
        filtered = request.confines.network and request.confines.hosts is not None
        usual = request.given.usual and not filtered
        ahead = self._ahead.take(request) if usual else None
        running = Supervisor(request, limits, seconds, on_output, make_launch, ahead)
        running.on_start = partial(self._prepare_next, request)
        running.begin()
        return running

    def discard_ahead(self) -> None:
        """End the sandboxes that wait for a command."""
        self._ahead.discard()

    def close(self) -> None:
        """End the session: delete the private /tmp of its commands, too."""
        self._ahead.close()
        if sandbox := self.__dict__.get("sandbox"):
            sandbox.close()

    def _launch(self, request: "SpawnRequest") -> "Launch":
        from refold.place.sandbox import Launch

        if not os.path.isdir(request.cwd):
            raise ToolFailed(
                f"The command could not be started in {escape_name(request.cwd)}: "
                "there is no such directory."
            )
        if self.sandbox is None:
            return Launch()
        return self.sandbox.launch(
            request.cwd, request.confines, request.given, self._unread
        )

    def _prepare_next(
        self, request: "SpawnRequest", launch: "Launch"
    ) -> Callable[[], None] | None:
        """The function that sets up a sandbox for a next command like this one, or None."""
        sandbox = self.sandbox
        if sandbox is None or sandbox.kind != "bubblewrap" or not request.given.usual:
            return None  # all others are quick to set up
        confines = request.confines
        if confines.opened or confines.of_git or confines.seen:
            # Paths that the user approved were approved for that command alone.
            confines = replace(confines, opened=(), of_git=(), seen=())
            request = replace(request, confines=confines)
            launch = sandbox.launch_without_guards(request.cwd, confines, self._unread)
        if launch.hosts is not None:
            return None  # its listener belongs to one command
        return partial(self._ahead.set_up, request, launch)


class _Ahead:
    """The sandboxes of next commands: at most `_MAX_AHEAD`, and none after `close`.

    One waits for each kind of command, because agents read and write in turn. If it is not
    ready when its command comes, two are kept for that kind.
    """

    def __init__(self) -> None:
        self._waiting: list[SandboxAhead] = []
        self._lock, self._closed = Lock(), False
        self._wanted = 1  # for the kind of the last command

    def set_up(self, request: "SpawnRequest", launch: "Launch") -> None:
        """Set up what is missing for commands like `request`, and end what became useless."""
        from refold.place.sandbox_ahead import SandboxAhead

        with self._lock:
            if self._closed:
                return
            waiting: list[SandboxAhead] = []
            suited = 0
            for ahead in self._waiting:
                suits = ahead.suits(request)
                if ahead.has_ended or (suits and not ahead.is_of(launch)):
                    ahead.close()
                else:
                    waiting.append(ahead)
                    suited += suits
            missing = range(suited, self._wanted)
            waiting += (SandboxAhead(request, launch) for _ in missing)
            for ahead in waiting[:-_MAX_AHEAD]:
                ahead.close()
            self._waiting = waiting[-_MAX_AHEAD:]

    def take(self, request: "SpawnRequest") -> "SandboxAhead | None":
        """The oldest waiting sandbox for a command like this one."""
        with self._lock:
            suited = [ahead for ahead in self._waiting if ahead.suits(request)]
            self._wanted = 1 if all(ahead.is_ready for ahead in suited) else _MAX_AHEAD
            if not suited:
                return None
            self._waiting.remove(suited[0])
        return suited[0]

    def discard(self) -> None:
        """End all waiting sandboxes."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for ahead in waiting:
            ahead.close()
        for ahead in waiting:
            ahead.wait_until_ended()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.discard()
