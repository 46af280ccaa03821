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
    """The settings that apply in a folder, and the settings files and texts in the folder.

    `texts` are the texts for the model that are ignored, because the user has not trusted their
    folder.
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
        """The limits and rules that were set by flags."""
        return limits_from_flags(self.loaded)

    @property
    def reason_ignored(self) -> str:
        """Sentences that say which settings are ignored, and why; "" if none are ignored."""
        ignored = reason_settings_ignored(self.project, self.state)
        return "; ".join(filter(None, (ignored, *self.loaded.unknown)))


def reason_settings_ignored(source: Project, state: State, name: str = "") -> str:
    """Return a sentence that says which settings of a folder are ignored, and why; "" if none
    are ignored.

    `name` is the file of agents that the command line names, or "". That file is never ignored,
    so the sentence does not mention it.
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
        case "trusted" | "nothing":
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
    """Return the settings of all layers for a session in `directory`.

    With `trust` the settings of the folder itself apply to this start, even if the user has not
    trusted it. Raises `BadInput`, but never because of files in an untrusted folder.
    """
    folders = TrustedFolders(paths.folders)
    source, state = project_and_trust(directory, paths, trust=trust)
    problems = list[str]()
    denied = tuple(claude_deny_layer(source.folder, problems))
    trusted = source.layers if state == "trusted" else ()
    between = (*trusted, denied, folders.layer(source.folder))
    loaded = load(paths.settings, environ, flags, between, managed)
    loaded = replace(loaded, unknown=(*loaded.unknown, *problems))
    ignored_texts = FolderTexts(root="") if trust else untrusted_texts(directory, folders)
    return FolderSettings(loaded, source, state, ignored_texts)


def claude_deny_layer(folder: str, problems: list[str]) -> Layer:
    """Yield the deny rules of Claude Code in `folder`, which apply without trust."""
    if os.path.lexists(os.path.join(folder, ".claude")):
        # Imported late: few folders have them.
        from refold.config.claude_permissions import deny_layer

        yield from deny_layer(folder, problems)


def project_and_trust(
    directory: Path, paths: Paths, *, trust: bool = False
) -> tuple[Project, State]:
    """Read the settings files of the folder. Return them, and whether the user trusts them.

    With `trust` the files count as trusted for this start. Raises `BadInput` if `trust` is set
    and a file is invalid.
    """
    source = read_project(directory, paths.settings)
    if trust and source.problem:
        raise BadInput(source.problem)
    state = TrustedFolders(paths.folders).state(source)
    if trust and source.files:
        return source, "trusted"
    return source, state


def untrusted_texts(directory: Path | str, folders: TrustedFolders) -> FolderTexts:
    """Return the texts for the model that are ignored, because their folder is not trusted."""
    all_texts = texts(directory)
    trusted = folders.find_trusted_above(os.path.realpath(directory), all_texts.root)
    if not trusted:
        return all_texts
    untrusted = (text for text in all_texts.found if not below(text.folder, trusted))
    return FolderTexts(all_texts.root, tuple(untrusted))


_MODE, _STEPS = "permission_mode", "limits.steps"
_DOLLARS, _TOKENS = "budget.dollars", "budget.tokens"


def limits_from_flags(loaded: Loaded) -> RunLimits:
    """Return the limits and rules that were set by flags, without those of other layers."""
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
    """Return the limits as the parameter `flags` of `load_folder_settings`."""
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
    """Return the rules whose source is a flag. A rule without a source is from no flag."""
    return tuple(
        rule.rule
        for rule in rules
        if isinstance(rule, RuleWithCases) and is_flag(rule.source)
    )
