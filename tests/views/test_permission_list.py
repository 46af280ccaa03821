"""The list of `/permissions`: rules, and calls that were refused lately."""

from msgspec import Raw

from refold.client.permissions import PlacedRule
from refold.journal.events.kinds import Answered, Ended, Entry, Event, Judged, ModelAnswered
from refold.values.messages import Message, ToolCall
from refold.values.usage import Usage
from refold.views.permission_list import permission_picker, refused_call, rule_id
from refold.views.picker import turn_dial, with_query
from refold.views.recent_refusals import Refusal, recent_refusals
from refold.views.styled import plain_text


def call(id_: str, command: str) -> ToolCall:
    return ToolCall(id_, "bash", Raw(f'{{"command":"{command}"}}'.encode()))


def entries(*events: Event) -> list[Entry]:
    return [Entry(n, event, at=float(n)) for n, event in enumerate(events, 1)]


CALLS = (call("1", "a"), call("2", "b"), call("3", "a"), call("4", "c"))
RULES = (
    PlacedRule("deny", "bash(rm *)", "user config.toml", "user"),
    PlacedRule("allow", "bash(\x1b[2J)", "this session", "session"),
)


def test_refusals_by_rules_and_by_the_user_are_listed_once_newest_first() -> None:
    answer = ModelAnswered(Message("assistant", CALLS), Usage(), model="a/m")

    refusals = recent_refusals(
        entries(
            answer, Judged("1", "deny", reason="a rule"), Ended("1", "refused", "x"),
            Judged("2", "ask"), Answered("2", False, "not now"), Ended("2", "refused", "x"),
            Judged("3", "deny", reason="a rule"), Ended("3", "refused", "x"),
            Judged("4", "allow"), Ended("4", "done", "x"),
        )
    )  # fmt: skip

    assert refusals == [
        Refusal(CALLS[2], "a rule", by_user=False), Refusal(CALLS[1], "not now", by_user=True),
    ]  # fmt: skip


def test_the_permissions_list_is_filtered_by_kind_and_text_and_escapes_controls() -> None:
    refusals = [Refusal(CALLS[1], "not now", by_user=True)]
    picker = permission_picker("default", RULES, refusals, lambda call: call.name)

    rows = ["".join(plain_text([item.row(80)]).split()) for item in picker.items]
    denied = turn_dial(picker, 3)

    assert rows == [
        "+addarule", "denybash(rm*)userconfig.toml", "allowbash(\\x1b[2J)thissession",
        "refusedbashbyyou:notnow",
    ]  # fmt: skip
    assert [item.id for item in denied.items] == ["add", rule_id(RULES[0])]
    assert refused_call(with_query(picker, "not now").items[0].id) == "2"
