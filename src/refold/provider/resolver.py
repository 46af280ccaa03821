"""The resolver of every outgoing request: names become addresses, and each address is judged.

A name leads wherever its owner wants, also to this machine. So a request that was allowed for
a name is sent only to addresses that were judged here: `resolve_and_judge` resolves and judges, and
`connect.dial` connects to what it returns. Where a proxy resolves names, only what this machine
resolves can be judged. `values.web_address` says which addresses are private; who asked for a
request decides which of them it may reach.
"""

import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import anyio

from refold.values.display import HostRefusal
from refold.values.web_address import AddressKind, WebAddress, address_kind, is_private

# The IP addresses of a host and port. Raises `OSError`.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
# The judged IP addresses of a place. Raises `OSError`, and of these `AddressRefused`.
Judge = Callable[[WebAddress], Awaitable[Sequence[str]]]

_NAMED_INSIDE: Collection[AddressKind] = frozenset(("loopback", "private"))
_ALL_INSIDE: Collection[AddressKind] = frozenset(("loopback", "private", "reserved"))
_MAX_ADDRESSES_SHOWN = 3


class AddressRefused(OSError):
    """A name leads to an address that the request must not reach. The message says which.

    `kind` is the reason for programs.
    """

    def __init__(self, message: str, kind: HostRefusal = "never") -> None:
        super().__init__(message)
        self.kind: HostRefusal = kind


def kinds_of_users_host(host: str) -> Collection[AddressKind]:
    """The address kinds allowed for a host that the user named in a rule, file or command.

    No name may lead to a reserved address; a literal address may be of any kind.
    """
    return _ALL_INSIDE if is_private(host) else _NAMED_INSIDE


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name to IP addresses on this machine. Raises `OSError`."""
    kind = socket.SOCK_STREAM
    with suppress(OSError, UnicodeError):  # a name: only a look-up needs a thread
        address, numeric = host.encode("ascii"), socket.AI_NUMERICHOST  # not in IDNA
        rows = socket.getaddrinfo(address, port, type=kind, flags=numeric)
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
    """The addresses of a host, if each may be connected to.

    Allowed are public addresses and the kinds in `allowed_kinds`. Raises `OSError`, and its
    subclass `AddressRefused` for any other address.
    """
    addresses = await resolve(host, port)
    check_addresses(host, addresses, allowed_kinds)
    return addresses


def check_addresses(
    host: str, addresses: Sequence[str], allowed_kinds: Collection[AddressKind] = ()
) -> None:
    """Raise `AddressRefused` for an address not public and not of `allowed_kinds`.

    Public and private addresses of one name are refused together: an attacker would add a
    public address to make a private one pass.
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
        raise AddressRefused(
            f"{place} is {_describe_kind(wrong[0])}: nothing was sent",
            "never" if set(wrong) - set(_NAMED_INSIDE) else "private",
        )


def kinds_of(addresses: Sequence[str]) -> frozenset[AddressKind]:
    return frozenset(address_kind(address) for address in addresses)


def _describe_kind(kind: str) -> str:
    match kind:
        case "loopback":
            return "this machine"
        case "private":
            return "in a private network"
        case _:
            return "a reserved address, as the metadata service of a cloud has"
