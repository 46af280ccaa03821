"""Determines the hosts that a command may reach: those of `net(…)` rules and of its question.
Pure.

The question shows the hosts that the call names (`hosts`), those of URLs in the command line,
the registries of its programs and the remotes of git. Without any `net(…)` rule, a rule that
allows a command allows all hosts. `values.hosts` defines the patterns of hosts, and
`network.filter` applies the result to each connection.
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
# The presets of programs' registries. `git` has its own remotes.
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
# Programs whose words are URLs, possibly without a scheme, with their options that have no value:
# the letters of short options, then long ones. All other options are assumed to have a value.
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
# Programs, and the first words with which they are useless without a network; "" stands for every
# first word.
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
    """The `net(…)` rules, and the patterns of hosts in them by verdict."""

    allowed: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def every_host_but_denied(self) -> ReachableHosts | None:
        """Every public host except the denied hosts. None means every host: no host is
        denied.
        """
        return every_host_but(ReachableHosts(self.allowed, self.denied))

    def without_allow_rule(self, host_names: Sequence[str]) -> tuple[str, ...]:
        """Return the patterns in `host_names` that no allow rule covers."""
        if EVERY_HOST in self.allowed:
            return ()
        allowed_hosts = ReachableHosts(self.allowed)
        return tuple(
            n for n in host_names if not ReachableHosts((n,)).within(allowed_hosts).allowed
        )

    def decision_on_hosts(
        self, access: Access, host_names: Sequence[str], verdict: Verdict
    ) -> Decision | None:
        """Return the decision of the first rule with this verdict that matches one of the
        hosts, or None.

        A host of a registry counts only if the call names it, because a program may need only
        some hosts of a registry.
        """
        hosts = [
            place_of(name)[0]
            for name in host_names
            if name != EVERY_HOST and (name in access.hosts or not preset_of(name))
        ]
        for rule in self.rules:
            if rule.verdict != verdict:
                continue
            # As denied hosts, they match at every port, and with all their subdomains.
            rule_hosts = ReachableHosts(denied=expand_hosts(rule.pattern))
            if any(rule_hosts.ban_reason(host) for host in hosts):
                return decision_of(rule)
        return None


def network_rules(rules: Sequence[Rule]) -> NetworkRules:
    """Return the host patterns of the rules `net(…)`, by their verdict."""
    host_rules = tuple(rule for rule in rules if rule.tool == NETWORK_RULE)
    if not host_rules:
        return NetworkRules()
    return NetworkRules(
        allowed=_patterns(host_rules, "allow"),
        asked=_patterns(host_rules, "ask"),
        denied=_patterns(host_rules, "deny"),
        rules=host_rules,
    )


def hosts_of_command(
    access: Access, nested: NestedCommands, facts: Facts
) -> tuple[str, ...]:
    """Return patterns of the hosts that a command certainly needs, those of the call first.

    Return () if the call does not ask for a network.
    """
    if not access.network:
        return ()
    patterns = (*access.hosts, *_hosts_in_commands(nested.commands, facts))
    return tuple(dict.fromkeys(patterns))[:MAX_NAMED_HOSTS]


def needs_network(nested: NestedCommands, facts: Facts) -> bool:
    """Whether a program of the command is useless without a network and names a host outside.

    A host is outside unless its name can only belong to this machine or its local network.
    """
    return any(
        not is_inside_name(place_of(pattern)[0])
        for words in nested.commands
        if words and _is_online(words)
        for pattern in _hosts_in_commands((words,), facts)
    )


def reachable_hosts(
    verdict: Verdict, mode: Mode, host_names: Sequence[str], rules: NetworkRules
) -> ReachableHosts | None:
    """Return the hosts that a command with network access may reach; None means every host.

    If the verdict is "ask", the question shows `host_names`, so a yes allows them, too. A host
    of an ask rule is reachable only if the question shows it. If the user is not asked, and the
    mode is `bypass` or no allow rule names hosts, every public host that no rule denies is
    reachable.
    """
    asks_user = verdict == "ask"
    shown = host_names if asks_user else ()
    asked = tuple(p for p in rules.asked if not _is_shown(p, shown))
    allowed = tuple(dict.fromkeys((*rules.allowed, *shown)))
    hosts = ReachableHosts(allowed, rules.denied, asked)
    if EVERY_HOST in rules.allowed or EVERY_HOST in shown:
        return every_host_but(hosts)
    if not asks_user and (mode == "bypass" or not rules.allowed):
        return every_host_but(hosts)
    return hosts


def _is_shown(host: str, host_names: Sequence[str]) -> bool:
    """Whether the question shows a host that an ask rule for `host` matches.

    `host_names` are the hosts that the question shows.
    """
    # As a denied host, it matches at every port, and with all its subdomains.
    rule_host = ReachableHosts(denied=(host,))
    return any(
        name == EVERY_HOST or rule_host.ban_reason(place_of(name)[0]) for name in host_names
    )


def hosts_text(hosts: ReachableHosts | None) -> str:
    """Return a text for a question that names the hosts which a command can reach."""
    if hosts is None:
        return "every host"
    if EVERY_PUBLIC_HOST in hosts.allowed:
        return f"every public host but {', '.join((*hosts.denied, *hosts.asked))}"
    return ", ".join(hosts.allowed) or "no host, since it names none"


def rules_for(host_names: Sequence[str]) -> tuple[str, ...]:
    """Return `net(…)` rules that allow these hosts; a preset replaces the hosts that it
    contains.

    Return () if `host_names` include "every host", which the user must choose separately.
    """
    if EVERY_HOST in host_names:
        return ()
    preset_rules = list[str]()
    remaining = list(host_names)
    for preset, hosts in HOST_PRESETS.items():
        if len(hosts) > 1 and set(hosts) <= set(remaining):
            preset_rules.append(f"{NETWORK_RULE}({PRESET_PREFIX}{preset})")
            remaining = [pattern for pattern in remaining if pattern not in hosts]
    return (*preset_rules, *(f"{NETWORK_RULE}({pattern})" for pattern in remaining))


def _patterns(rules: Sequence[Rule], verdict: Verdict) -> tuple[str, ...]:
    return expand_all(rule.pattern for rule in rules if rule.verdict == verdict)


def _is_online(words: Sequence[Word]) -> bool:
    """Whether the table of programs says that the command is useless without a network."""
    name, values = _name_and_values(words)
    online_subcommands = _ONLINE_COMMANDS.get(name, ())
    if "" in online_subcommands:  # every use of the program
        return True
    subcommand = next((value for value in values[1:] if not _is_option(value)), None)
    return subcommand in online_subcommands


def _name_and_values(words: Sequence[Word]) -> tuple[str, Sequence[str]]:
    """Return the name of the program, and the words of the command from the program on.

    For `python -m pip install`, these are "pip" and the words from `pip` on.
    """
    name = name_of(tuple(words))
    values = [word.value for word in words]
    if _PYTHON_NAME.fullmatch(name) and values[1:2] == ["-m"]:
        module_and_arguments = values[2:]
        module = module_and_arguments[0] if module_and_arguments else ""
        return module, module_and_arguments
    return name, values


def _hosts_in_commands(commands: Sequence[tuple[Word, ...]], facts: Facts) -> Iterator[str]:
    """Yield the hosts of URLs, registries and git remotes that the commands need."""
    copies = _copies_without_options(commands)
    for words in commands:
        if not words:
            continue
        name, values = _name_and_values(words)
        if preset := _REGISTRY_HOSTS.get(name):
            yield from HOST_PRESETS[preset]
        if name == "git":
            for url in facts.git_urls():
                yield from _hosts_in(url)
        for value in values:
            yield from _hosts_in(value)
        if values not in copies:
            for url in _urls_without_scheme(name, values):
                yield from _hosts_in(url)


def _copies_without_options(commands: Sequence[tuple[Word, ...]]) -> Sequence[list[str]]:
    """Return the words of each command with options after its program, without these
    options.

    `commands` contains such a copy of each command with options. In a copy, the value of an
    option would look like a URL.
    """
    copies = list[list[str]]()
    for words in commands:
        values = [word.value for word in words]
        copy = [*values[:1], *dropwhile(_is_option, values[1:])]
        if copy != values:
            copies.append(copy)
    return copies


def _is_option(text: str) -> bool:
    return text.startswith("-")


def _urls_without_scheme(name: str, values: Sequence[str]) -> Iterator[str]:
    """Yield the arguments of curl or wget that are URLs without a scheme, with `http://` added.

    `name` is the program, and `values` are the words of the command.
    """
    if name not in _FLAGS_OF_FETCHERS:
        return
    short_flags, long_flags = _FLAGS_OF_FETCHERS[name]
    words = iter(values[1:])
    for word in words:
        url = ""
        if word == "--url":
            url = next(words, "")
        elif word.startswith("--url="):
            url = word.removeprefix("--url=")
        elif not word.startswith("-"):
            url = word
        elif _takes_next_word(word, short_flags, long_flags.split()):
            next(words, "")  # skips the value of the option
        if url and "://" not in url:
            yield f"http://{url}"


def _takes_next_word(option: str, short_flags: str, long_flags: Sequence[str]) -> bool:
    """Whether the word after `option` is its value.

    `short_flags` and `long_flags` are the options without a value.
    """
    if option.startswith("--"):
        return option != "--" and "=" not in option and option[2:] not in long_flags
    # The first letter with a value takes the rest of the word, or else the next word.
    letter_and_rest = option[1:].lstrip(short_flags)
    return len(letter_and_rest) == 1


def _hosts_in(text: str) -> Iterator[str]:
    """Yield the host of each URL in a text, as a pattern. Hosts with a variable are left out."""
    for url in re.findall(_URL_PATTERN, text):
        try:
            address = web_address(re.sub(_USER_PATTERN, "//", url))
            port = "" if address.port in DEFAULT_PORTS else f":{address.port}"
            is_ipv6 = ":" in address.host
            host = f"[{address.host}]" if is_ipv6 else address.host
            (pattern,) = expand_hosts(host + port)
        except ValueError:  # it contains a variable
            continue
        if pattern != EVERY_HOST and covers_place(pattern, address.host, address.port):
            yield pattern
