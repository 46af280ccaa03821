"""`refold ports ADDRESS [PORT …]`: forwards ports of a remote workspace to this machine.

The command opens a separate connection, so it needs no session. `place.elsewhere.place_ports`
forwards the ports.
"""

import os
import signal
from argparse import ArgumentParser, Namespace
from contextlib import closing

from refold.cli.start_elsewhere import address_given
from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import write
from refold.place.elsewhere.address import parse_address
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_ports import ForwardedPort, ports_of

# This connection runs no commands.
_NO_SANDBOX = {"profile": "off", "network": True, "user_namespaces": False}
_MAX_PORT = 65535


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "address", metavar="ADDRESS", help="as for --workspace, or a name of the settings"
    )
    parser.add_argument("port", nargs="*", type=int, metavar="PORT",
        help="open this port at 127.0.0.1 until Ctrl+C; without one, list them")  # fmt: skip


def run(args: Namespace) -> int:
    """Print the ports of the workspace, or forward the named ports until Ctrl+C."""
    for port in args.port:
        if not 0 < port <= _MAX_PORT:
            raise BadInput(f"{port} is not a port: give one from 1 to {_MAX_PORT}")
    address = parse_address(address_given("refold ports", args.address))
    if address.is_made:
        from refold.place.containers.session_container import reach_container

        address = reach_container(address, os.environ)
    place_settings = PlaceSettings(_NO_SANDBOX, cache=paths(os.environ).place_program)
    with closing(Pipe(address, place_settings, os.environ)) as pipe:
        if not args.port:
            ports = ports_of(pipe)
            write("".join(f"{port}\n" for port in ports) or "no server listens there\n")
            return 0
        _ = pipe.greeting  # connects the pipe
        forwarded = [ForwardedPort(pipe, port) for port in args.port]
        for forward in forwarded:
            write(
                f"port {forward.port} there is 127.0.0.1:{forward.local}, {forward.link} in a browser\n"
            )
        try:
            signal.pause()  # until Ctrl+C
        except KeyboardInterrupt:
            return 0
        finally:
            for forward in forwarded:
                forward.close()
    return 0
