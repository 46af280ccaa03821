"""Rules of `web_fetch` name hosts, and private hosts need a rule that names them."""

from typing import get_args

import pytest

from refold.errors import BadInput
from refold.permissions.decide import decide
from refold.permissions.facts import Access
from refold.permissions.rule_offers import offers
from refold.permissions.rules import check_examples, parse
from refold.values.modes import Mode
from refold.values.tools import Effect
from tests.permissions.places import make_facts, rules

FACTS = make_facts()


def verdict(
    url: str,
    *,
    allow: str = "",
    ask: str = "",
    deny: str = "",
    mode: Mode = "default",
    private: bool = False,
) -> str:
    rule_set = rules(
        allow=[allow] if allow else [],
        ask=[ask] if ask else [],
        deny=[deny] if deny else [],
    )
    access = Access("web_fetch", Effect.NET, url, private=private)
    return decide(access, mode, rule_set, FACTS).verdict


@pytest.mark.parametrize(
    ("rule", "url", "expected"),
    [
        ("web_fetch(domain:example.org)", "https://example.org/a", "allow"),
        ("web_fetch(domain:example.org)", "http://EXAMPLE.org:8080", "allow"),
        ("web_fetch(domain:Example.org)", "https://example.org./", "allow"),
        ("web_fetch(domain:example.org)", "https://www.example.org/", "ask"),
        ("web_fetch(domain:example.org)", "https://example.org.evil.example/", "ask"),
        ("web_fetch(domain:example.org)", "https://example.org@evil.example/", "ask"),
        ("web_fetch(domain:example.org)", "https://evil.example/#example.org", "ask"),
        ("web_fetch(domain:example.org)", "https://evil.example\\@example.org/", "ask"),
        ("web_fetch(domain:*.example.org)", "https://www.example.org/", "allow"),
        ("web_fetch(domain:*.example.org)", "https://example.org/", "ask"),
        ("web_fetch(https://example.org/docs/*)", "https://example.org/docs/a", "allow"),
        ("web_fetch(https://example.org/docs/*)", "https://example.org/docs/../x", "ask"),
        (
            "web_fetch(https://example.org/docs/*)",
            "https://example.org/docs/%2e%2E/x",
            "ask",
        ),
        ("web_fetch", "https://any.example/", "allow"),
        ("WebFetch(domain:example.org)", "https://example.org/", "allow"),
        ("web_search(domain:example.org)", "https://example.org/", "ask"),
    ],
)
def test_an_allow_rule_covers_exactly_its_host(rule: str, url: str, expected: str) -> None:
    assert verdict(url, allow=rule) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org/", "deny"),
        ("https://a.b.example.org/", "deny"),
        ("https://EXAMPLE.ORG./", "deny"),
        ("https://notexample.org/", "allow"),
        ("no address", "deny"),  # it may be any
    ],
)
def test_a_deny_rule_for_a_host_covers_its_subdomains(url: str, expected: str) -> None:
    assert verdict(url, deny="web_fetch(domain:example.org)", mode="bypass") == expected


def test_a_deny_rule_for_a_url_path_applies_to_paths_with_dots() -> None:
    rule = "web_fetch(https://example.org/admin*)"

    for path in ("admin", "ADMIN", "x/../admin", "./admin/a", "x/%2e%2e/admin"):
        assert verdict(f"https://example.org/{path}", deny=rule, mode="bypass") == "deny"
    assert verdict("https://example.org/a", deny=rule, mode="bypass") == "allow"


PRIVATE = ("http://localhost:3000/", "http://127.0.0.1/", "http://[::1]/", "http://10.0.0.1/",
           "http://169.254.169.254/latest/meta-data/", "http://[::ffff:10.0.0.1]/")  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
@pytest.mark.parametrize("mode", get_args(Mode))
def test_private_addresses_are_refused_in_every_mode(url: str, mode: Mode) -> None:
    assert verdict(url, mode=mode) == "deny"
    assert verdict(url, mode=mode, allow="web_fetch") == "deny"
    assert verdict(url, mode=mode, allow="web_fetch(domain:*)") == "deny"
    assert verdict(url, mode=mode, allow="web_fetch(domain:?*)") == "deny"
    assert verdict(url, mode=mode, allow="web_fetch(domain:[!x]ocalhost)") == "deny"


def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    url = "https://intranet.example/"

    assert verdict(url, private=True, mode="bypass") == "deny"
    assert verdict(url, private=True, allow="web_fetch(domain:*.example)") == "deny"
    assert (
        verdict(url, private=True, allow="web_fetch(https://intranet.example/*)") == "deny"
    )
    assert verdict(url, private=True, allow="web_fetch(domain:intranet.example)") == "deny"


def test_a_private_host_rule_covers_its_name_at_any_address() -> None:
    url, rule = "https://intranet.example/", "web_fetch(private:intranet.example)"

    assert verdict(url, private=True, allow=rule) == "allow"
    assert verdict(url, private=False, allow=rule) == "allow"
    assert verdict("https://x.intranet.example/", private=True, allow=rule) == "deny"
    assert (
        verdict(url, private=True, allow=rule, deny="web_fetch(domain:example)") == "deny"
    )


@pytest.mark.parametrize("host", ["*", "*.example", "intranet?.example", "[a]b.example"])
def test_a_rule_for_private_hosts_names_one_host(host: str) -> None:
    with pytest.raises(BadInput, match="write one rule for each host"):
        parse(f"web_fetch(private:{host})", "allow")


def test_an_allow_rule_for_localhost_permits_no_other_private_host() -> None:
    rule = "web_fetch(domain:localhost)"

    assert verdict("http://localhost:3000/a", allow=rule) == "allow"
    assert verdict("http://127.0.0.1:3000/a", allow=rule) == "deny"
    assert verdict("http://localhost/", allow=rule, ask="web_fetch") == "ask"
    assert verdict("http://localhost/", allow=rule, deny="web_fetch") == "deny"


def test_the_offered_web_fetch_rule_names_the_host() -> None:
    access = Access("web_fetch", Effect.NET, "https://Docs.example.org/a?b=c*")

    assert offers(access, FACTS) == ("web_fetch(domain:docs.example.org)",)


def test_the_examples_of_a_web_fetch_rule_are_urls() -> None:
    good = ("https://example.org/a", "https://example.org/")
    text = "web_fetch(domain:example.org)"

    assert check_examples(parse(text, "allow", match=good)).match == good
    with pytest.raises(BadInput):
        check_examples(parse(text, "allow", match=["https://www.example.org/"]))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/admin/a", "https://example.org/%61dmin/a", "https://example.org//admin/a",
        "https://example.org/x/..//%61dmin/a",
    ],
)  # fmt: skip
def test_a_deny_rule_for_a_url_path_applies_in_every_spelling(url: str) -> None:
    rule = "web_fetch(https://example.org/admin*)"

    assert verdict(url, deny=rule, mode="bypass") == "deny"
    assert verdict("https://example.org/news", deny=rule, mode="bypass") == "allow"


@pytest.mark.parametrize(
    "host", ["bücher.example", "a.BÜCHER.example", "xn--bcher-kva.example"]
)
def test_a_deny_rule_may_name_a_host_with_non_ascii_letters(host: str) -> None:
    denied = verdict(
        f"https://{host}/", deny="web_fetch(domain:bücher.example)", mode="bypass"
    )

    assert denied == "deny"
