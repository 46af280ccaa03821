"""Reports the value of each setting in every layer, and every problem.

`load` stops at the first error, because a start must not guess. Here all errors are
collected, and the other settings still count.
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
    """`chain` has the values of a key in order; the last wins, but all rules count."""

    settings: Settings
    chain: Mapping[str, tuple[Origin, ...]]
    problems: tuple[str, ...]
    project: Project
    state: State

    @property
    def values(self) -> dict[str, object]:
        """Every setting, by its key."""
        return flatten(self.settings)


def origins_report(
    directory: Path,
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    managed: Path = MANAGED_FILE,
) -> SettingOrigins:
    """All settings of `directory` with their origins. No content makes it raise."""
    problems = list[str]()
    folders = TrustedFolders(paths.folders)
    source = read_project(directory, paths.settings)
    state = _state(folders, source, problems)
    if state == "unusable":
        problems.append(reason_settings_ignored(source, state))
    between = list[Layer](source.layers if state == "trusted" else ())
    between += [
        list(_valid_settings(lambda: claude_deny_layer(source.folder, problems), problems))
    ]
    between += [list(_valid_settings(lambda: folders.layer(source.folder), problems))]
    layers = [
        list(_valid_settings(read, problems))
        for read in layers_of(paths.settings, environ, flags or {}, between, managed)
    ]
    chain: dict[str, tuple[Origin, ...]] = {}
    for key, origin in settings_in_order(layers):
        # A table of names that the user chose is shown as one setting.
        shown = table if (table := key.partition(".")[0]) in _NAME_TABLES else key
        chain[shown] = (*chain.get(shown, ()), origin)
    return SettingOrigins(combine(layers).settings, chain, tuple(problems), source, state)


def _state(folders: TrustedFolders, source: Project, problems: list[str]) -> State:
    try:
        return folders.state(source)
    except BadInput as error:
        problems.append(str(error))
        return "nothing"


def _valid_settings(
    read_layer: Callable[[], Layer], problems: list[str]
) -> Iterator[tuple[str, Origin]]:
    """The valid part of a layer; each error is added to the problems."""
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


async def report_lines(
    folder: Path,
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    keys: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Lines with the settings and the problems, for a session with these flags.

    Raises `BadInput` for an unknown key.
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
    """The settings of `keys`, or all, without secrets. Raises `BadInput` if unknown."""
    values = origins.values
    wanted = [item for key in keys for item in settings_of_key(key, values).items()]
    shown = wanted if keys else values.items()
    return tuple(
        _setting(key, value, origins, masks) for key, value in shown if value is not None
    )


def problems(origins: SettingOrigins, masks: Redactor) -> tuple[str, ...]:
    return tuple(escape_to_one_line(clean(problem, masks)) for problem in origins.problems)


def settings_of_key(key: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """The settings that `key` names: one, or those of a table."""
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
    suggestions = get_close_matches(key, [*values_with_defaults, *tables], 1, 0.5)
    hint = (
        f"did you mean {suggestions[0]!r}?"
        if suggestions
        else "refold config show lists all"
    )
    raise BadInput(f"there is no setting {escape_to_one_line(key)!r}; {hint}")


def _setting(key: str, value: object, origins: SettingOrigins, masks: Redactor) -> Setting:
    says = origins.chain.get(key, ())
    adds = key.startswith("permissions.")
    written = [LayerValue(_value_text(key, item.value, masks), item.where) for item in says]
    default = None if adds else default_of(key)
    first = (
        ()
        if default is None
        else (LayerValue(_value_text(key, default, masks), "default"),)
    )
    return Setting(key, _value_text(key, value, masks), (*first, *written), adds)


def _value_text(key: str, value: object, masks: Redactor) -> str:
    plain = msgspec.to_builtins(value)
    if key.startswith("permissions."):
        plain = [_rule(item) for item in plain]
    return value_in_toml(without_secrets(key, plain, masks))


def _rule(rule: "dict[str, object] | str") -> object:
    """A rule without its source, which is printed separately, and without empty examples."""
    if isinstance(rule, str):
        return rule
    parts = {name: rule[name] for name in ("rule", "match", "not_match") if rule.get(name)}
    return parts if len(parts) > 1 else rule["rule"]
