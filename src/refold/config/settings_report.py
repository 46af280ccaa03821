"""Reports the value of each setting in every layer, and all invalid settings.

`load` raises the first error, because a session must not start with guessed settings. This
report collects all errors, and shows the valid settings.
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from refold.config.folder_settings import claude_deny_layer, reason_settings_ignored
from refold.config.layers import MANAGED_FILE, Layer, Origin
from refold.config.load import (
    RENAMED_SETTINGS,
    canonical_key,
    check_layer,
    combine,
    default_of,
    defaults_of,
    flatten,
    is_table,
    layers_of,
    settings_in_order,
)
from refold.config.paths import Paths
from refold.config.project import Project, read_project
from refold.config.secret_values import clean, masks_of, without_secrets
from refold.config.settings import Settings
from refold.config.toml_text import value_in_toml
from refold.config.trusted_folders import State, TrustedFolders
from refold.errors import BadInput
from refold.session.redactor import Redactor
from refold.views.escape import escape_to_one_line
from refold.views.settings_list import LayerValue, Setting, setting_lines


class SettingOrigins(Struct, frozen=True):
    """All settings of a folder, with the layers that set them.

    `chain` lists the values of each key in the order of the layers. The last value wins; of
    permission rules, all apply.
    """

    settings: Settings
    chain: Mapping[str, tuple[Origin, ...]]
    problems: tuple[str, ...]
    project: Project
    state: State

    @property
    def values(self) -> dict[str, object]:
        """The values of all settings, by their keys."""
        return flatten(self.settings)


def origins_report(
    directory: Path,
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    managed: Path = MANAGED_FILE,
) -> SettingOrigins:
    """Return all settings that apply in `directory`, with their origins.

    Never raises `BadInput`.
    """
    problems = list[str]()
    folders = TrustedFolders(paths.folders)
    source = read_project(directory, paths.settings)
    state = _state(folders, source, problems)
    if state == "unusable":
        problems.append(reason_settings_ignored(source, state))
    claude_rules = _valid_settings(
        lambda: claude_deny_layer(source.folder, problems), problems
    )
    stored_rules = _valid_settings(lambda: folders.layer(source.folder), problems)
    folder_layers: list[Layer] = [
        *(source.layers if state == "trusted" else ()),
        list(claude_rules),
        list(stored_rules),
    ]
    layers = [
        list(_valid_settings(read, problems))
        for read in layers_of(paths.settings, environ, flags or {}, folder_layers, managed)
    ]
    chain: dict[str, tuple[Origin, ...]] = {}
    for key, origin in settings_in_order(layers):
        # A table whose names the user chose is shown as one setting.
        table, _, _ = key.partition(".")
        shown_key = table if table in _NAME_TABLES else key
        chain[shown_key] = (*chain.get(shown_key, ()), origin)
    return SettingOrigins(combine(layers).settings, chain, tuple(problems), source, state)


def _state(folders: TrustedFolders, source: Project, problems: list[str]) -> State:
    """Return whether the user trusts the project's settings.

    If this cannot be read, add the reason to `problems`, and return "nothing".
    """
    try:
        return folders.state(source)
    except BadInput as error:
        problems.append(str(error))
        return "nothing"


def _valid_settings(
    read_layer: Callable[[], Layer], problems: list[str]
) -> Iterator[tuple[str, Origin]]:
    """Yield the valid settings of a layer. Add an error for each invalid setting to
    `problems`.
    """
    try:
        pairs = list(read_layer())
    except BadInput as error:
        problems.append(str(error))
        return
    for pair in pairs:
        try:
            yield from check_layer([pair])
        except BadInput as error:
            if str(error) not in problems:
                problems.append(str(error))


_NAME_TABLES = ("model_aliases", "command_aliases", "workspaces")
_MIN_SIMILARITY = 0.5  # of a setting that an error suggests, from 0 to 1


async def report_lines(
    folder: Path,
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    keys: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return lines that show the settings and problems of a session with these flags.

    With `keys`, only those settings are shown. Raises `BadInput` for an unknown key.
    """

    def report() -> tuple[str, ...]:
        origins = origins_report(folder, paths, environ, flags)
        masks = masks_of(environ, paths)
        settings = settings_without_secrets(origins, masks, keys)
        return (*setting_lines(settings, whole=bool(keys)), *problems(origins, masks))

    return await anyio.to_thread.run_sync(report)


def settings_without_secrets(
    origins: SettingOrigins, masks: Redactor, keys: tuple[str, ...] = ()
) -> tuple[Setting, ...]:
    """Return the settings that `keys` name, or all settings, with their secrets masked.

    Raises `BadInput` for an unknown key.
    """
    values = origins.values
    wanted = [item for key in keys for item in settings_of_key(key, values).items()]
    shown = wanted if keys else values.items()
    return tuple(
        _setting(key, value, origins, masks) for key, value in shown if value is not None
    )


def problems(origins: SettingOrigins, masks: Redactor) -> tuple[str, ...]:
    return tuple(escape_to_one_line(clean(problem, masks)) for problem in origins.problems)


def settings_of_key(key: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the setting that `key` names, or all settings of the table that it names.

    Raises `BadInput` for an unknown key.
    """
    wanted = canonical_key(key)
    values_with_defaults = {**defaults_of(wanted), **values}
    if wanted in values_with_defaults:
        return {wanted: values_with_defaults[wanted]}
    inside = {
        name: value
        for name, value in values_with_defaults.items()
        if name.startswith(f"{wanted}.")
    }
    if inside or is_table(wanted):
        return inside
    if wanted in RENAMED_SETTINGS:
        raise BadInput(f"the setting {key!r} was renamed to {RENAMED_SETTINGS[wanted]!r}")
    tables = {name.rpartition(".")[0] for name in values_with_defaults} - {""}
    candidates = [*values_with_defaults, *tables]
    suggestions = get_close_matches(key, candidates, n=1, cutoff=_MIN_SIMILARITY)
    hint = (
        f"did you mean {suggestions[0]!r}?"
        if suggestions
        else "refold config show lists all"
    )
    raise BadInput(f"there is no setting {escape_to_one_line(key)!r}; {hint}")


def _setting(key: str, value: object, origins: SettingOrigins, masks: Redactor) -> Setting:
    """Return a setting with its default, if any, and its value in each layer."""
    values = list[LayerValue]()
    rules_add_up = key.startswith("permissions.")
    default = None if rules_add_up else default_of(key)
    if default is not None:
        values.append(LayerValue(_value_text(key, default, masks), "default"))
    for origin in origins.chain.get(key, ()):
        values.append(LayerValue(_value_text(key, origin.value, masks), origin.where))
    return Setting(key, _value_text(key, value, masks), tuple(values), rules_add_up)


def _value_text(key: str, value: object, masks: Redactor) -> str:
    """Return the value as TOML, with secrets masked, and rules without their sources."""
    plain = msgspec.to_builtins(value)
    if key.startswith("permissions."):
        plain = [_rule_without_source(item) for item in plain]
    return value_in_toml(without_secrets(key, plain, masks))


def _rule_without_source(rule: "dict[str, object] | str") -> object:
    """Return a rule without its source and without empty lists of examples."""
    if isinstance(rule, str):
        return rule
    parts = {name: rule[name] for name in ("rule", "match", "not_match") if rule.get(name)}
    return parts if len(parts) > 1 else rule["rule"]
