"""Resolves host names for every outgoing request, and checks each address.

The owner of a name decides where it leads, possibly to this machine. So a request that was
allowed for a name is sent only to addresses that were checked here: `resolve_and_judge`
resolves and checks, and `connect.dial` connects to the result. If a proxy resolves names, only
names that this machine can resolve, too, are checked. `values.web_address` decides which
addresses are private; the caller decides which kinds a request may reach.
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import anyio

from refold.values.display import HostRefusal
from refold.values.web_address import AddressKind, WebAddress, address_kind, is_private

# The IP addresses of a host and port. Raises `OSError`.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
# The checked IP addresses of a place. Raises `OSError`, including `AddressRefused`.
Judge = Callable[[WebAddress], Awaitable[Sequence[str]]]

# The kinds of addresses to which a name that the user wrote may lead.
_NAMED_INSIDE: Collection[AddressKind] = frozenset(("loopback", "private"))
_ALL_INSIDE: Collection[AddressKind] = frozenset(("loopback", "private", "reserved"))
_MAX_ADDRESSES_SHOWN = 3


class AddressRefused(OSError):
    """Raised if a name leads to an address that the request must not reach.

    The message has the address. `kind` is the kind of the refusal, for programs.
    """

    def __init__(self, message: str, kind: HostRefusal = "never") -> None:
        super().__init__(message)
        self.kind: HostRefusal = kind


def kinds_of_users_host(host: str) -> Collection[AddressKind]:
    """Return the kinds of addresses that are allowed for a host which the user has named.

    The user may name it in a rule, a file or a command. An IP address may be of any kind; a
    name may not lead to a reserved address.
    """
    return _ALL_INSIDE if is_private(host) else _NAMED_INSIDE


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses of a host, as this machine resolves it. Raises `OSError`."""
    kind = socket.SOCK_STREAM
    # If the host is an address, no name is looked up, and so no thread is needed. The host is
    # passed as bytes, because text would be encoded with IDNA.
    with suppress(OSError, UnicodeError):
        address = host.encode("ascii")
        rows = socket.getaddrinfo(address, port, type=kind, flags=socket.AI_NUMERICHOST)
        return tuple(dict.fromkeys(str(row[4][0]) for row in rows))
    try:
        rows = await anyio.getaddrinfo(host, port, type=kind)
    except UnicodeError as error:
        raise OSError("no host has such a name") from error
    return tuple(dict.fromkeys(str(row[4][0]) for row in rows))


async def resolve_and_judge(
    host: str,
    port: int,
    allowed_kinds: Collection[AddressKind] = (),
    resolve: Resolve = resolve,
) -> Sequence[str]:
    """Return the IP addresses of a host, if a connection to each of them is allowed.

    Public addresses and the kinds in `allowed_kinds` are allowed. Raises `OSError`, and its
    subclass `AddressRefused` as `check_addresses` does.
    """
    addresses = await resolve(host, port)
    check_addresses(host, addresses, allowed_kinds)
    return addresses


def check_addresses(
    host: str, addresses: Sequence[str], allowed_kinds: Collection[AddressKind] = ()
) -> None:
    """Raise `AddressRefused` if an address is neither public nor of `allowed_kinds`.

    It is also raised for a name with public and private addresses, because an attacker would
    add a public address to make a private one pass.
    """
    kinds = kinds_of(addresses)
    inside = [kind for kind in kinds if kind != "public"]
    listed = ", ".join(addresses[:_MAX_ADDRESSES_SHOWN])
    if inside and "public" in kinds:
        raise AddressRefused(
            f"{host} has public and private addresses ({listed}), as a hostile name server "
            "answers: nothing was sent; use a name whose addresses are all private, or one "
            "of the addresses"
        )
    if wrong := [kind for kind in inside if kind not in allowed_kinds]:
        place = host if tuple(addresses) == (host,) else f"{host} leads to {listed}, which"
        may_be_allowed = set(wrong) <= set(_NAMED_INSIDE)
        raise AddressRefused(
            f"{place} is {_describe_kind(wrong[0])}: nothing was sent",
            "private" if may_be_allowed else "never",
        )


def kinds_of(addresses: Sequence[str]) -> frozenset[AddressKind]:
    return frozenset(address_kind(address) for address in addresses)


def _describe_kind(kind: str) -> str:
    """Return words for a kind of address that is not public, to be written after "is"."""
    match kind:
        case "loopback":
            return "this machine"
        case "private":
            return "in a private network"
        case _:
            return "a reserved address, as the metadata service of a cloud has"
