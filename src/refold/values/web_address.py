"""Web addresses: how a URL is read, which hosts a pattern covers, which IP addresses are private.

Permissions and the web client both use it, so a rule is compared with exactly the host that
is connected to. Pure: names are resolved by `provider.resolver`.
"""

import ipaddress
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_URL_CHARS = 4_000
_SAFE_CHARS = "/?#[]@!$&'()*+,;=:%-._~"  # what `quote` leaves as it is
# Addresses of this machine's hypervisor, which count as public elsewhere.
_METADATA_ADDRESSES = frozenset(("168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
# Reserved: RFC 6762, RFC 8375, and by ICANN in 2024.
_INSIDE_SUFFIXES = (".local", ".home.arpa", ".internal")
_NAT64_NETWORK = ipaddress.ip_network("64:ff9b::/96")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# "reserved": of one network segment, of many hosts, of none, or of a metadata service.
AddressKind: TypeAlias = Literal["public", "loopback", "private", "reserved"]


class WebAddress(Struct, frozen=True):
    """`host` is in small letters and ASCII, an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    target: str  # path and query

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The authority of the URL, as the Host header needs it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return self.origin + self.target


def web_address(url: str) -> WebAddress:
    """Read a URL. Raises `ValueError` with what is wrong with it."""
    text = url.strip()
    if len(text) > _MAX_URL_CHARS:
        raise ValueError(f"a web address has at most {_MAX_URL_CHARS:,} characters")
    if any(
        letter.isspace() or not letter.isprintable() or letter == "\\" for letter in text
    ):
        raise ValueError(f"{url!r} is not a web address: it holds a blank or a backslash")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not a web address: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"{url!r} is not a web address: write https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{url!r} holds a user name, which is not sent: leave it out")
    target = quote(_without_dots(parts.path) or "/", safe=_SAFE_CHARS)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE_CHARS)
    return WebAddress(
        parts.scheme, _ascii(host, url), port or _DEFAULT_PORTS[parts.scheme], target
    )


def join_address(base: WebAddress, location: str) -> WebAddress:
    """Where a redirect leads. Raises `ValueError`."""
    return web_address(urljoin(str(base), location.strip()))


def host_of(url: str) -> str:
    """The host of a URL, or "" if it cannot be read."""
    try:
        return web_address(url).host
    except ValueError:
        return ""


def covers(pattern: str, host: str) -> bool:
    """Whether `pattern` names this host. `*` stands for any text: `*.example.org`."""
    return bool(host) and fnmatchcase(host, _ascii_pattern(pattern.strip().rstrip(".")))


def covers_below(pattern: str, host: str) -> bool:
    """Whether the pattern names this host, or a host above it."""
    return covers(pattern, host) or covers(f"*.{pattern.strip()}", host)


def is_local_name(host: str) -> bool:
    """Whether the name alone shows that the host is private. Others must be resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_private(host)


def is_inside_name(host: str) -> bool:
    """Whether the name can lead only to this machine or a private network.

    This holds for any resolver: a proxy may know names like `metadata.google.internal`.
    """
    single = bool(host) and "." not in host and ":" not in host
    return single or host.endswith(_INSIDE_SUFFIXES) or is_local_name(host)


def is_private(address: str) -> bool:
    """Whether this is an IP address of this machine, a private network or metadata."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(map(_private, (parsed, *_embedded_ipv4(parsed))))


def address_kind(address: str) -> AddressKind:
    """The kind of an IP address. Raises `ValueError` for anything else."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return "loopback"
    if str(parsed) in _METADATA_ADDRESSES or any(map(_private, _embedded_ipv4(parsed))):
        return "reserved"
    odd = parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified
    if odd or (isinstance(parsed, ipaddress.IPv4Address) and parsed.is_reserved):
        return "reserved"
    return "private" if _private(parsed) else "public"


def _private(address: IpAddress) -> bool:
    if str(address) in _METADATA_ADDRESSES or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return not address.is_global
    if address in _NAT64_NETWORK or address.ipv4_mapped is not None:
        return False  # the IPv4 address in it decides
    return not address.is_global or address.is_reserved or address.is_site_local


def _embedded_ipv4(address: IpAddress) -> tuple[IpAddress, ...]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64_NETWORK:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(candidate for candidate in inner if candidate is not None)


def _without_dots(path: str) -> str:
    """The path as a server resolves it: a rule for `/docs/*` must not cover
    `/docs/../admin`.
    """
    parts = list[str]()
    names = path.split("/")
    for index, name in enumerate(names):
        plain = name.lower().replace("%2e", ".")
        if plain not in (".", ".."):
            parts.append(name)
            continue
        if plain == ".." and len(parts) > 1:
            parts.pop()
        if index == len(names) - 1:
            parts.append("")
    return "/".join(parts)


def _ascii_pattern(pattern: str) -> str:
    """A pattern as hosts are compared: non-ASCII labels encoded, those with `*` kept."""
    labels = list[str]()
    for label in pattern.lower().split("."):
        try:
            labels.append(label if label.isascii() else label.encode("idna").decode())
        except UnicodeError:
            labels.append(label)
    return ".".join(labels)


def _ascii(host: str, url: str) -> str:
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(
            f"{url!r} is not a web address: no host has such a name"
        ) from error
    return name.lower().rstrip(".")
