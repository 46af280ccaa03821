"""Announces new open ports of a remote workspace, and forwards ports to this machine.

When a connection to the place begins, the place lists its open ports; later it sends changes.
`place.elsewhere.place_ports` forwards a port; it stays open until the workspace is closed.
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
    """An open port of the place. `link` opens it on this machine, or is "" if it is not
    forwarded.
    """

    port: int
    link: str = ""


class PortsElsewhere:
    """The open ports of the place to which `pipe` is a connection.

    `new_ports` are the open ports that were not open when the pipe connected.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._first_ports: frozenset[int] | None = None
        self.new_ports: tuple[int, ...] = ()
        self._records = list[tuple[Recorder, EventLoopToken]]()
        self._lock = threading.Lock()
        self._forwarded = dict[int, ForwardedPort]()
        self._closed = False

    def join(self, record: Recorder) -> None:
        """Announce new ports in the session of `record`, now and later."""
        self._records.append((record, current_token()))
        if self.new_ports:
            record.publish(PortsChanged(self.new_ports))

    def note(self, ports: tuple[int, ...]) -> None:
        """Store which ports are open now.

        This must not wait, because the caller reads the pipe.
        """
        if self._first_ports is None:
            self._first_ports = frozenset(ports)
        opened_since = [port for port in ports if port not in self._first_ports]
        new_ports = tuple(opened_since[:_MAX_ANNOUNCED_PORTS])
        if new_ports != self.new_ports:
            self.new_ports = new_ports
            threading.Thread(target=self._announce, daemon=True).start()

    def _announce(self) -> None:
        """Tell each open session of the new ports. Call it in a thread, because it waits."""
        for record, loop in tuple(self._records):
            news = PortsChanged(self.new_ports)
            with suppress(RuntimeError):  # its event loop has ended
                from_thread.run_sync(record.publish, news, token=loop)

    def all_ports(self) -> list[ListeningPort]:
        """Return the open ports of the place, and all forwarded ports with their links.

        This sends a request to the place.
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
        """Forward a port to this machine, and return the port with its link.

        A port that is forwarded already is not forwarded again. Raises `BadInput` if too many
        ports are forwarded, or after `close`.
        """
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
        """Close all forwarded ports, and let no further one be opened."""
        with self._lock:
            self._closed = True
            for forwarded in self._forwarded.values():
                forwarded.close()
