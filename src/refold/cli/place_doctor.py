"""`refold doctor --workspace ADDRESS`: checks a workspace on another machine or in a container.

The command connects like a session, reports which programs exist there and how commands are
sandboxed, and stops what it started. The image of a container must already exist.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack

from msgspec import Struct

from refold.cli.start_elsewhere import address_given
from refold.config.paths import paths
from refold.errors import BadInput, ToolFailed
from refold.place.elsewhere.address import PlaceAddress, parse_address
from refold.place.elsewhere.greeting import PlaceGreeting
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.views.check_findings import Finding

_SANDBOX_SETTINGS = PlaceSettings(
    {"profile": "workspace", "network": False, "user_namespaces": False}
)
_NO_SANDBOX = PlaceSettings({"profile": "off", "network": False, "user_namespaces": False})
_PROGRAM_USES = (
    ("git", "there are no checkpoints there"),
    ("rg", "grep does not work there: install ripgrep"),
)
_LANDLOCK_TEXT = (
    "bubblewrap does not work there. Landlock keeps commands from writing outside of the workspace, "
    "and from TCP; for all else the place itself is the boundary"
)


class _Has(Struct, frozen=True):
    """The reply to the request `has`: whether a program is installed in the workspace."""

    has: bool


def check_place(text: str) -> Iterator[Finding]:
    """Yield findings about the workspace `text`. If it cannot be reached, yield one problem."""
    try:
        address = parse_address(address_given("--workspace", text))
        with ExitStack() as stack:
            yield from _check(address, stack)
    except (BadInput, ToolFailed) as error:
        yield Finding("workspace", "wrong", str(error))


def _check(address: PlaceAddress, stack: ExitStack) -> Iterator[Finding]:
    """Connect to the workspace, and yield findings. `stack` closes the connection."""
    notices: tuple[str, ...] = ()
    place_settings = _SANDBOX_SETTINGS
    if address.is_made:
        from refold.place.containers.session_container import open_container

        container = open_container(
            address, paths(os.environ).data, os.environ, network=False
        )
        stack.callback(container.lock.release)
        address, notices, place_settings = container.address, container.notices, _NO_SANDBOX
    pipe = Pipe(address, place_settings, os.environ)
    stack.callback(pipe.close)
    greeting = pipe.greeting
    yield Finding(
        "workspace", "ok",
        f"{greeting.root} of {greeting.user}@{greeting.host}, {greeting.system}, "
        f"Python {greeting.python}",
    )  # fmt: skip
    for notice in notices:
        # settings of devcontainer.json that are not applied are "left out"
        yield Finding("container", "warning" if "left out" in notice else "ok", notice)
    if not notices:
        yield _sandbox(greeting)
    for program, use in _PROGRAM_USES:
        if pipe.ask("has", program=program).read(_Has).has:
            yield Finding(program, "ok", "installed there")
        else:
            yield Finding(program, "warning", f"not installed there: {use}")


def _sandbox(greeting: PlaceGreeting) -> Finding:
    """Return a finding about what confines commands in the workspace."""
    if greeting.confines:
        return Finding("sandbox", "ok", f"{greeting.sandbox} confines commands there")
    if greeting.sandbox == "landlock":
        return Finding("sandbox", "warning", _LANDLOCK_TEXT)
    return Finding(
        "sandbox", "warning",
        "bubblewrap does not work there: the place itself is the boundary of commands",
        "install bubblewrap there, if the place has more in it than the workspace",
    )  # fmt: skip
