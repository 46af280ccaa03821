"""All settings that apply in one folder, for the code that opens a session there.

It combines `load`, `project` and `trusted_folders`. Clients ask the user about a new
folder.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from refold.config.layers import MANAGED_FILE, Layer, is_flag
from refold.config.load import Loaded, load
from refold.config.paths import Paths
from refold.config.project import FolderTexts, Project, read_project, texts, without_agents
from refold.config.settings import RuleWithCases, Settings
from refold.config.trusted_folders import State, TrustedFolders
from refold.errors import BadInput
from refold.values.path_names import below
from refold.values.usage import RunLimits
from refold.views.escape import escape_to_one_line


class FolderSettings(Struct, frozen=True):
    """The settings, and notices about those of the folder itself.

    `texts` would instruct the model, but they are outside of trusted folders.
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


def reason_settings_ignored(source: Project, state: State, name: str = "") -> str:
    """The ignored settings of a folder and the reason; "" if there are none.

    `name`: the file of agents that this start names, whose settings apply.
    """
    if name:
        source = without_agents(source, os.path.realpath(os.path.expanduser(name)))
    if not (source.files or source.problem):
        return ""
    place = f"{' and '.join(f.name for f in source.files)} in {source.folder}"
    way = "run `refold trust add` to review and trust them, or start with --trust once"
    match state:
        case "unusable":
            return f"{source.problem}; the settings of this folder are ignored"
        case "new":
            return f"{escape_to_one_line(place)}: not trusted, so these settings are ignored; {way}"
        case "changed":
            return (
                f"{escape_to_one_line(place)}: changed since you trusted them, so these settings are "
                f"ignored; {way}"
            )
        case _:
            return ""


def load_folder_settings(
    directory: Path,
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    *,
    trust: bool = False,
    managed: Path = MANAGED_FILE,
) -> FolderSettings:
    """Load every layer. With `trust` the folder's own settings apply to this start.

    Raises `BadInput`, but never because of files in an untrusted folder.
    """
    folders = TrustedFolders(paths.folders)
    source, state = project_and_trust(directory, paths, trust=trust)
    problems = list[str]()
    denied = tuple(claude_deny_layer(source.folder, problems))
    trusted = source.layers if state == "trusted" else ()
    between = (*trusted, denied, folders.layer(source.folder))
    loaded = load(paths.settings, environ, flags, between, managed)
    return FolderSettings(
        replace(loaded, unknown=(*loaded.unknown, *problems)),
        source,
        state,
        FolderTexts("") if trust else untrusted_texts(directory, folders),
    )


def claude_deny_layer(folder: str, problems: list[str]) -> Layer:
    """The deny rules of Claude Code in `folder`, which count without trust."""
    if os.path.lexists(os.path.join(folder, ".claude")):
        from refold.config.claude_permissions import deny_layer  # of few folders

        yield from deny_layer(folder, problems)


def project_and_trust(
    directory: Path, paths: Paths, *, trust: bool = False
) -> tuple[Project, State]:
    """The files of the folder, and whether they count; with `trust` they do for this start.
    Raises `BadInput` if `trust` is set and a file is invalid.
    """
    source = read_project(directory, paths.settings)
    if trust and source.problem:
        raise BadInput(source.problem)
    state = TrustedFolders(paths.folders).state(source)
    return source, "trusted" if trust and source.files else state


def untrusted_texts(directory: Path | str, folders: TrustedFolders) -> FolderTexts:
    """Texts that would instruct the model, but are ignored without trust."""
    folder = texts(directory)
    trusted = folders.find_trusted_above(os.path.realpath(directory), folder.root)
    new = (t for t in folder.found if not (trusted and below(t.folder, trusted)))
    return FolderTexts(folder.root, tuple(new))


_MODE, _STEPS = "permission_mode", "limits.steps"
_DOLLARS, _TOKENS = "budget.dollars", "budget.tokens"


def limits_from_flags(loaded: Loaded) -> RunLimits:
    """The settings that come from flags, without those of any other layer."""
    settings = loaded.settings
    flagged = {key for key, origin in loaded.origins.items() if is_flag(origin.origin)}
    rules = settings.permissions
    return RunLimits(
        allow=_rules_from_flags(rules.allow),
        ask=_rules_from_flags(rules.ask),
        deny=_rules_from_flags(rules.deny),
        mode=settings.permission_mode if _MODE in flagged else None,
        steps=settings.limits.steps if _STEPS in flagged else 0,
        dollars=settings.budget.dollars if _DOLLARS in flagged else 0.0,
        tokens=settings.budget.tokens if _TOKENS in flagged else 0,
    )


def to_flags(limits: RunLimits) -> dict[str, object]:
    """The limits in the form that `load_folder_settings` accepts."""
    return {
        "permissions.allow": limits.allow,
        "permissions.ask": limits.ask,
        "permissions.deny": limits.deny,
        _MODE: limits.mode,
        _STEPS: limits.steps or None,
        _DOLLARS: limits.dollars or None,
        _TOKENS: limits.tokens or None,
    }


def _rules_from_flags(rules: Sequence[str | RuleWithCases]) -> tuple[str, ...]:
    return tuple(
        rule.rule
        for rule in rules
        if isinstance(rule, RuleWithCases) and is_flag(rule.source)
    )
