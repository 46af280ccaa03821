"""A list to choose from: the permission rules of a session, and its recent refusals. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from refold.values.messages import ToolCall
from refold.values.modes import Mode, Verdict
from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, Stepper
from refold.views.recent_refusals import Refusal
from refold.views.styled import Line, Style
from refold.views.wrap import cells, cut

ADD_ID = "add"
RULE_STYLES: Mapping[Verdict, Style] = {"deny": "bad", "ask": "warn", "allow": "good"}
_ALL, _REFUSED = "all", "refused"
_GROUPS = (_ALL, "allow", "ask", "deny", _REFUSED)
_KIND_CELLS = 8
_MIN_ABOUT_CELLS = 12


class ShownRule(Protocol):
    """A permission rule that the list shows. `source` is the file or the flag that sets it."""

    @property
    def verdict(self) -> Verdict: ...
    @property
    def text(self) -> str:
        """The rule without its verdict."""
        ...

    @property
    def source(self) -> str:
        """The file or the flag that sets the rule."""
        ...


def permission_picker(
    mode: Mode,
    rules: Sequence[ShownRule],
    refusals: Sequence[Refusal],
    label: Callable[[ToolCall], str],
    notes: Sequence[Line] = (),
) -> Picker:
    """Return the list of rules and of refused calls, with `notes` below it.

    The id of the first item, which adds a rule, is `ADD_ID`. `rule_id` returns the id of a
    rule's item. The id of a refused call's item is "refused" and the id of the call.
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
        about = reason
        if refusal.by_user:
            about = f"by you: {reason}" if reason else "by you"
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
    """Return the id of a rule's item. It is the same each time that the list is made."""
    return f"{rule.verdict} {rule.text} {rule.source}"


def refused_call(id_: str) -> str:
    """Return the id of the call if `id_` belongs to a refused call's item; otherwise ""."""
    prefix = f"{_REFUSED} "
    return id_.removeprefix(prefix) if id_.startswith(prefix) else ""


def _item(id_: str, kind: str, style: Style, text: str, about: str) -> PickerItem:
    """Return an item of the list, whose row shows its kind, its text and what it is about."""
    text, about = escape_to_one_line(text), escape_to_one_line(about)

    def row(width: int) -> Line:
        """Return the row of an item. `about` is left out if too little width remains."""
        shown = cut(text, max(width - _KIND_CELLS, 1))
        left = width - _KIND_CELLS - cells(shown) - 2
        tail = f"  {cut(about, left)}" if left >= _MIN_ABOUT_CELLS else ""
        return (style, f"{kind:<{_KIND_CELLS}}"), ("plain", shown), ("dim", tail)

    return PickerItem(id_, row, f"{kind} {text} {about}", groups=(_ALL, kind))
