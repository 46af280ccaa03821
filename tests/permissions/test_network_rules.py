"""Rules for hosts, and which hosts a command reaches by them, by its question and without either."""

import pytest
from msgspec.structs import replace

from refold.errors import BadInput
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Decision, Facts
from refold.permissions.rule_offers import with_hosts
from refold.permissions.rules import Rule, check_examples, parse
from refold.values.hosts import HOST_PRESETS, ReachableHosts
from refold.values.modes import Mode
from refold.values.tools import Effect
from tests.permissions.places import make_facts

PYPI = HOST_PRESETS["pypi"]


def facts_with_host_filter(**known: object) -> Facts:
    return replace(make_facts(), filters_hosts=True, **known)


def fetch(command: str, *hosts: str) -> Access:
    return Access("bash", Effect.RUN, command, network=True, hosts=hosts)


def rules(*texts: str) -> list[Rule]:
    """`deny net(x)`; without a verdict they allow."""
    parsed = list[Rule]()
    for item in texts:
        verdict, _, text = (
            item.rpartition(" ") if item.split()[0] in ("deny", "ask") else ("", "", item)
        )
        parsed.append(
            parse(text, "deny" if verdict == "deny" else "ask" if verdict else "allow")
        )
    return parsed


def judge(
    access: Access, *texts: str, mode: Mode = "default", facts: Facts | None = None
) -> Decision:
    return decide(access, mode, rules(*texts), facts or facts_with_host_filter())


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("curl https://api.example.org/x", ("api.example.org",)),
        ("curl -o x http://files.example.org:8080/x https://API.example.org", ("files.example.org:8080", "api.example.org")),
        ("pip install x", PYPI),
        ("cd a && python3 -m pip install x", PYPI),
        ("npm ci", HOST_PRESETS["npm"]),
        ("cargo fetch", HOST_PRESETS["crates"]),
        ("bash -c 'curl https://api.example.org/x'", ("api.example.org",)),
        ("git fetch", ("git.example.org",)),
        ("curl \"https://$HOST/x\"", ()),
        ("make deploy", ()),
        ("curl http://localhost:3000/", ("localhost:3000",)),
        ("curl example.org", ("example.org",)),
        ("curl -fsSo x.html -H a:b API.example.org:8443/x -m3 localhost:3000", ("api.example.org:8443", "localhost:3000")),
        ("curl --max-time 3 --silent --url a.example --output x.html --url=b.example", ("a.example", "b.example")),
        ("wget -q -O- a.example/x.html", ("a.example",)),
        ("sudo curl me:s3cret@a.example", ("a.example",)),
        ("curl \"$HOST/x\" $(cat hosts)", ()),
        ("cat a.example", ()),
    ],
)  # fmt: skip
def test_network_question_names_the_hosts_found_in_the_command(
    command: str, hosts: tuple[str, ...]
) -> None:
    facts = facts_with_host_filter(
        git_urls=lambda: ["https://git.example.org/a/b.git", "git@ssh.example:a/b"]
    )

    decision = judge(fetch(command), facts=facts)

    assert decision.verdict == "ask"
    assert decision.confines.hosts == ReachableHosts(hosts)
    words = ", ".join(hosts) or "no host, since it names none"
    assert decision.reason.endswith(f"; it would reach {words}")


def test_network_question_names_the_hosts_given_in_the_call() -> None:
    decision = judge(fetch("make deploy", "api.example.org", "*.cdn.example:8443"))

    assert decision.confines.hosts == ReachableHosts(
        ("api.example.org", "*.cdn.example:8443")
    )


def test_an_allowed_command_without_a_scheme_asks_for_a_host_that_no_rule_names() -> None:
    allowed = ("bash(curl *)", "net(a.example)")

    assert judge(fetch("curl a.example"), *allowed).verdict == "allow"
    decision = judge(fetch("curl -s b.example/x"), *allowed)

    assert decision.verdict == "ask"
    assert decision.reason.startswith("no rule lets a command reach b.example")
    denied = judge(fetch("curl x.bad.example"), "deny net(bad.example)", mode="bypass")
    assert denied.verdict == "deny"


def test_a_host_refused_by_an_ask_rule_is_reported_as_asked_and_not_denied() -> None:
    hosts = judge(
        fetch("make deploy"), "ask net(pay.example)", "bash", "net(*.example)"
    ).confines.hosts

    assert hosts is not None
    assert hosts.refusal("pay.example", 443) == "asked"
    narrow = hosts.within(ReachableHosts(("a.example",), ("pay.example",)))
    assert narrow.refusal("pay.example", 443) == "denied"
    assert hosts.within(None).refusal("pay.example", 443) == "asked"


def test_a_call_can_ask_for_every_host() -> None:
    decision = judge(fetch("make deploy", "all"))

    assert decision.verdict == "ask"
    assert decision.confines.hosts is None
    assert decision.reason.endswith("; it would reach every host")


def test_an_allowed_command_reaches_every_host_until_a_net_rule_exists() -> None:
    install = fetch("pip install x")
    before = judge(install, "bash(pip install *)")
    after = judge(install, "bash(pip install *)", "net(preset:pypi)")
    other = judge(
        fetch("pip install x", "other.example"), "bash(pip install *)", "net(preset:pypi)"
    )

    assert (before.verdict, before.confines.hosts) == ("allow", None)
    assert (after.verdict, after.confines.hosts) == ("allow", ReachableHosts(PYPI))
    assert other.verdict == "ask"
    assert other.reason.startswith("no rule lets a command reach other.example")


def test_net_all_means_every_host() -> None:
    decision = judge(fetch("make deploy"), "bash(make *)", "net(all)", "net(a.example)")

    assert (decision.verdict, decision.confines.hosts) == ("allow", None)


def test_mode_sandbox_allows_a_command_that_reaches_only_hosts_of_rules() -> None:
    install = fetch("pip install x")

    assert judge(install, mode="sandbox").verdict == "ask"
    decision = judge(install, "net(preset:pypi)", mode="sandbox")
    assert (decision.verdict, decision.confines.hosts) == ("allow", ReachableHosts(PYPI))
    assert decision.confines.narrow
    assert (
        judge(
            fetch("pip install x", "a.example"), "net(preset:pypi)", mode="sandbox"
        ).verdict
        == "ask"
    )


@pytest.mark.parametrize("mode", ["default", "bypass", "sandbox"])
def test_a_denied_host_is_refused_in_every_mode(mode: Mode) -> None:
    deny = "deny net(bad.example)"
    for call in (fetch("curl https://x.bad.example/"), fetch("make", "bad.example:8080")):
        decision = judge(call, deny, "bash", "net(all)", mode=mode)
        assert (decision.verdict, decision.rule) == ("deny", "net(bad.example)")

    unnamed = judge(fetch("make deploy"), deny, "bash(make *)", mode=mode)
    assert unnamed.confines.hosts is not None
    assert unnamed.confines.hosts.refusal("bad.example", 443) == "denied"


def test_a_command_that_names_a_host_of_an_ask_rule_asks_and_other_commands_cannot_reach_it() -> (
    None
):
    ask = "ask net(pay.example)"

    decision = judge(fetch("curl https://pay.example/"), ask, "bash", "net(all)")
    unnamed = judge(fetch("make deploy"), ask, "bash", "net(*.example)")

    assert decision.verdict == "ask"
    assert unnamed.verdict == "allow"
    assert unnamed.confines.hosts is not None
    assert unnamed.confines.hosts.refusal("pay.example", 443)


def test_without_a_host_filter_a_question_names_no_hosts() -> None:
    decision = judge(fetch("curl https://api.example.org/"), facts=make_facts())

    assert decision.confines.hosts is None
    assert "it would reach" not in decision.reason


@pytest.mark.parametrize(
    "text",
    ["net", "net(*)", "net(a/b)", "net(*.*.x)", "net(user@host)", "net(preset:nothing)",
     "net(private:*.corp)", "net(host:0)", "net(https://x.example)"],
)  # fmt: skip
def test_a_network_rule_that_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="net"):
        parse(text, "allow")


def test_the_examples_of_a_network_rule_are_checked() -> None:
    match = ("a.example.org", "b.example.org:80")
    check_examples(
        parse(
            "net(*.example.org)", "allow", match=match, not_match=("example.org", "x.org")
        )
    )

    with pytest.raises(BadInput, match="does not cover"):
        check_examples(parse("net(*.example.org)", "allow", match=("example.org",)))


def test_offered_rules_include_net_rules_for_the_hosts() -> None:
    install = fetch("pip install x", "other.example")
    offered = with_hosts(("bash(pip install *)",), install, facts_with_host_filter())

    assert offered == ("bash(pip install *)", "net(preset:pypi)", "net(other.example)")
    assert judge(install, *offered).verdict == "allow"
    assert with_hosts(
        ("bash(make *)",), fetch("make", "all"), facts_with_host_filter()
    ) == ("bash(make *)",)


def test_a_private_host_of_a_rule_is_reached_beside_net_all() -> None:
    texts = ("bash", "net(all)", "net(private:wiki.example)", "deny net(bad.example)")

    hosts = judge(fetch("make deploy"), *texts).confines.hosts

    assert hosts is not None
    assert hosts.permits_private("wiki.example", 443)
    assert not hosts.permits_private("other.example", 443)
    assert hosts.refusal("bad.example", 443) == "denied"


@pytest.mark.parametrize("wide", ["net(all)", "bash(make *)"])
def test_an_ask_rule_for_a_host_applies_where_every_host_is_allowed(wide: str) -> None:
    decision = judge(fetch("make deploy"), "ask net(pay.example)", "bash(make *)", wide)

    assert decision.verdict == "allow"
    assert decision.confines.hosts is not None
    assert decision.confines.hosts.refusal("pay.example", 443)
    assert not decision.confines.hosts.refusal("other.example", 443)


@pytest.mark.parametrize(
    ("rule", "url"),
    [("net(*.pay.example)", "https://api.pay.example/"), ("net(pay.example)", "https://api.pay.example/"),
     ("net(pay.example)", "https://pay.example:8443/")],
)  # fmt: skip
def test_an_approved_command_reaches_the_host_of_the_ask_rule(rule: str, url: str) -> None:
    decision = judge(fetch(f"curl {url}"), f"ask {rule}", "net(a.example)")

    assert decision.verdict == "ask"
    assert decision.confines.hosts is not None
    host, _, port = url.removeprefix("https://").rstrip("/").partition(":")
    assert not decision.confines.hosts.refusal(host, int(port or 443))


@pytest.mark.parametrize("command", ["curl http://all/", "git fetch"])
def test_a_url_with_the_host_name_all_does_not_ask_for_every_host(command: str) -> None:
    facts = facts_with_host_filter(git_urls=lambda: ["http://all/a.git"])

    assert judge(fetch(command), facts=facts).confines.hosts is not None


def test_a_url_with_a_password_names_its_host_and_not_the_password() -> None:
    facts = facts_with_host_filter(
        git_urls=lambda: ["https://oauth2:s3cret@git.example.org/a.git"]
    )

    decision = judge(fetch("git fetch"), facts=facts)

    assert decision.confines.hosts == ReachableHosts(("git.example.org",))
    assert "s3cret" not in decision.reason


def test_a_denied_host_stays_denied_where_a_setting_allows_every_host() -> None:
    """`sandbox.network` gives the network to a command that did not ask for it."""
    access = Access("bash", Effect.RUN, "make deploy")

    decision = judge(access, "deny net(bad.example)", "bash(make *)")

    assert decision.confines.hosts is not None
    assert decision.confines.hosts.ban_reason("bad.example")
    assert judge(access, "bash(make *)").confines.hosts is None


@pytest.mark.parametrize(
    ("command", "host"),
    [
        ("git push origin main", "git.example.org"),
        ("git add -A && git commit -m x && git push", "git.example.org"),
        ("git clone https://api.example.org/x.git", "api.example.org"),
        ("curl -s https://api.example.org/x | head", "api.example.org"),
        ("pip install x", "pypi.org"),
        (
            "source .venv/bin/activate && python -m pip install -r requirements.txt",
            "pypi.org",
        ),
        ("npm ci && npm test", "registry.npmjs.org"),
    ],
)
def test_a_command_that_needs_the_network_is_asked_once_with_its_hosts(
    command: str, host: str
) -> None:
    facts = facts_with_host_filter(git_urls=lambda: ("https://git.example.org/x.git",))
    access = Access("bash", Effect.RUN, command)

    decision = judge(access, facts=facts)

    assert (decision.verdict, decision.confines.network) == ("ask", True)
    assert host in decision.reason
    assert host in (decision.confines.hosts or ReachableHosts()).allowed


@pytest.mark.parametrize(
    "command",
    [
        "git push origin main",  # its remotes are directories, or reached by ssh
        "git commit -m 'pip install x'", "rm curl https://api.example.org", "npm test",
        "python -m http.server & curl -s http://localhost:8000", "curl http://127.0.0.1:3000/x",
        "pip --version; rm x", "curl \"https://$HOST/x\"", "make deploy",
    ],
)  # fmt: skip
def test_a_question_does_not_offer_a_network_that_no_known_host_needs(command: str) -> None:
    decision = judge(Access("bash", Effect.RUN, command))

    assert (decision.verdict, decision.confines.network) == ("ask", False)


def test_a_command_known_to_need_the_network_keeps_its_verdict() -> None:
    access = Access("bash", Effect.RUN, "pip install x")

    assert judge(access, mode="sandbox").confines.network is False
    assert judge(access, mode="sandbox").verdict == "allow"
    assert judge(access, mode="plan").verdict == "deny"
    assert judge(access, "bash").confines.network is False
    assert judge(access, "deny net(pypi.org)").verdict == "ask"
    assert judge(access, "deny bash").verdict == "deny"
    assert (
        judge(
            access, facts=replace(facts_with_host_filter(), filters_hosts=False)
        ).confines.network
        is False
    )
    covered = judge(access, "bash", "net(preset:pypi)")
    assert (covered.verdict, covered.confines.hosts) == ("allow", ReachableHosts(PYPI))
