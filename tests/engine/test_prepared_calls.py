"""A call is parsed, described and fingerprinted once; what can change is checked again."""

from collections.abc import Mapping

from msgspec import Raw, Struct

from refold.engine.authorize import PreparedCalls
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Access, Facts
from refold.permissions.rules import parse
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect
from tests.engine.house import OPEN_HAND, run, world

LOOK = Access("bash", Effect.RUN, "cat notes")


class Counted(Struct, frozen=True):
    """Says in `made` that one was made."""

    text: str

    def __post_init__(self) -> None:
        made.append(self.text)


made: list[str] = []


def test_valid_arguments_are_converted_once() -> None:
    @tool(Effect.LOOK)
    async def send(one: Counted, other: Counted, more: str = "") -> Reply:
        """Send both."""
        return Reply("")

    made.clear()
    data = send.parse(b'{"other": {"text": "b"}, "one": {"text": "a"}}')

    assert sorted(made) == ["a", "b"]
    assert data == {"one": Counted("a"), "other": Counted("b")}


def test_call_is_parsed_and_described_once_in_its_lifetime() -> None:
    described = list[str]()

    def named(arguments: Mapping[str, object]) -> tuple[str, ...]:
        described.append("named")
        return ("/notes",)

    @tool(Effect.CHANGE, paths=named)
    async def note(what: Counted) -> Reply:
        """Write it down."""
        return Reply(f"{what.text} noted")

    made.clear()
    rules = (*OPEN_HAND, parse("note", "allow"))
    provider = ScriptedProvider([("note", '{"what": {"text": "milk"}}')], "Done.")
    view = run(MemoryStore(), world(provider, tools=(note,), rules=rules), "Note milk.")

    assert view.turn.outcome == "answered"
    assert made == ["milk"]
    assert described == ["named"]


def test_another_call_with_the_same_id_is_parsed_again() -> None:
    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Say what the weather is."""
        return Reply("")

    def call(city: str) -> ToolCall:
        return ToolCall("call-1", "weather", Raw(f'{{"city": "{city}"}}'.encode()))

    calls = PreparedCalls()

    assert calls.prepare(call("Oslo"), weather).arguments == {"city": "Oslo"}
    assert calls.prepare(call("Rome"), weather).arguments == {"city": "Rome"}


def test_cached_verdict_is_reused_while_its_inputs_are_unchanged() -> None:
    calls, facts = PreparedCalls(), Facts(roots=("/w",))
    first = calls.decide("call-1", LOOK, "default", (), facts)

    assert calls.decide("call-1", LOOK, "default", (), facts) is first
    assert calls.decide("call-2", LOOK, "default", (), facts) is not first


def test_cached_verdict_expires_when_a_followed_link_leads_elsewhere() -> None:
    links = {"/w/notes": "/w/notes"}
    calls = PreparedCalls()
    facts = Facts(roots=("/w",), follow=lambda path: links.get(path, path))
    before = calls.decide("call-1", LOOK, "default", (), facts)
    links["/w/notes"] = "/etc/shadow"

    after = calls.decide("call-1", LOOK, "default", (), facts)

    assert (before.verdict, after.verdict) == ("allow", "ask")


def test_cached_verdict_expires_when_the_mode_or_a_rule_changes() -> None:
    calls, facts = PreparedCalls(), Facts(roots=("/w",))
    no = (parse("bash(cat:*)", "deny"),)

    verdicts = [
        calls.decide("call-1", LOOK, mode, rules, facts).verdict
        for mode, rules in (("default", ()), ("rules-only", ()), ("default", no))
    ]

    assert verdicts == ["allow", "ask", "deny"]
