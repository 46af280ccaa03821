"""Tests which sandbox works on this machine, and says what protection is missing.

`sandbox` uses the result to build the sandbox of each command.
"""

import os
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.place import bubblewrap, landlock, seatbelt
from refold.place.sandbox_rules import SandboxConfig
from refold.programs import Programs

Kind: TypeAlias = Literal["bubblewrap", "landlock", "seatbelt", "none", "off"]

_NAMESPACES_ALLOWED = (
    "Commands can make namespaces (sandbox.user_namespaces is true), and detach what covers "
    "protected files while they run."
)
_INSTALL_HINT = "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"


class Capabilities(Struct, frozen=True):
    """What this machine can enforce for commands, and what the user must know about it."""

    kind: Kind
    notice: str = ""
    gives_up: bool = False  # the starting thread can give up rights
    guards_sockets: bool = False


def probe(config: SandboxConfig, programs: Programs) -> Capabilities:
    """Test what this machine can enforce.

    The test starts bubblewrap and waits for its end, so call this from a thread.
    """
    if config.profile == "off":
        return Capabilities(
            "off", "The sandbox is off: commands can do whatever you can do."
        )
    if os.path.exists(seatbelt.PROGRAM_PATH):
        return Capabilities(
            "seatbelt",
            "Commands run under sandbox-exec with a profile that was never tested "
            "on a Mac: do not rely on it.",
        )
    bwrap = programs.find("bwrap")
    why = _why_bwrap_unusable(programs, bwrap) or bubblewrap.why_unusable(bwrap)
    if not why:
        from refold.place import socket_guard  # imported only where it is used

        # Under the filter, a setuid bubblewrap could not become root.
        is_unprivileged = not bubblewrap.is_setuid(bwrap)
        guards_sockets = is_unprivileged and socket_guard.is_permitted()
        notice = _NAMESPACES_ALLOWED if config.user_namespaces else ""
        return Capabilities(
            "bubblewrap",
            notice,
            gives_up=is_unprivileged,
            guards_sockets=guards_sockets,
        )
    if landlock.landlock_version():
        return Capabilities(
            "landlock",
            f"Commands run in a weak sandbox, because {why}: they cannot write outside "
            "the workspace or connect by TCP, but they can read your keys and change "
            f"protected files in the workspace. refold asks more often. {_INSTALL_HINT}.",
            gives_up=True,
        )
    return Capabilities(
        "none",
        f"Commands run WITHOUT a sandbox, because {why}: they can do whatever "
        f"you can do. refold asks more often. {_INSTALL_HINT}.",
    )


def _why_bwrap_unusable(programs: Programs, bwrap: str) -> str:
    """Return why an installed bwrap is skipped; "" if `bwrap` was found, or none exists."""
    if bwrap:
        return ""
    skipped_programs = programs.skipped_programs("bwrap")
    return next((f"{path} is not run: {why}" for path, why in skipped_programs), "")
