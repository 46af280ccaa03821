"""Which hosts a command may reach: those of `net(…)` rules, and those that its question names. Pure.

A question names what the call asks for (`hosts`), the URLs in the command line, the registries of the
programs in it and the remotes of git. Where no rule says `net(…)`, a rule for a command means all
hosts, as it did before hosts were judged. `values.hosts` has the patterns, `network.filter` compares
each connection with the result.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from msgspec import Struct

from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rules import NETWORK_RULE, Rule, decision_of
from refold.permissions.shell.nested_commands import NestedCommands, name_of
from refold.permissions.shell.words import Word
from refold.values.hosts import (
    DEFAULT_PORTS,
    EVERY_HOST,
    EVERY_PUBLIC_HOST,
    HOST_PRESETS,
    MAX_NAMED_HOSTS,
    PRESET_PREFIX,
    ReachableHosts,
    covers_place,
    every_host_but,
    expand_all,
    expand_hosts,
    place_of,
    preset_of,
)
from refold.values.modes import Mode, Verdict
from refold.values.web_address import is_inside_name, web_address

_URL_PATTERN = r"https?://[^\s'\"<>|;()]+"
_USER_PATTERN = r"(?<=:)//[^/?#]*@"
# The preset of a program's registry. `git` has its own remotes.
_REGISTRY_HOSTS = {
    name: preset
    for preset, names in {
        "pypi": "pip pip3 uv uvx pipx poetry pdm hatch tox nox",
        "npm": "npm npx yarn pnpm pnpx bun bunx corepack",
        "crates": "cargo",
        "go": "go",
        "debian": "apt apt-get aptitude",
        "rubygems": "gem bundle bundler",
        "maven": "mvn mvnw gradle gradlew",
        "packagist": "composer",
        "nuget": "dotnet nuget",
        "hex": "mix rebar3",
        "github": "gh",
        "gitlab": "glab",
    }.items()
    for name in names.split()
}  # fmt: skip
# Options without a value of programs whose other words are URLs, in which the scheme may be
# missing: letters of short options, then long ones. All others are taken to have a value.
_FLAGS_OF_FETCHERS = {
    "curl": (
        "#0123456afgGiIjJklLnNOpqRsSvZ",
        "compressed create-dirs fail fail-early fail-with-body get globoff head http1.0 http1.1 "
        "http2 http3 include insecure ipv4 ipv6 junk-session-cookies location no-buffer "
        "no-progress-meter parallel progress-bar remote-header-name remote-name remote-name-all "
        "show-error show-headers silent ssl-reqd tcp-nodelay tlsv1.2 tlsv1.3 verbose",
    ),
    "wget": (
        "46bcdEFHkKLmnNpqrSvx",
        "content-disposition continue convert-links inet4-only inet6-only mirror "
        "no-check-certificate no-clobber no-directories no-host-directories no-parent no-verbose "
        "page-requisites quiet recursive server-response show-progress spider timestamping verbose",
    ),
}
# These do nothing useful without a network, with one of these words first; "": always.
_ONLINE_COMMANDS = {
    name: words.split() or [""]
    for names, words in {
        "git": "push pull fetch clone ls-remote",
        "pip pip3 pipx": "install download wheel",
        "uv": "add sync lock pip",
        "poetry pdm": "add install update lock publish",
        "npm pnpm yarn bun": "install i ci add update up upgrade publish outdated audit view info",
        "cargo": "add fetch install publish update search",
        "go": "get install mod",
        "gem bundle composer mix": "install require update deps.get",
        "apt apt-get": "install update upgrade",
        "curl wget": "",
        "gh glab": "",
    }.items()
    for name in names.split()
}
_PYTHON_NAME = re.compile(r"python[0-9.]*")


class NetworkRules(Struct, frozen=True):
    """The patterns of hosts in the rules, and the rules themselves."""

    allowed: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def every_host_but_denied(self) -> ReachableHosts | None:
        """What a command may reach that no question names; None: every host."""
        return every_host_but(ReachableHosts(self.allowed, self.denied))

    def without_allow_rule(self, host_names: Sequence[str]) -> tuple[str, ...]:
        """Those of these patterns that no allow rule covers."""
        if EVERY_HOST in self.allowed:
            return ()
        plain = ReachableHosts(self.allowed)
        return tuple(
            n for n in host_names if not ReachableHosts((n,)).within(plain).allowed
        )

    def decision_on_hosts(
        self, access: Access, host_names: Sequence[str], verdict: Verdict
    ) -> Decision | None:
        """The verdict of a deny or ask rule for hosts that a call or a URL in it names.

        Hosts of a registry do not count: a program may need only some of them.
        """
        spelled = [n for n in host_names if n in access.hosts or not preset_of(n)]
        for rule in self.rules:
            if rule.verdict != verdict:
                continue
            against = ReachableHosts((), expand_hosts(rule.pattern))
            if any(against.ban_reason(place_of(n)[0]) for n in spelled if n != EVERY_HOST):
                return decision_of(rule)
        return None


def network_rules(rules: Sequence[Rule]) -> NetworkRules:
    network_rules_ = tuple(rule for rule in rules if rule.tool == NETWORK_RULE)
    if not network_rules_:
        return NetworkRules()
    return NetworkRules(
        _patterns(network_rules_, "allow"),
        _patterns(network_rules_, "ask"),
        _patterns(network_rules_, "deny"),
        network_rules_,
    )


def hosts_of_command(
    access: Access, nested: NestedCommands, facts: Facts
) -> tuple[str, ...]:
    """Patterns of the hosts that a command is known to need, those of the call first."""
    if not access.network:
        return ()
    wanted = (*access.hosts, *_in_commands(nested.commands, facts))
    return tuple(dict.fromkeys(wanted))[:MAX_NAMED_HOSTS]


def needs_network(nested: NestedCommands, facts: Facts) -> bool:
    """Whether the command fails without a network, and the outside hosts it needs are known."""
    return any(
        not is_inside_name(place_of(pattern)[0])
        for words in nested.commands
        if words and _is_online(words)
        for pattern in _in_commands((words,), facts)
    )


def reachable_hosts(
    verdict: Verdict, mode: Mode, host_names: Sequence[str], rules: NetworkRules
) -> ReachableHosts | None:
    """The hosts of a command that may use the network; None: every host."""
    asks = verdict == "ask"
    shown = host_names if asks else ()
    asked = tuple(p for p in rules.asked if not _is_shown(p, shown))
    allowed = tuple(dict.fromkeys((*rules.allowed, *shown)))
    hosts = ReachableHosts(allowed, rules.denied, asked)
    allows_all = EVERY_HOST in rules.allowed or EVERY_HOST in shown
    if allows_all or (not asks and (mode == "bypass" or not rules.allowed)):
        return every_host_but(hosts)
    return hosts


def _is_shown(host: str, host_names: Sequence[str]) -> bool:
    """Whether the question shows a host that this ask rule matches."""
    rule = ReachableHosts((), (host,))
    return any(n == EVERY_HOST or rule.ban_reason(place_of(n)[0]) for n in host_names)


def hosts_text(hosts: ReachableHosts | None) -> str:
    """Text for a question: the hosts that the command can reach."""
    if hosts is None:
        return "every host"
    if EVERY_PUBLIC_HOST in hosts.allowed:
        return f"every public host but {', '.join((*hosts.denied, *hosts.asked))}"
    return ", ".join(hosts.allowed) or "no host, since it names none"


def rules_for(host_names: Sequence[str]) -> tuple[str, ...]:
    """Rules that let a command reach these hosts, with presets where they match.

    None for every host: that needs a choice of its own.
    """
    if EVERY_HOST in host_names:
        return ()
    whole, left = list[str](), list(host_names)
    for preset, hosts in HOST_PRESETS.items():
        if len(hosts) > 1 and set(hosts) <= set(left):
            whole.append(f"{NETWORK_RULE}({PRESET_PREFIX}{preset})")
            left = [pattern for pattern in left if pattern not in hosts]
    return (*whole, *(f"{NETWORK_RULE}({pattern})" for pattern in left))


def _patterns(rules: Sequence[Rule], verdict: Verdict) -> tuple[str, ...]:
    return expand_all(rule.pattern for rule in rules if rule.verdict == verdict)


def _is_online(words: Sequence[Word]) -> bool:
    name, values = _name_and_values(words)
    first = next((value for value in values[1:] if not _is_option(value)), "")
    wanted = _ONLINE_COMMANDS.get(name, ())
    return "" in wanted or first in wanted


def _name_and_values(words: Sequence[Word]) -> tuple[str, Sequence[str]]:
    """The program and its words; of `python -m pip`, those of pip."""
    name, values = name_of(tuple(words)), [word.value for word in words]
    if _PYTHON_NAME.fullmatch(name) and values[1:2] == ["-m"]:
        return "".join(values[2:3]), values[2:]
    return name, values


def _in_commands(commands: Sequence[tuple[Word, ...]], facts: Facts) -> Iterator[str]:
    # Each command is also there without its first options, whose values then look like URLs.
    spelled = [[word.value for word in words] for words in commands]
    stripped = ([*v[:1], *dropwhile(_is_option, v[1:])] for v in spelled)
    bare = [short for short, v in zip(stripped, spelled, strict=True) if short != v]
    for words in commands:
        if not words:
            continue
        name, values = _name_and_values(words)
        if preset := _REGISTRY_HOSTS.get(name):
            yield from HOST_PRESETS[preset]
        if name == "git":
            for url in facts.git_urls():
                yield from _hosts_in(url)
        short = () if values in bare else _urls_without_scheme(name, values)
        for value in (*values, *short):
            yield from _hosts_in(value)


def _is_option(text: str) -> bool:
    return text.startswith("-")


def _urls_without_scheme(name: str, values: Sequence[str]) -> Iterator[str]:
    """The URLs that a fetching program reads without a scheme, as it completes them."""
    if name not in _FLAGS_OF_FETCHERS:
        return
    letters, flags = _FLAGS_OF_FETCHERS[name]
    words = iter(values[1:])
    for word in words:
        option, _, url = word.partition("=")
        if word == "--url":
            url = next(words, "")
        elif not word.startswith("-"):
            url = word
        elif option != "--url":
            url = ""
            if word.startswith("--"):
                with_value = option == word != "--" and word[2:] not in flags.split()
            else:
                with_value = len(word[1:].lstrip(letters)) == 1
            if with_value:
                next(words, "")
        if url and "://" not in url:
            yield f"http://{url}"


def _hosts_in(text: str) -> Iterator[str]:
    for url in re.findall(_URL_PATTERN, text):
        try:
            place = web_address(re.sub(_USER_PATTERN, "//", url))
            port = "" if place.port in DEFAULT_PORTS else f":{place.port}"
            host = f"[{place.host}]" if ":" in place.host else place.host
            (pattern,) = expand_hosts(host + port)
        except ValueError:  # it contains a variable
            continue
        if pattern != EVERY_HOST and covers_place(pattern, place.host, place.port):
            yield pattern
