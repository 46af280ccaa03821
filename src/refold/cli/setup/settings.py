"""`refold config`: what is set, where that comes from, and changing it.

Which layers there are and what they say is `config`'s business; how it looks is
`views.settings`'. Keys of providers are no settings: `refold auth` keeps them.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import anyio
import msgspec

from refold.cli.out import answer, complain, write
from refold.cli.standing import here
from refold.cli.subparsers import Subparsers
from refold.config.here import unheeded
from refold.config.load import canonical, is_table, unsaid
from refold.config.masking import clean, masks_of, shown
from refold.config.paths import Paths, paths
from refold.config.told import SettingOrigins, told
from refold.config.writing import File, Whose, file_of, set_value, unset
from refold.config.written import value_in_toml
from refold.errors import BadInput
from refold.session.secrets import Masks
from refold.views.escape import on_one_line
from refold.views.settings import Say, Setting, lines


def add_parser(commands: Subparsers) -> None:
    config = commands.add_parser("config", help="show the settings, and change them")
    what = config.add_subparsers(dest="what", metavar="WHAT", required=True)
    show = what.add_parser("show", help="each setting, its value, and where it comes from")
    show.add_argument("keys", nargs="*", metavar="KEY", help="only these, or these tables")
    show.add_argument("--origin", action="store_true", help="with what every layer says")
    show.add_argument("--json", action="store_true", help="as JSON, one a line")
    get = what.add_parser("get", help="the value of one setting, and nothing else")
    get.add_argument("key", metavar="KEY")
    put = what.add_parser("set", help="write a setting into a file, the rest as it is")
    put.add_argument("key", metavar="KEY")
    put.add_argument("value", metavar="VALUE")
    remove = what.add_parser("unset", help="take a setting out of a file")
    remove.add_argument("key", metavar="KEY")
    where = what.add_parser("path", help="the files that settings are read from")
    where.add_argument("--json", action="store_true", help="as JSON, one a line")
    edit = what.add_parser("edit", help="a file of settings in your editor, then checked")
    for each in (put, remove, edit):
        _add_file(each)


def _add_file(parser: ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--project", dest="whose", action="store_const", const="project",
        default="user", help="in .refold/config.toml of this folder")  # fmt: skip
    whose.add_argument("--local", dest="whose", action="store_const", const="project-local",
        help="in .refold/config.local.toml, which is not shared")  # fmt: skip


def run(found: Namespace) -> int:
    folder, places = here(), paths(os.environ)
    match found.what:
        case "show":
            return _show(told(folder, places, os.environ), places, found)
        case "get":
            return _get(told(folder, places, os.environ), places, found.key)
        case "path":
            return _path(folder, places, as_json=found.json)
        case "edit":
            from refold.cli.setup.settings_edited import run as edit

            return edit(file_of(found.whose, folder, places))
        case _:
            return _change(file_of(found.whose, folder, places), found)


def shown_settings(
    found: SettingOrigins, masks: Masks, keys: tuple[str, ...] = ()
) -> tuple[Setting, ...]:
    """Those of `keys`, or all, without secrets. Raises `BadInput` for a key that is none."""
    values = found.values
    wanted = [each for key in keys for each in _named(key, values).items()]
    shown = wanted if keys else values.items()
    return tuple(
        _setting(key, value, found, masks) for key, value in shown if value is not None
    )


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
        return (*lines(settings, whole=bool(keys)), *_problems(found, masks))

    return await anyio.to_thread.run_sync(look)


def _show(found: SettingOrigins, places: Paths, asked: Namespace) -> int:
    masks = masks_of(os.environ, places)
    settings = shown_settings(found, masks, tuple(asked.keys))
    if asked.json:
        for each in settings:
            _line({"key": each.key, "value": each.value, "where": each.where,
                   "says": msgspec.to_builtins(each.says)})  # fmt: skip
    else:
        write("".join(f"{line}\n" for line in lines(settings, whole=asked.origin)))
    _tell_unheeded(found)
    return _tell(found, masks)


def _get(found: SettingOrigins, places: Paths, key: str) -> int:
    name, there = canonical(key), _named(key, found.values)
    if name not in there:
        raise BadInput(f"{key} is a table of settings: `refold config show {key}` shows it")
    masks = masks_of(os.environ, places)
    value = shown(name, msgspec.to_builtins(there[name]), masks)
    text = "" if value is None else value  # nobody set it, and there is no other
    answer(text if isinstance(text, str) else value_in_toml(text))
    return _tell(found, masks)


def _change(file: File, found: Namespace) -> int:
    where = on_one_line(str(file.path))
    if found.what == "set":
        masks = masks_of(os.environ, file.places)
        kept = shown(found.key, set_value(file, found.key, found.value), masks)
        value = value_in_toml(kept)
        write(f"{on_one_line(found.key)} = {on_one_line(value)} is set in {where}.\n")
    elif unset(file, found.key):
        write(f"{on_one_line(found.key)} is not set in {where} any more.\n")
    else:
        _named(found.key, told(file.folder, file.places, os.environ).values)  # is it one?
        complain(f"{on_one_line(found.key)} is not set in {where}")
        return 1
    _tell_overridden(file, found.key)
    return 0


def _path(folder: Path, places: Paths, *, as_json: bool) -> int:
    state = told(folder, places, os.environ).state
    whose: tuple[Whose, ...] = ("user", "project", "project-local")
    for each in whose:
        file = file_of(each, folder, places)
        there = file.path.is_file()
        counts = there and (each == "user" or state == "trusted")
        if as_json:
            _line({"whose": each, "path": str(file.path), "there": there, "counts": counts})
        else:
            note = (
                "" if counts else "  (is not there)" if not there else "  (does not count)"
            )
            write(f"{each:<13}  {on_one_line(str(file.path))}{note}\n")
    return 0


def _named(key: str, values: Mapping[str, object]) -> Mapping[str, object]:
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


def _setting(key: str, value: object, found: SettingOrigins, masks: Masks) -> Setting:
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


def _written(key: str, value: object, masks: Masks) -> str:
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


def _tell(found: SettingOrigins, masks: Masks) -> int:
    for problem in _problems(found, masks):
        complain(problem)
    return 1 if found.problems else 0


def _problems(found: SettingOrigins, masks: Masks) -> tuple[str, ...]:
    return tuple(on_one_line(clean(each, masks)) for each in found.problems)


def _tell_unheeded(found: SettingOrigins) -> None:
    if found.state in ("new", "changed"):
        complain(unheeded(found.project, found.state))


def _tell_overridden(file: File, key: str) -> None:
    """What was written may not be what holds."""
    found = told(file.folder, file.places, os.environ)
    says = found.chain.get(canonical(key), ())
    if not canonical(key).startswith("permissions.") and says:
        last = says[-1]
        if not last.place.startswith(f"{file.called}:"):
            complain(f"{on_one_line(last.where)} goes before it")
    _tell_unheeded(found)
    _tell(found, masks_of(os.environ, file.places))


def _line(document: dict[str, object]) -> None:
    write(msgspec.json.encode(document).decode() + "\n")
