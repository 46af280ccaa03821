"""Workspaces on other machines: their stand-in directories, and who may use which address.

A stand-in is a directory on this machine that represents the workspace at an address,
because a session needs a directory.

A `cmd:` address runs a program on this machine, and an `ssh://` address uses the keys of
its user. So an address is accepted from the command line, from the user's own settings, and
from clients of a server that was started with `--addresses`, but never from the settings of
a project.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from refold.config.paths import paths
from refold.errors import BadInput
from refold.place.elsewhere.address import is_address, parse_address
from refold.place.elsewhere.directory import (
    address_in,
    directory_of_address,
    is_like_stand_in,
    name_of_address,
)
from refold.session.recorder import acting_person

_NOT_TAKEN = (
    "{text!r} is an address that this server does not take: choose a workspace of the settings "
    "([workspaces] has {names}), or start the server with --addresses"
)
_NOT_KNOWN_HERE = (
    "{directory!r} stands for a workspace elsewhere that this worker does not know: give all workers of "
    "the service the same [workspaces] in their settings"
)
_OTHER_PERSON = "only the person who started this server may give the address {text!r}"
_MAX_SHOWN_CHARS = 200  # of an address in an error


class AddressRights(Struct, frozen=True):
    """Which workspaces on other machines the clients of a server may use.

    `named` are the addresses in the settings, by name. With `recent`, the addresses of
    earlier sessions are allowed, too. With `free`, any address is allowed to programs that
    have the token, and to `person`, who started the server.
    """

    named: Mapping[str, str] = {}
    recent: bool = False
    free: bool = False
    person: str = ""

    def check(self, text: str, recent_directories: Callable[[], Iterable[str]]) -> None:
        """Raise `BadInput` unless the acting person may use the address `text`.

        `recent_directories` returns the directories of earlier sessions.
        """
        if text in self.named.values():
            return
        if self.recent and text in map(address_of_directory, recent_directories()):
            return
        shown_text = text[:_MAX_SHOWN_CHARS]
        if not self.free:
            names = ", ".join(self.named) or "none"
            raise BadInput(_NOT_TAKEN.format(text=shown_text, names=names))
        person = acting_person()  # "": a program with the token
        if person and person != self.person:
            raise BadInput(_OTHER_PERSON.format(text=shown_text))


def resolve_address(text: str, addresses: Mapping[str, str]) -> str:
    """Return the address that a text means: the text is an address, or a name in `addresses`.

    Return "" for any other text: it is a path. Raises `BadInput` for an address that cannot
    be parsed.
    """
    address = text if is_address(text) else addresses.get(text, "")
    if not address:
        return ""
    try:
        return parse_address(address).text
    except BadInput as error:
        if text in addresses:  # the mistake is in the settings
            raise BadInput(f"workspaces.{text}: {error}") from error
        raise


def find_directory_elsewhere(text: str, addresses: Mapping[str, str]) -> Path | None:
    """Return the stand-in directory of this address or name; None if the text is a path.

    Raises `BadInput` for an address that cannot be parsed.
    """
    address = resolve_address(text, addresses)
    return stand_in_directory(address) if address else None


def find_stand_in(recorded: str, addresses: Mapping[str, str]) -> Path | None:
    """Return the stand-in on this machine for `recorded`, the directory that a session
    recorded.

    The session may have recorded it on another machine. Return None if `recorded` is an
    ordinary directory here, or was not a stand-in. Raises `BadInput` if no address in
    `addresses` belongs to the stand-in: another directory would have other files.
    """
    if address_of_directory(os.path.realpath(recorded)):
        return Path(recorded)
    places = paths(os.environ).places
    if os.path.isdir(recorded) or not is_like_stand_in(recorded, places):
        return None
    stand_in_name = os.path.basename(recorded)
    for name in addresses:
        address = resolve_address(name, addresses)
        if name_of_address(address) == stand_in_name:
            return stand_in_directory(address)
    raise BadInput(_NOT_KNOWN_HERE.format(directory=recorded))


def stand_in_directory(address: str) -> Path:
    """Return the stand-in directory for this address, which is created if it does not exist."""
    return directory_of_address(paths(os.environ).places, address)


def address_of_directory(directory: str) -> str:
    """Return the address that a stand-in represents; "" for any other directory."""
    places = paths(os.environ).places
    if os.path.dirname(directory) != os.path.realpath(places):
        return ""
    address = address_in(places, directory)
    return address.text if address else ""
