"""All settings that apply in one folder, for the code that opens a session there.

It combines `load`, `project` and `trusted_folders`. Clients ask the user about a new
folder.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from refold.config.layers import MANAGED_FILE, is_flag
from refold.config.load import Loaded, load
from refold.config.paths import Paths
from refold.config.project import FolderTexts, Project, project, texts, without_agents
from refold.config.settings import RuleWithCases, Settings
from refold.config.trusted_folders import State, TrustedFolders
from refold.errors import BadInput
from refold.values.path_names import below
from refold.values.usage import RunLimits
from refold.views.escape import on_one_line


class FolderSettings(Struct, frozen=True):
    """The settings, and notices about those of the folder itself.

    `texts` would instruct the model, but are outside of trusted folders.
    """

    loaded: Loaded
    project: Project
    state: State
    texts: FolderTexts

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def limits_of_flags(self) -> RunLimits:
        """The limits that come from flags."""
        return limits_from_flags(self.loaded)

    @property
    def reason_ignored(self) -> str:
        """The ignored settings and the reason; "" if there are none."""
        ignored = reason_settings_ignored(self.project, self.state)
        return "; ".join(filter(None, (ignored, *self.loaded.unknown)))


def reason_settings_ignored(found: Project, state: State, named: str = "") -> str:
    """The ignored settings of a folder and the reason; "" if there are none.

    `named`: the file of agents that this start names, which counts.
    """
    if named:
        found = without_agents(found, os.path.realpath(os.path.expanduser(named)))
    if not (found.files or found.problem):
        return ""
    where = f"{' and '.join(f.name for f in found.files)} in {found.folder}"
    way = "run `refold trust add` to review and trust them, or start with --trust once"
    match state:
        case "unusable":
            return f"{found.problem}; the settings of this folder are ignored"
        case "new":
            return (
                f"{on_one_line(where)}: not trusted, so these settings are ignored; {way}"
            )
        case "changed":
            return (
                f"{on_one_line(where)}: changed since you trusted them, so these settings are "
                f"ignored; {way}"
            )
        case _:
            return ""


def load_here(
    directory: Path,
    places: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    trust: bool = False,
    managed: Path = MANAGED_FILE,
) -> FolderSettings:
    """Load every layer. With `trust` the folder's own settings count for this start.

    Raises `BadInput`, but never because of files in an untrusted folder.
    """
    folders = TrustedFolders(places.folders)
    found, state = project_here(directory, places, trust=trust)
    between = (*(found.layers if state == "trusted" else ()), folders.layer(found.folder))
    loaded = load(places.settings, environ, flags, between, managed)
    return FolderSettings(
        loaded,
        found,
        state,
        FolderTexts("") if trust else texts_without_trust(directory, folders),
    )


def project_here(
    directory: Path, places: Paths, *, trust: bool = False
) -> tuple[Project, State]:
    """The files of the folder, and whether they count; with `trust` they do for this start.
    Raises `BadInput` if `trust` is set and a file is invalid.
    """
    found = project(directory, places.settings)
    if trust and found.problem:
        raise BadInput(found.problem)
    state = TrustedFolders(places.folders).state(found)
    return found, "trusted" if trust and found.files else state


def texts_without_trust(directory: Path | str, folders: TrustedFolders) -> FolderTexts:
    """Texts that would instruct the model, but are ignored without trust."""
    there = texts(directory)
    trusted = folders.find_trusted_above(os.path.realpath(directory), there.root)
    new = (t for t in there.found if not (trusted and below(t.folder, trusted)))
    return FolderTexts(there.root, tuple(new))


_MODE, _STEPS = "permission_mode", "limits.steps"
_DOLLARS, _TOKENS = "budget.dollars", "budget.tokens"


def limits_from_flags(loaded: Loaded) -> RunLimits:
    """The settings that come from flags, without those of any other layer."""
    settings = loaded.settings
    flagged = {key for key, found in loaded.origins.items() if is_flag(found.origin)}
    rules = settings.permissions
    return RunLimits(
        allow=_flags_of(rules.allow),
        ask=_flags_of(rules.ask),
        deny=_flags_of(rules.deny),
        mode=settings.permission_mode if _MODE in flagged else None,
        steps=settings.limits.steps if _STEPS in flagged else 0,
        dollars=settings.budget.dollars if _DOLLARS in flagged else 0.0,
        tokens=settings.budget.tokens if _TOKENS in flagged else 0,
    )


def as_flags(given: RunLimits) -> dict[str, object]:
    """The limits in the form that `load_here` accepts."""
    return {
        "permissions.allow": given.allow,
        "permissions.ask": given.ask,
        "permissions.deny": given.deny,
        _MODE: given.mode,
        _STEPS: given.steps or None,
        _DOLLARS: given.dollars or None,
        _TOKENS: given.tokens or None,
    }


def _flags_of(rules: Sequence[str | RuleWithCases]) -> tuple[str, ...]:
    return tuple(
        each.rule
        for each in rules
        if isinstance(each, RuleWithCases) and is_flag(each.source)
    )
