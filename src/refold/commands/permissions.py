"""/permissions: list permission rules and recent refusals, and add or change rules.

`permissions` decides what a rule means; `client.permissions` stores it.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.client.permissions import PlacedRule, RulePlace
from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.commands.mode import MODE_MEANINGS
from refold.errors import BadInput, RefoldError
from refold.values.modes import Verdict
from refold.views.call_summary import label
from refold.views.escape import escape_to_one_line
from refold.views.permission_list import (
    ADD_ID,
    RULE_STYLES,
    permission_picker,
    refused_call,
    rule_id,
)
from refold.views.picker import Picker, PickerItem
from refold.views.recent_refusals import Refusal
from refold.views.styled import Line, Piece, line, plain_text
from refold.views.wrap import wrap_words

_ASKS_NOTE = "The next change asks once the model has read text from outside"
_TEXT_PROMPT = "Rule, such as bash(npm test *):"
_SANDBOX_NOTE = "The sandbox of commands hides the files that it names from the next start."
_NOTE_INDENT = 3
_PLACE_NAMES: dict[RulePlace, str] = {
    "session": "for this session",
    "folder": "always, in this folder",
    "user": "in all folders, in your settings",
}


class _NewRule(Struct, frozen=True):
    """A kind of rule that the user can add: its verdict, and where it is stored."""

    verdict: Verdict
    place: RulePlace

    @property
    def id(self) -> str:
        return f"{self.verdict} {self.place}"


# Only an allow rule can be granted for one session.
_NEW_RULES = (
    _NewRule("allow", "session"),
    *(
        _NewRule(verdict, place)
        for verdict in ("allow", "ask", "deny")
        for place in ("folder", "user")
    ),
)


async def run(context: CommandContext, arguments: str) -> None:
    """Allow a rule for this session, or edit the rules; without a picker, list the rules."""
    action, _, rule = arguments.partition(" ")
    if action == "allow" and rule.strip():
        added = await context.session.permissions.allow(rule)
        context.show(line(f"For this session: {escape_to_one_line(added)}", "dim"))
    elif arguments:
        raise BadInput("type /permissions, or /permissions allow RULE for this session")
    elif context.look.picks and context.session.owns_turns:
        await _edit(context)
    else:
        _list(context)


async def _edit(context: CommandContext) -> None:
    """Let the user add and change rules in a list, until the user leaves the list.

    Outside of a terminal, the list is closed after one change, and errors are raised.
    """
    permissions = context.session.permissions
    while True:
        rules = {rule_id(rule): rule for rule in permissions.placed_rules()}
        refusals = await permissions.refusals()
        # the item of a rule, of a refused call, or ADD_ID for a new rule
        picked_id = await _pick(context, _picker(context, [*rules.values()], refusals))
        if not picked_id:
            return
        call_id = refused_call(picked_id)
        call = next((r.call for r in refusals if r.call.id == call_id), None)
        try:
            if picked_id in rules:
                await _change(context, rules[picked_id])
            elif call is not None:
                await _add(context, permissions.exact_rule(call))
            elif picked_id == ADD_ID:
                await _add(context, text="")
        except RefoldError as error:
            if context.terminal is None:
                raise
            context.show(line(escape_to_one_line(str(error)), "warn"))
        if context.terminal is None:
            return


async def _pick(context: CommandContext, picker: Picker) -> str:
    """Return the id of the picked item; "" if the user picks none."""
    answer = await context.pick(picker)
    return answer.selection.id if answer and answer.selection else ""


def _picker(
    context: CommandContext, rules: Sequence[PlacedRule], refusals: Sequence[Refusal]
) -> Picker:
    """Return the list of rules and refused calls, with notes about the mode."""
    session = context.session
    note_width = max(context.look.width - _NOTE_INDENT, 1)
    indent: Piece = ("plain", " " * _NOTE_INDENT)
    notes = list[Line]()
    for note in _mode_lines(session):
        rows = wrap_words(plain_text([note]), note_width, "dim")
        notes += [(indent, *row) for row in rows]
    return permission_picker(
        session.mode,
        rules,
        refusals,
        lambda call: label(call, session.tool(call.name)),
        notes,
    )


async def _change(context: CommandContext, rule: PlacedRule) -> None:
    """Let the user edit or remove `rule`.

    If `rule` is granted for the session, or is in a file of the user, say that it cannot be
    changed here. All questions are asked before anything is changed.
    """
    if rule.place in ("", "session"):
        reason = "ends with the session" if rule.place else "can be changed only there"
        text = escape_to_one_line(f"{rule.text} ({rule.source})")
        context.show(line(f"{text} {reason}.", "dim"))
        return
    match await _pick(context, _actions(rule)):
        case "edit":
            new = (await context.ask(_TEXT_PROMPT, text=rule.text)).strip()
            if new and new != rule.text:
                changed = await context.session.permissions.change(rule, new)
                _print_rule(context, rule, changed)
        case "remove":
            await context.session.permissions.change(rule, new="")
            context.show(
                line(f"Removed: {rule.verdict} {escape_to_one_line(rule.text)}", "dim")
            )
        case _:
            pass


async def _add(context: CommandContext, text: str) -> None:
    """Ask for the verdict, the place and the text of a new rule, and add it.

    `text` is the initial text.
    """
    # The settings of all folders are changed in a terminal only.
    has_terminal = context.terminal is not None
    kinds = [kind for kind in _NEW_RULES if has_terminal or kind.place != "user"]
    items = tuple(
        _choice_item(kind.id, f"{kind.verdict} {_PLACE_NAMES[kind.place]}")
        for kind in kinds
    )
    picked_id = await _pick(context, Picker("New rule", items))
    picked = next((kind for kind in kinds if kind.id == picked_id), None)
    if picked is None:
        return
    typed = (await context.ask(_TEXT_PROMPT, text=text)).strip()
    if not typed:
        return
    # a rule without text, which is "changed" to the typed text, is added
    rule = PlacedRule(picked.verdict, "", _PLACE_NAMES[picked.place], picked.place)
    added = await context.session.permissions.change(rule, typed)
    _print_rule(context, rule, added)


def _actions(rule: PlacedRule) -> Picker:
    """Return the list of what can be done with a rule."""
    title = f"{rule.verdict} {escape_to_one_line(rule.text)}"
    return Picker(
        title, (_choice_item("edit", "edit it"), _choice_item("remove", "remove it"))
    )


def _choice_item(id_: str, text: str) -> PickerItem:
    return PickerItem(id_, lambda width: line(text), text)


def _print_rule(context: CommandContext, rule: PlacedRule, new: str) -> None:
    """Say from when the rule with the new text applies, and where it is stored."""
    is_in_turn = context.session.view.turn.seq != 0
    when = "From the next turn" if is_in_turn else "From now on"
    place = escape_to_one_line(rule.source)
    context.show(line(f"{when}: {rule.verdict} {escape_to_one_line(new)}  {place}", "dim"))
    if rule.verdict == "deny":
        context.show(line(_SANDBOX_NOTE, "dim"))


def _list(context: CommandContext) -> None:
    context.show(*_mode_lines(context.session))
    rules = context.session.permissions.placed_rules()
    if not rules:
        context.show(line("There are no rules.", "dim"))
    for rule in rules:
        shown: Line = (
            (RULE_STYLES[rule.verdict], f"  {rule.verdict:5} "),
            ("plain", escape_to_one_line(rule.text)),
            ("dim", f"  {escape_to_one_line(rule.source)}"),
        )
        context.show(shown)


def _mode_lines(session: Session) -> Iterator[Line]:
    """Yield a line that says what the mode means.

    Yield a second line if changes ask after the model has read text from outside.
    """
    mode = session.mode
    yield line(f"The mode is {mode}: {MODE_MEANINGS[mode]}")
    match session.permissions.after_outside_text:
        case "asks now":
            yield line(f"{_ASKS_NOTE}, and it has read some.", "warn")
        case "asks":
            yield line(f"{_ASKS_NOTE}.", "dim")
        case _:
            pass
