"""Parses web addresses, matches hosts with patterns, and recognizes private IP addresses.

Permissions and the web client both use this module, so a rule is compared with exactly the host
to which the client connects. Pure: `provider.resolver` resolves names.
"""

import ipaddress
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

from msgspec import Struct

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_URL_CHARS = 4_000
_SAFE_CHARS = "/?#[]@!$&'()*+,;=:%-._~"  # characters that `quote` does not change
# Addresses of this machine's hypervisor, which count as public elsewhere.
_METADATA_ADDRESSES = frozenset(("168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
# Reserved names: RFC 6762, RFC 8375, and by ICANN in 2024.
_INSIDE_SUFFIXES = (".local", ".home.arpa", ".internal")
_NAT64_NETWORK = ipaddress.ip_network("64:ff9b::/96")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# "reserved": an address of one network segment, of many hosts, of no host, or of a metadata
# service.
AddressKind: TypeAlias = Literal["public", "loopback", "private", "reserved"]


class WebAddress(Struct, frozen=True):
    """A parsed URL.

    `host` is in lower case and ASCII; an IPv6 address has no brackets.
    """

    scheme: str
    host: str
    port: int
    target: str  # path and query

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The host and port of the URL, as the Host header needs them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return self.origin + self.target


def web_address(url: str) -> WebAddress:
    """Parse a URL. Raises `ValueError`, which says what is wrong with the URL."""
    text = url.strip()
    if len(text) > _MAX_URL_CHARS:
        raise ValueError(f"a web address has at most {_MAX_URL_CHARS:,} characters")
    for letter in text:
        if letter.isspace() or not letter.isprintable() or letter == "\\":
            raise ValueError(
                f"{url!r} is not a web address: it holds a blank or a backslash"
            )
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
        parts.scheme, _to_ascii(host, url), port or _DEFAULT_PORTS[parts.scheme], target
    )


def join_address(base: WebAddress, location: str) -> WebAddress:
    """Return the target of a redirect from `base` to `location`. Raises `ValueError` if it is
    invalid.
    """
    return web_address(urljoin(str(base), location.strip()))


def host_of(url: str) -> str:
    """Return the host of a URL; "" if the URL is invalid."""
    try:
        return web_address(url).host
    except ValueError:
        return ""


def covers(pattern: str, host: str) -> bool:
    """Whether `pattern` matches this host. `*` matches any text, as in `*.example.org`."""
    return bool(host) and fnmatchcase(host, _ascii_pattern(pattern.strip().rstrip(".")))


def covers_below(pattern: str, host: str) -> bool:
    """Whether `pattern` matches this host or one of its parent domains."""
    return covers(pattern, host) or covers(f"*.{pattern.strip()}", host)


def is_local_name(host: str) -> bool:
    """Whether a name shows without resolution that the host is private.

    A host with another name may be private, too.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_private(host)


def is_inside_name(host: str) -> bool:
    """Whether the name can lead only to this machine or a private network, whatever resolves
    it.

    A proxy may resolve names like `metadata.google.internal`.
    """
    # A name without a dot is not public. With a colon it is an IPv6 address.
    is_single_label = bool(host) and "." not in host and ":" not in host
    return is_single_label or host.endswith(_INSIDE_SUFFIXES) or is_local_name(host)


def is_private(address: str) -> bool:
    """Whether this IP address belongs to this machine, a private network or a metadata
    service.
    """
    without_zone = address.partition("%")[0]
    try:
        parsed = ipaddress.ip_address(without_zone)
    except ValueError:
        return False
    return any(_is_not_public(each) for each in (parsed, *_embedded_ipv4(parsed)))


def address_kind(address: str) -> AddressKind:
    """Return the kind of an IP address. Raises `ValueError` for other text."""
    without_zone = address.partition("%")[0]
    parsed = ipaddress.ip_address(without_zone)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return "loopback"
    if str(parsed) in _METADATA_ADDRESSES:
        return "reserved"
    leads_inside = any(_is_not_public(inner) for inner in _embedded_ipv4(parsed))
    if leads_inside or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return "reserved"
    if isinstance(parsed, ipaddress.IPv4Address) and parsed.is_reserved:
        return "reserved"
    return "private" if _is_not_public(parsed) else "public"


def _is_not_public(address: IpAddress) -> bool:
    """Whether this address is not in the public internet, or has a cloud's metadata."""
    if str(address) in _METADATA_ADDRESSES or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return not address.is_global
    if address in _NAT64_NETWORK or address.ipv4_mapped is not None:
        return False  # the IPv4 address in it decides
    return not address.is_global or address.is_reserved or address.is_site_local


def _embedded_ipv4(address: IpAddress) -> tuple[IpAddress, ...]:
    """Return the IPv4 addresses that an IPv6 address contains, and to which it leads."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64_NETWORK:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(candidate for candidate in inner if candidate is not None)


def _without_dots(path: str) -> str:
    """Return the path without `.` and `..`, as a server resolves it.

    A rule for `/docs/*` must not cover `/docs/../admin`.
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
    """Return a pattern in the form in which hosts are compared: non-ASCII labels
    encoded, `*` kept.
    """
    labels = list[str]()
    for label in pattern.lower().split("."):
        try:
            labels.append(label if label.isascii() else label.encode("idna").decode())
        except UnicodeError:
            labels.append(label)
    return ".".join(labels)


def _to_ascii(host: str, url: str) -> str:
    """Return the name of a host in lower case and ASCII. Raises `ValueError`."""
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(
            f"{url!r} is not a web address: no host has such a name"
        ) from error
    return name.lower().rstrip(".")
