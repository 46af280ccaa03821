"""A call is parsed, described and fingerprinted once; what can change is checked again."""

from collections.abc import Mapping

from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.engine.authorize import PreparedCalls, fingerprint
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Access, Facts
from refold.permissions.rules import parse
from refold.permissions.shell.named_files import targets
from refold.testing.providers import ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect
from tests.engine.house import OPEN_HAND, run, world

LOOK = Access("bash", Effect.RUN, "cat notes")


class Counted(Struct, frozen=True):
    """Adds itself to `made` when it is created."""

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
    arguments = send.parse(b'{"other": {"text": "b"}, "one": {"text": "a"}}')

    assert sorted(made) == ["a", "b"]
    assert arguments == {"one": Counted("a"), "other": Counted("b")}


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


def test_an_approval_holds_in_the_same_directory_under_another_path_and_in_no_other() -> (
    None
):
    def hash_on(root: str, command: str, movable: str) -> str:
        call = ToolCall("1", "bash", Raw(b'{"command": "it"}'))
        access = Access("bash", Effect.RUN, command, cwd=f"{root}/sub", command=True)
        paths = targets(command, access.cwd, Facts(roots=(root,)))
        return fingerprint(call, replace(access, subject=""), paths, movable)

    first, second = "/m/worker-0/work", "/a/worker-1/work"
    for command in ("rm x ../y", "cp x /srv/z > out"):
        moved = hash_on(first, command, first)
        assert moved == hash_on(second, command, second)
        assert moved != hash_on(second, command, "")
        assert hash_on(first, command, "") != hash_on(second, command, "")
    # The path is in the directory of the first worker only.
    assert hash_on(first, f"rm {first}/x", first) != hash_on(
        second, f"rm {first}/x", second
    )
