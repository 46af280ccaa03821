"""Addresses by which a page, or a model that it has misled, would reach the user's own network."""

import pytest

from refold.permissions.decide import decide
from refold.permissions.facts import Access
from refold.permissions.rules import parse
from refold.values.tools import Effect
from tests.permissions.places import make_facts

# They are refused before any name is resolved: behind a proxy, they are not resolved here.
INSIDE = (
    "http://metadata.google.internal/computeMetadata/v1/", "http://metadata/latest",
    "http://instance-data.ec2.internal/latest/meta-data", "http://METADATA.Google.Internal./",
    "http://printer.local/", "http://router.home.arpa/", "http://wiki/", "https://intranet:8443/",
    "http://localhost/", "http://localhost./", "http://a.localhost/", "http://127.0.0.1/",
    "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::a9fe:a9fe]/",
    "http://169.254.169.254/latest", "http://[fd00:ec2::254]/", "http://100.100.100.200/",
    "http://2130706433/", "http://0x7f000001/", "http://017700000001/", "http://0/",
)  # fmt: skip


@pytest.mark.parametrize("rule", ["", "web_fetch", "web_fetch(domain:*)"])
@pytest.mark.parametrize("url", INSIDE)
def test_web_fetch_denies_private_addresses_without_a_rule_for_them(
    url: str, rule: str
) -> None:
    rules = [parse(rule, "allow")] if rule else []

    decision = decide(Access("web_fetch", Effect.NET, url), "bypass", rules, make_facts())

    assert decision.verdict == "deny"


def test_an_allow_rule_for_a_private_host_name_permits_web_fetch() -> None:
    rules = [parse("web_fetch(domain:wiki.internal)", "allow")]

    decision = decide(
        Access("web_fetch", Effect.NET, "http://wiki.internal/a"),
        "default",
        rules,
        make_facts(),
    )

    assert decision.verdict == "allow"
