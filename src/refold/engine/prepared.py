"""Calls under way, each parsed and described once and carried to its end.

Where a call stands, the journal says, and nothing here has to outlive the process: what is
not held is made anew, so a call that is taken on after a crash needs nothing from here.
What can change meanwhile is looked at each time: where paths lead, the rules, the mode.
A verdict stands for as long as none of these has changed.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from refold.engine.judging import described, fingerprint, followed
from refold.permissions.decide import decide
from refold.permissions.facts import Decision, Facts, Touch
from refold.permissions.rules import Rule
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.rights import Mode

_MOST = 64  # calls: whoever asks what would happen never brings them to an end


class Prepared(Struct, frozen=True):
    """A call as its tool understands it; `said` is what it would do, no path followed yet."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, object]
    said: Touch


class Look(Struct, frozen=True):
    """What a call would do by now, and the fingerprint of that."""

    touch: Touch
    hash: str


class _Verdict(Struct, frozen=True):
    """`led` is where the paths led that were followed on the way to it."""

    touch: Touch
    mode: Mode
    rules: Sequence[Rule]
    facts: Facts
    led: Mapping[str, str]
    decision: Decision


class PreparedCalls:
    """Of one session. Hand it the call as the model made it, nothing masked."""

    def __init__(self) -> None:
        self._prepared: dict[str, Prepared] = {}
        self._looks: dict[str, Look] = {}
        self._verdicts: dict[str, _Verdict] = {}

    def of(self, call: ToolCall, tool: Tool) -> Prepared:
        """Raises `ToolFailed` where the arguments do not fit, or name no file."""
        found = self._prepared.get(call.id)
        if found is None or found.tool is not tool or found.call != call:
            self.drop(call.id)
            arguments = tool.parse(call.arguments)
            found = Prepared(call, tool, arguments, described(tool, arguments))
            self._prepared[call.id] = found
            if len(self._prepared) > _MOST:
                self.drop(next(iter(self._prepared)))
        return found

    def look(self, call: ToolCall, tool: Tool, facts: Facts) -> Look:
        """Where its paths lead now. Raises `ToolFailed` as `of` does."""
        touch = followed(self.of(call, tool).said, facts)
        last = self._looks.get(call.id)
        if last is None or last.touch != touch:
            last = self._looks[call.id] = Look(touch, fingerprint(call, touch))
        return last

    def decide(
        self, call_id: str, touch: Touch, mode: Mode, rules: Sequence[Rule], facts: Facts
    ) -> Decision:
        """`permissions.decide`: the same verdict as long as it rests on the same.

        It is pure but for the links it follows, and those are followed again.
        """
        last = self._verdicts.get(call_id)
        if (
            last is not None
            and (last.touch, last.mode, last.rules) == (touch, mode, rules)
            and last.facts == facts
            and all(facts.follow(path) == real for path, real in last.led.items())
        ):
            return last.decision
        led: dict[str, str] = {}

        def follow(path: str) -> str:
            led[path] = real = facts.follow(path)
            return real

        decision = decide(touch, mode, rules, replace(facts, follow=follow))
        self._verdicts[call_id] = _Verdict(touch, mode, rules, facts, led, decision)
        return decision

    def drop(self, call_id: str) -> None:
        """The call is over."""
        for held in (self._prepared, self._looks, self._verdicts):
            held.pop(call_id, None)
