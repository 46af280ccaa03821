"""Runs a command in a place, in the thread of the request for it.

`command_starter` starts the command, as on any machine. This module sends its output while it
arrives. Output that waits for a slow pipe is limited to what `Printed` stores, so the middle of
very long output is dropped, and the limits of the command are still enforced.
"""

import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from queue import Full
from threading import Thread
from typing import Any

from refold.errors import ToolFailed
from refold.place.command_starter import CommandStarter
from refold.place.far.far_call import FarCall
from refold.place.limits import Limits
from refold.place.port import CommandExtras, Finished
from refold.place.supervise import Supervisor
from refold.values.hosts import ReachableHosts
from refold.values.kept_output import Printed
from refold.values.tools import Confinement

_MAX_START_TRIES = 5  # mounted files may be deleted or renamed during setup
_COPY_BYTES = 64 * 1024


def run_command(call: FarCall, starter: CommandStarter, fields: Mapping[str, Any]) -> None:
    """Run the command that `fields` describes. Send its output, and its result at the end."""

    def _send_seconds(seconds: float) -> None:
        call.send("used", seconds=seconds)

    printed = Printed()
    channel = _Channel(call) if fields["input"] else None
    extras = CommandExtras(
        stdin=channel.inside.fileno() if channel else None,
        limits=_limits(fields["limits"]),
        seen=tuple(fields["seen"]),
        own_tmp=fields["own_tmp"],
        environ=fields["environ"],
        used=_send_seconds if fields["used"] else None,
        printed=printed,
    )
    hidden_paths = fields["hidden"]
    if hidden_paths:
        starter = starter.with_hidden_paths(lambda: hidden_paths)
    request = starter.request(
        fields["command"], fields["cwd"], _confinement(fields["confines"]), extras
    )
    sender = _OutputSender(call, printed)
    broken = ""  # why the sandbox of the last try could not be set up
    try:
        for _ in range(_MAX_START_TRIES):
            running = starter.begin(request, fields["seconds"], sender.on_output)
            call.when_stopped(running.stop)
            call.when_limit_removed(running.remove_limit)
            finished = _wait(running, starter)
            sender.send_rest()
            broken = running.broken
            if not broken:
                call.send("end", **_to_record(finished))
                return
            printed.clear()
            sender.clear()
        raise ToolFailed(f"The sandbox for the command could not be set up: {broken}.")
    finally:
        if channel:
            channel.close()


class _OutputSender:
    """Sends the output in `printed` that was not sent before."""

    def __init__(self, call: FarCall, printed: Printed) -> None:
        self._call, self._printed, self._position = call, printed, 0

    def on_output(self, _text: str) -> None:
        self.send_rest()

    def send_rest(self) -> None:
        """Send what was printed since the last call.

        The printed bytes may have a gap: `lost` bytes are missing between `start` and `end`.
        """
        start, lost, end, self._position = self._printed.since(self._position)
        if start or lost:
            self._call.send("output", start, lost=lost)
        if end:
            self._call.send("output", end, lost=0)

    def clear(self) -> None:
        self._position = 0
        self._call.send("clear")


class _Channel:
    """Connects a command's stdin to the request, by a socket that works in both directions.

    What the command writes to that socket is sent back.
    """

    def __init__(self, call: FarCall) -> None:
        self._outside, self.inside = socket.socketpair()
        self._call = call
        for work in (self._feed, self._copy):
            Thread(target=work, daemon=True).start()

    def close(self) -> None:
        """Close both ends of the socket, and end the thread that waits for input."""
        with suppress(Full):  # the queue is full, so the program is not waiting for input
            self._call.inputs.put_nowait(None)
        for end in (self._outside, self.inside):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _feed(self) -> None:
        """Write the input to the command. b"" ends its input, and None ends this thread."""
        with suppress(OSError):  # the command no longer reads
            while (data := self._call.inputs.get()) is not None:
                if data:
                    self._outside.sendall(data)
                else:
                    self._outside.shutdown(socket.SHUT_WR)

    def _copy(self) -> None:
        """Send what the command writes to its stdin, until the command closes its stdin."""
        with suppress(OSError):
            while data := self._outside.recv(_COPY_BYTES):
                self._call.send("answered", data)


def _wait(running: Supervisor, starter: CommandStarter) -> Finished:
    """Deliver news until the command is over, and return how it ended."""
    ready = select.poll()
    ready.register(running.news, select.POLLIN)
    try:
        while not running.over:
            ready.poll()
            running.deliver()
        if running.needs_settling:
            running.settle()
        return running.result()
    finally:
        running.close()
        if not running.has_ended_by_itself:
            starter.discard_ahead()


def _limits(record: Mapping[str, Any] | None) -> Limits | None:
    """Return the limits in a request; None if it has none."""
    if record is None:
        return None
    return Limits(
        processes=record["processes"],
        memory=record["memory"],
        checks_per_count=record["checks_per_count"],
        disks=tuple(record["disks"]),
    )


def _confinement(record: Mapping[str, Any]) -> Confinement:
    """Return the rights that a request gives to a command."""
    # Access to named hosts needs a filter, which does not exist here: the sandbox refuses
    # such a command.
    return Confinement(
        writes=record["writes"],
        network=record["network"],
        opened=tuple(record["opened"]),
        seen=tuple(record["seen"]),
        narrow=record["narrow"],
        of_git=tuple(record["of_git"]),
        hosts=ReachableHosts() if record["hosts"] else None,
    )


def _to_record(finished: Finished) -> dict[str, Any]:
    """Return the fields of the answer that tells how a command ended."""
    guarded = finished.guarded
    return {
        "code": finished.code,
        "timed_out": finished.timed_out,
        "stopped": finished.stopped,
        "undone": [(change.path, change.goal, change.fate) for change in guarded.undone],
        "accepted": guarded.accepted,
        "by_others": guarded.by_others,
        "offline": finished.offline,
        "looking": finished.looking,
        "no_namespaces": finished.no_namespaces,
    }
