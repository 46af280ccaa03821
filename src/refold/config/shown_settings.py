"""The settings as lines for a person: each with its value, without secrets."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import anyio
import msgspec

from refold.config.load import canonical, is_table, unsaid
from refold.config.paths import Paths
from refold.config.secret_values import clean, masks_of, shown
from refold.config.settings_report import SettingOrigins, told
from refold.config.toml_text import value_in_toml
from refold.errors import BadInput
from refold.session.redactor import Redactor
from refold.views.escape import on_one_line
from refold.views.settings_list import Say, Setting, lines


async def in_words(
    folder: Path,
    places: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    keys: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """What is set, a line for each, and what is wrong: for a session, with its flags.

    Raises `BadInput` for a key that is none.
    """

    def look() -> tuple[str, ...]:
        found = told(folder, places, environ, flags)
        masks = masks_of(environ, places)
        settings = shown_settings(found, masks, keys)
        return (*lines(settings, whole=bool(keys)), *problems(found, masks))

    return await anyio.to_thread.run_sync(look)


def shown_settings(
    found: SettingOrigins, masks: Redactor, keys: tuple[str, ...] = ()
) -> tuple[Setting, ...]:
    """Those of `keys`, or all, without secrets. Raises `BadInput` for a key that is none."""
    values = found.values
    wanted = [each for key in keys for each in named_settings(key, values).items()]
    shown = wanted if keys else values.items()
    return tuple(
        _setting(key, value, found, masks) for key, value in shown if value is not None
    )


def problems(found: SettingOrigins, masks: Redactor) -> tuple[str, ...]:
    return tuple(on_one_line(clean(each, masks)) for each in found.problems)


def named_settings(key: str, values: Mapping[str, object]) -> Mapping[str, object]:
    """The settings that `key` names: one, or those of a table."""
    wanted = canonical(key)
    there = {**unsaid(wanted), **values}
    if wanted in there:
        return {wanted: there[wanted]}
    inside = {name: each for name, each in there.items() if name.startswith(f"{wanted}.")}
    if inside or is_table(wanted):
        return inside
    tables = {name.rpartition(".")[0] for name in there} - {""}
    near = get_close_matches(key, [*there, *tables], 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else "refold config show lists all"
    raise BadInput(f"there is no setting {on_one_line(key)!r}; {hint}")


def _setting(key: str, value: object, found: SettingOrigins, masks: Redactor) -> Setting:
    says = found.chain.get(key, ())
    adds = key.startswith("permissions.")
    written = [Say(_written(key, each.value, masks), each.where) for each in says]
    default = None if adds else _default(key)
    first = () if default is None else (Say(_written(key, default, masks), "default"),)
    return Setting(key, _written(key, value, masks), (*first, *written), adds)


def _default(key: str) -> object:
    from refold.config.load import flat, within

    whole, asked = within(key)
    return flat(whole()).get(asked, "")


def _written(key: str, value: object, masks: Redactor) -> str:
    plain = msgspec.to_builtins(value)
    if key.startswith("permissions."):
        plain = [_rule(each) for each in plain]
    return value_in_toml(shown(key, plain, masks))


def _rule(each: "dict[str, object] | str") -> object:
    """Without its source, which is told beside it, and without examples it does not have."""
    if isinstance(each, str):
        return each
    kept = {name: each[name] for name in ("rule", "match", "not_match") if each.get(name)}
    return kept if len(kept) > 1 else each["rule"]
