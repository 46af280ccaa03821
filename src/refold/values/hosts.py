"""Patterns and presets for the hosts that a command may reach, and what they cover. Pure.

A pattern is `host`, `host:port` or `host:*`; without a port it covers 80 and 443. `*.host`
covers every host below `host`. With `private:` before a pattern, its host may lead into a
private network. `permissions` makes patterns from rules, `network` compares each connection
with them.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from refold.values.display import HostAttempt, HostRefusal
from refold.values.modes import PRIVATE_PREFIX
from refold.values.web_address import covers, is_inside_name, web_address

EVERY_HOST = "all"  # no filter at all
PRESET_PREFIX = "preset:"
DEFAULT_PORTS = (80, 443)
MAX_NAMED_HOSTS = 50  # of one call
_ANY_HOST = "*"
_SHOWN_HOSTS = 10  # in a remark
_PERMITTED_ON_REQUEST: frozenset[HostRefusal] = frozenset(("unnamed", "asked", "private"))
_HOST_PATTERN = r"(\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]]+)(?::(\d{1,5}|\*))?"
_GITHUB_HOSTS = (
    "github.com api.github.com codeload.github.com *.githubusercontent.com ghcr.io "
    "github-cloud.s3.amazonaws.com"
)
_PRESET_HOSTS = {
    "pypi": "pypi.org files.pythonhosted.org",
    "npm": "registry.npmjs.org registry.yarnpkg.com",
    "crates": "index.crates.io static.crates.io crates.io",
    "go": "proxy.golang.org sum.golang.org",
    "debian": "deb.debian.org security.debian.org",
    "ubuntu": "archive.ubuntu.com security.ubuntu.com ports.ubuntu.com",
    "rubygems": "rubygems.org index.rubygems.org",
    "maven": "repo.maven.apache.org repo1.maven.org plugins.gradle.org services.gradle.org",
    "packagist": "repo.packagist.org packagist.org",
    "nuget": "api.nuget.org",
    "hex": "repo.hex.pm hex.pm",
    "github": _GITHUB_HOSTS,
    "gitlab": "gitlab.com",
    "bitbucket": "bitbucket.org api.bitbucket.org",
    "codeberg": "codeberg.org",
}
HOST_PRESETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(hosts.split()) for name, hosts in _PRESET_HOSTS.items()}
)


REFUSAL_SENTENCES: Mapping[HostRefusal, str] = MappingProxyType(
    {
        "denied": "a deny rule names it",
        "asked": "an ask rule names it, and the user was not asked about it",
        "unnamed": "no rule and no answer of the user names it",
    }
)


class ReachableHosts(Struct, frozen=True):
    """Patterns of the hosts that a command may reach.

    Hosts in `denied` or `asked` may not be reached, even if `allowed` covers them. `asked` are
    the hosts of ask rules about which the user was not asked.
    """

    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def refusal(self, host: str, port: int) -> HostRefusal:
        """Return why this port of the host may not be reached; "" if it may be."""
        if reason := self.ban_reason(host):
            return reason
        if any(covers_place(pattern, host, port) for pattern in self.allowed):
            return ""
        return "unnamed"

    def ban_reason(self, host: str) -> HostRefusal:
        """Return which kind of rule forbids this host at every port; "" if none does."""
        if any(_covers_below(pattern, host) for pattern in self.denied):
            return "denied"
        if any(_covers_below(pattern, host) for pattern in self.asked):
            return "asked"
        return ""

    def permits_private(self, host: str, port: int) -> bool:
        """Whether this host may lead to an address of this machine or a private network.

        The owner of a public name decides where it leads, so a rule must say `private:`. A
        pattern with a wildcard permits no private address.
        """
        for pattern in self.allowed:
            if not covers_place(pattern, host, port):
                continue
            host_pattern, _ = _parts(pattern)
            says_private = pattern.startswith(PRIVATE_PREFIX) or is_inside_name(host)
            if says_private and _ANY_HOST not in host_pattern:
                return True
        return False

    def within(self, other: "ReachableHosts | None") -> "ReachableHosts":
        """Return the hosts that both this value and `other` permit; None permits every host."""
        if other is None:
            return self
        # Of two patterns that overlap, the narrower one stays: it is covered by the other list.
        of_self = [
            pattern for pattern in self.allowed if _is_covered(pattern, other.allowed)
        ]
        of_other = [
            pattern for pattern in other.allowed if _is_covered(pattern, self.allowed)
        ]
        allowed_by_both = ReachableHosts(_unique((*of_self, *of_other)))
        return allowed_by_both.without(self).without(other)

    def without(self, other: "ReachableHosts") -> "ReachableHosts":
        """Return these hosts without the hosts that `other` bans."""
        denied = _unique((*self.denied, *other.denied))
        asked = _unique((*self.asked, *other.asked))
        return ReachableHosts(self.allowed, denied, asked)


# The pattern of a command that may reach all hosts except some. That needs the filter, too.
EVERY_PUBLIC_HOST = f"{_ANY_HOST}:{_ANY_HOST}"


def expand_hosts(pattern_text: str) -> tuple[str, ...]:
    """Return the patterns that a text in a rule or a call means; a preset means several.

    `all` stays `all`. A host is returned in lower case and ASCII, as connections name it.
    Raises `ValueError` for an invalid text.
    """
    text = pattern_text.strip()
    if text == EVERY_HOST:
        return (EVERY_HOST,)
    if text.startswith(PRESET_PREFIX):
        name = text.removeprefix(PRESET_PREFIX)
        if name not in HOST_PRESETS:
            raise ValueError(
                f"there is no preset {name!r}; there are {', '.join(HOST_PRESETS)}"
            )
        return HOST_PRESETS[name]
    host, port = _parts(text)
    private = PRIVATE_PREFIX if text.startswith(PRIVATE_PREFIX) else ""
    wild = "*." if host.startswith("*.") else ""
    plain = host.removeprefix(wild)
    inner = plain.strip("[]")  # square brackets may only be those around an IPv6 address
    has_wildcard = _ANY_HOST in plain or "?" in inner or "[" in inner
    if not plain or has_wildcard:
        raise ValueError(
            f"{text!r} names no host: * stands only for all that is below one, as in "
            f"*.example.org; write {EVERY_HOST} for every host"
        )
    if wild and private:
        raise ValueError(
            f"{text!r} may permit any host in a private network: write one for each host"
        )
    if port not in ("", _ANY_HOST) and not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has no port of a host: ports are 1 to 65535")
    name = web_address(f"https://{plain}/").host
    place = _join_place(wild + name, port)
    return (private + place,)


def expand_all(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of several texts, each once. Raises `ValueError`."""
    return _unique(pattern for text in texts for pattern in expand_hosts(text))


def every_host_but(hosts: ReachableHosts) -> ReachableHosts | None:
    """Return all public hosts except those that `hosts` bans; None if it bans none.

    Private hosts that `hosts` allows by name are included.
    """
    if not (hosts.denied or hosts.asked):
        return None
    named = (pattern for pattern in hosts.allowed if pattern != EVERY_HOST)
    return replace(hosts, allowed=_unique((EVERY_PUBLIC_HOST, *named)))


def only_hosts(patterns: tuple[str, ...]) -> ReachableHosts | None:
    """Return the hosts that `patterns` allow.

    Return None, which means every host, if `patterns` is empty or contains `all`.
    """
    if not patterns or EVERY_HOST in patterns:
        return None
    return ReachableHosts(patterns)


def covers_place(pattern: str, host: str, port: int) -> bool:
    """Whether an expanded pattern covers this port of this host."""
    host_pattern, port_pattern = _parts(pattern)
    if port_pattern:
        port_fits = port_pattern in (_ANY_HOST, str(port))
    else:
        port_fits = port in DEFAULT_PORTS
    return port_fits and covers(_normalize_host(host_pattern), _normalize_host(host))


def place_of(pattern: str) -> tuple[str, int]:
    """Return the host and port of an expanded pattern without `*`; 443 if it has none."""
    host, port_text = _parts(pattern)
    port = int(port_text) if port_text.isdecimal() else DEFAULT_PORTS[-1]
    return host.strip("[]"), port


def to_rule_text(host: str, port: int) -> str:
    """Return a host with its port as a rule names it."""
    return _join_place(host, "" if port in DEFAULT_PORTS else str(port))


def advise_setting(names: str, _: HostAttempt) -> str:
    """Return a text that says how to permit `names` in the settings of a hook or an MCP
    server.
    """
    return f'; to permit them, add {names} to its "hosts"'


def attempt_remarks(
    attempts: Iterable[HostAttempt],
    advice: Callable[[str, HostAttempt], str] = advise_setting,
) -> list[str]:
    """Return remarks on the hosts that were reached, and on those that were refused.

    `advice` gets the refused hosts, quoted and joined with commas, and the first of their
    attempts. It returns how to permit them.
    """
    in_order = sorted(attempts, key=lambda a: to_rule_text(a.host, a.port))
    reached = list_reached(in_order)
    remarks = [f"it reached {', '.join(reached)}"] if reached else []
    refused = [attempt for attempt in in_order if attempt.refused]
    for kind in sorted({attempt.kind for attempt in refused}):
        of_kind = [attempt for attempt in refused if attempt.kind == kind]
        places = [to_rule_text(a.host, a.port) for a in of_kind[:_SHOWN_HOSTS]]
        quoted = ", ".join(f'"{place}"' for place in places)
        remark = f"refused: {quoted} ({of_kind[0].refused})"
        if kind in _PERMITTED_ON_REQUEST:
            prefix = PRIVATE_PREFIX if kind == "private" else ""
            quoted_patterns = ", ".join(f'"{prefix}{place}"' for place in places)
            remark += advice(quoted_patterns, of_kind[0])
        remarks.append(remark)
    return remarks


def list_reached(attempts: Iterable[HostAttempt]) -> tuple[str, ...]:
    """Return the hosts with ports that were reached, sorted, each as a rule names it.

    Only the first `_SHOWN_HOSTS` are returned.
    """
    places = {to_rule_text(a.host, a.port) for a in attempts if not a.refused}
    return tuple(sorted(places)[:_SHOWN_HOSTS])


def rule_for(attempt: HostAttempt) -> str:
    """Return the rule that would permit the host of a refused attempt; "" if no rule
    would.
    """
    place = to_rule_text(attempt.host, attempt.port)
    if attempt.kind == "unnamed":
        return f"net({place})"
    if attempt.kind == "private":
        return f"net({PRIVATE_PREFIX}{place})"
    return ""


def preset_of(pattern: str) -> str:
    """Return the name of the preset that has this pattern; "" if none has."""
    return next((name for name, hosts in HOST_PRESETS.items() if pattern in hosts), "")


def _parts(pattern: str) -> tuple[str, str]:
    """Return the host and the port of a pattern; the port is "" if it names none."""
    match = re.fullmatch(_HOST_PATTERN, pattern.strip().removeprefix(PRIVATE_PREFIX))
    if not match:
        raise ValueError(
            f"{pattern!r} is not a host: write example.org, *.example.org, example.org:8443 "
            f"or {PRESET_PREFIX}NAME"
        )
    return match[1], match[2] or ""


def _join_place(host: str, port: str) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{port}" if port else name


def _covers_below(pattern: str, host: str) -> bool:
    """Whether a denied pattern covers the host or one of its parent domains, at any port."""
    denied_host = _ANY_HOST
    if pattern != EVERY_HOST:
        host_pattern, _ = _parts(pattern)
        denied_host = _normalize_host(host_pattern)
    named_host = _normalize_host(host)
    return covers(denied_host, named_host) or covers(f"*.{denied_host}", named_host)


def _normalize_host(host: str) -> str:
    """Return an IPv6 address in its shortest form, or the IPv4 address that it contains.

    Any other host is returned without brackets.
    """
    plain = host.strip("[]")
    if ":" not in plain:
        return plain
    try:
        address = ipaddress.IPv6Address(plain)
    except ValueError:
        return plain
    return str(address.ipv4_mapped or address)


def _is_covered(pattern: str, patterns: Iterable[str]) -> bool:
    """Whether one of `patterns` covers everything that `pattern` covers."""
    return any(_includes(other, pattern) for other in patterns)


def _includes(pattern: str, narrower: str) -> bool:
    """Whether `pattern` covers everything that the pattern `narrower` covers."""
    if narrower.startswith(PRIVATE_PREFIX) and not pattern.startswith(PRIVATE_PREFIX):
        return False
    host_pattern, port_pattern = _parts(pattern)
    host, port = _parts(narrower)
    # A pattern without a port covers the default ports.
    is_default_port = not port_pattern and port in map(str, DEFAULT_PORTS)
    port_fits = is_default_port or port_pattern in (_ANY_HOST, port)
    return port_fits and covers(host_pattern.strip("[]"), host.strip("[]"))


def _unique(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(patterns))
