"""`refold ports ADDRESS [PORT …]`: open ports of a workspace elsewhere on this machine.

It connects on its own, so it needs no session. `place.elsewhere.place_ports` forwards them.
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

# It runs no commands there.
_NO_SANDBOX = {"profile": "off", "network": True, "user_namespaces": False}
_MAX_PORT = 65535


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "address", metavar="ADDRESS", help="as for --workspace, or a name of the settings"
    )
    parser.add_argument("port", nargs="*", type=int,
        help="open this port at 127.0.0.1 until Ctrl+C; without one, list them")  # fmt: skip


def run(args: Namespace) -> int:
    for port in args.port:
        if not 0 < port <= _MAX_PORT:
            raise BadInput(f"{port} is not a port: give one from 1 to {_MAX_PORT}")
    address = parse_address(address_given("refold ports", args.address))
    if address.is_made:
        from refold.place.containers.session_container import reach_container

        address = reach_container(address, os.environ)
    wanted = PlaceSettings(_NO_SANDBOX, cache=paths(os.environ).place_program)
    with closing(Pipe(address, wanted, os.environ)) as pipe:
        if not args.port:
            ports = ports_of(pipe)
            write("".join(f"{port}\n" for port in ports) or "no server listens there\n")
            return 0
        _ = pipe.greeting  # connects
        forwarded = [ForwardedPort(pipe, port) for port in args.port]
        for one in forwarded:
            write(
                f"port {one.port} there is 127.0.0.1:{one.local}, {one.link} in a browser\n"
            )
        try:
            signal.pause()
        except KeyboardInterrupt:
            return 0
        finally:
            for one in forwarded:
                one.close()
    return 0
