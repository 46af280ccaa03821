"""Workspaces elsewhere, for clients: the directory that stands for one, and who may name which.

A `cmd:` address runs a program on this machine, and `ssh://` uses keys of its user. So addresses come
from the command line, from the user's own settings, or from a client of a server that was started
with `--addresses`; never from the settings of a project.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from refold.config.paths import paths
from refold.errors import BadInput
from refold.place.elsewhere.address import is_address, parse_address
from refold.place.elsewhere.directory import address_in, directory_of_address
from refold.session.recorder import acting_person

_NOT_FREE = (
    "{text!r} is an address that this server does not take: choose a workspace of the settings "
    "([workspaces] has {names}), or start the server with --addresses"
)
_OTHER_PERSON = "only the person who started this server may give the address {text!r}"


class AddressRights(Struct, frozen=True):
    """Which workspaces elsewhere the clients of a server may use.

    `named` are those of the settings, by name. `recent`: also those of earlier sessions. `free`: the
    `person`, and programs with the token, may give any address.
    """

    named: Mapping[str, str] = {}
    recent: bool = False
    free: bool = False
    person: str = ""

    def check(self, text: str, recent_directories: Callable[[], Iterable[str]]) -> None:
        """Raise `BadInput` unless the acting person may use this address."""
        if text in self.named.values():
            return
        if self.recent and text in map(address_of_directory, recent_directories()):
            return
        if not self.free:
            names = ", ".join(self.named) or "none"
            raise BadInput(_NOT_FREE.format(text=text[:200], names=names))
        if (person := acting_person()) and person != self.person:
            raise BadInput(_OTHER_PERSON.format(text=text[:200]))


def address_named(text: str, addresses: Mapping[str, str]) -> str:
    """The address that this is, or that the settings have by this name; "": it is a path.

    Raises `BadInput` for one that cannot be parsed.
    """
    address = text
    if not is_address(text) and not (address := addresses.get(text, "")):
        return ""
    try:
        return parse_address(address).text
    except BadInput as error:
        raise BadInput(
            f"workspaces.{text}: {error}" if text in addresses else str(error)
        ) from error


def find_directory_elsewhere(text: str, addresses: Mapping[str, str]) -> Path | None:
    """The directory that stands for this address or name; None if it is a path.

    Raises `BadInput` for an address that cannot be parsed.
    """
    address = address_named(text, addresses)
    return stand_in_directory(address) if address else None


def stand_in_directory(address: str) -> Path:
    """The directory that stands for this address, made if necessary."""
    return directory_of_address(paths(os.environ).places, address)


def address_of_directory(directory: str) -> str:
    """The address that a directory stands for; "" for a directory of this machine."""
    places = paths(os.environ).places
    if os.path.dirname(directory) != os.path.realpath(places):
        return ""
    address = address_in(places, directory)
    return address.text if address else ""
