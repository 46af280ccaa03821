"""Lists, adds, changes and removes the permission rules that apply in a folder.

`client.permissions` stores a rule and applies it. A session has these rules and its own
grants.
"""

from collections.abc import Sequence

from msgspec import Struct

from refold.app.app import App
from refold.client.permissions import (
    PlacedRule,
    RulePlace,
    apply_rule,
    rules_of_settings,
    save_rule,
)
from refold.config.set_setting import remember
from refold.errors import BadInput
from refold.values.modes import Mode, Verdict

_TERMINAL_ONLY = (
    "an allow rule for all folders is added in a terminal: refold config set permissions.allow "
    "RULE; here it can be allowed in this folder"
)


_NO_BYPASS = (
    "mode bypass is made the default in a terminal: refold config set permission_mode bypass; here "
    "it can be chosen for one conversation"
)


class RuleList(Struct, frozen=True):
    """The rules of a folder. `mode` is the mode of new conversations in it."""

    directory: str
    mode: Mode
    rules: Sequence[PlacedRule]


class ChangedRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a rule: `old` is replaced by `new`.

    An empty `old` adds a rule, an empty `new` removes one.
    """

    verdict: Verdict
    place: RulePlace
    old: str = ""
    new: str = ""


def list_rules(app: App) -> RuleList:
    return RuleList(app.directory, app.mode, rules_of_settings(app))


def choose_mode(app: App, mode: Mode) -> None:
    """Make a mode the default of new conversations. Raises `BadInput` for the mode bypass."""
    if mode == "bypass":
        raise BadInput(_NO_BYPASS)
    remember(app.paths, "permission_mode", mode)


def change_rule(app: App, change: ChangedRule, running: Sequence[App]) -> None:
    """Store a change, and apply it to the calls of the `running` apps.

    Raises `BadInput` for an invalid change, and for a new rule that allows calls in all
    folders: only a terminal can add one.
    """
    rule = PlacedRule(change.verdict, change.old, source="", place=change.place)
    if not (change.old or change.new):
        raise BadInput("a rule is missing: give the old one, the new one, or both")
    if change.place == "user" and change.verdict == "allow" and change.new:
        raise BadInput(_TERMINAL_ONLY)
    new = save_rule(app, rule, change.new)
    for running_app in running:
        same_folder = running_app.workspace.directory == app.workspace.directory
        if change.place == "user" or same_folder:
            apply_rule(running_app, rule, new)
