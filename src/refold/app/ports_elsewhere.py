"""Ports of a workspace elsewhere: tells the sessions which ones are new, and opens them here.

What listens there is in the greeting, which the pipe keeps current. `place.elsewhere.place_ports`
forwards a port; it stays open until the workspace is closed.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress

from anyio import from_thread
from anyio.lowlevel import EventLoopToken, current_token
from msgspec import Struct

from refold.errors import BadInput
from refold.place.elsewhere.pipe import Pipe
from refold.place.elsewhere.place_ports import ForwardedPort, ports_of
from refold.session.recorder import Recorder
from refold.values.live import PortsChanged

_MAX_OPEN_PORTS = 20
_MAX_ANNOUNCED_PORTS = 100


class ListeningPort(Struct, frozen=True):
    """A port of the place. `link` opens it on this machine; "": it is not forwarded."""

    port: int
    link: str = ""


class PortsElsewhere:
    """The ports of the place behind `pipe`. Ports that are open when it connects are not
    new.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._known: frozenset[int] | None = None
        self.new: tuple[int, ...] = ()
        self._records = list[tuple[Recorder, EventLoopToken]]()
        self._lock = threading.Lock()
        self._forwarded = dict[int, ForwardedPort]()
        self._closed = False

    def join(self, record: Recorder) -> None:
        """Announce new ports in this session."""
        self._records.append((record, current_token()))
        if self.new:
            record.publish(PortsChanged(self.new))

    def note(self, ports: tuple[int, ...]) -> None:
        """Note the ports that listen now. The caller reads the pipe, so this does not wait."""
        if self._known is None:
            self._known = frozenset(ports)
        new = tuple(port for port in ports if port not in self._known)[
            :_MAX_ANNOUNCED_PORTS
        ]
        if new != self.new:
            self.new = new
            threading.Thread(target=self._announce, daemon=True).start()

    def _announce(self) -> None:
        for record, loop in tuple(self._records):
            news = PortsChanged(self.new)
            with suppress(RuntimeError):  # its loop has ended
                from_thread.run_sync(record.publish, news, token=loop)

    def all_ports(self) -> list[ListeningPort]:
        """The ports that listen in the place now, and which of them are open here. It asks
        the place.
        """
        listening = ports_of(self._pipe)
        with self._lock:
            links = self._links
        return [
            ListeningPort(port, links.get(port, ""))
            for port in sorted({*listening, *links})
        ]

    @property
    def _links(self) -> Mapping[int, str]:
        return {port: forwarded.link for port, forwarded in self._forwarded.items()}

    def open(self, port: int) -> ListeningPort:
        """Forward a port to this machine, if it is not yet. Raises `BadInput`."""
        with self._lock:
            if port not in self._forwarded:
                if self._closed or len(self._forwarded) >= _MAX_OPEN_PORTS:
                    raise BadInput(
                        f"port {port} cannot be opened: {_MAX_OPEN_PORTS} ports of this "
                        "workspace are open; they close with the session"
                    )
                self._forwarded[port] = ForwardedPort(self._pipe, port)
            return ListeningPort(port, self._forwarded[port].link)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for forwarded in self._forwarded.values():
                forwarded.close()
