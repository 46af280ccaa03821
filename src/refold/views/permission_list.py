"""The rules of a session and its recent refusals as a list to pick from. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from refold.values.messages import ToolCall
from refold.values.modes import Mode, Verdict
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, Stepper
from refold.views.refusals import Refusal
from refold.views.styled import Line, Style
from refold.views.wrap import cells, cut

ADD_ID = "add"
RULE_STYLES: Mapping[Verdict, Style] = {"deny": "bad", "ask": "warn", "allow": "good"}
_ALL, _REFUSED = "all", "refused"
_GROUPS = (_ALL, "allow", "ask", "deny", _REFUSED)
_KIND_CELLS = 8
_MIN_ABOUT_CELLS = 12


class ShownRule(Protocol):
    """A rule as it is listed; `source` is where it comes from."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def text(self) -> str: ...
    @property
    def source(self) -> str: ...


def permission_picker(
    mode: Mode,
    rules: Sequence[ShownRule],
    refusals: Sequence[Refusal],
    label: Callable[[ToolCall], str],
    notes: Sequence[Line] = (),
) -> Picker:
    """Return the list of rules, to pick from.

    The ids are `ADD_ID`, those of `rule_id`, and `refused` with a call's id.
    """
    items = [PickerItem(ADD_ID, lambda width: (("accent", "+ add a rule"),), "add a rule")]
    items += [
        _item(
            rule_id(rule), rule.verdict, RULE_STYLES[rule.verdict], rule.text, rule.source
        )
        for rule in rules
    ]
    for refusal in refusals:
        reason = escape_to_one_line(refusal.reason)
        about = f"by you{f': {reason}' if reason else ''}" if refusal.by_user else reason
        items.append(
            _item(
                f"{_REFUSED} {refusal.call.id}",
                _REFUSED,
                "warn",
                label(refusal.call),
                about,
            )
        )
    return Picker(
        f"Permissions, mode {mode}", tuple(items), sample=tuple(notes),
        dial=Stepper("show", _GROUPS),
    )  # fmt: skip


def rule_id(rule: ShownRule) -> str:
    """An id that is the same when the list is made again."""
    return f"{rule.verdict} {rule.text} {rule.source}"


def refused_call(id_: str) -> str:
    """The id of the call of a refusal in the list; "" for other ids."""
    return id_.removeprefix(f"{_REFUSED} ") if id_.startswith(f"{_REFUSED} ") else ""


def _item(id_: str, kind: str, style: Style, text: str, about: str) -> PickerItem:
    text, about = escape_to_one_line(text), escape_to_one_line(about)

    def row(width: int) -> Line:
        shown = cut(text, max(width - _KIND_CELLS, 1))
        left = width - _KIND_CELLS - cells(shown) - 2
        tail = f"  {cut(about, left)}" if left >= _MIN_ABOUT_CELLS else ""
        return (style, f"{kind:<{_KIND_CELLS}}"), ("plain", shown), ("dim", tail)

    return PickerItem(id_, row, f"{kind} {text} {about}", groups=(_ALL, kind))
