"""`refold config`: shows the settings and where each is set, and changes them.

The package `config` reads and writes the layers of settings, and `views.settings_list` renders
the settings. API keys are not settings: `refold auth` stores them.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

import msgspec

from refold.cli.output import edit, find_editor, is_interactive, print_answer
from refold.config.folder_settings import reason_settings_ignored
from refold.config.load import canonical_key
from refold.config.paths import Paths, current_directory, paths
from refold.config.secret_values import masks_of, without_secrets
from refold.config.set_setting import (
    SettingsFile,
    SettingsOwner,
    file_of,
    replace_text,
    set_value,
    unset,
)
from refold.config.settings_report import (
    SettingOrigins,
    origins_report,
    problems,
    settings_of_key,
    settings_without_secrets,
)
from refold.config.toml_text import value_in_toml
from refold.errors import BadInput, reason_of
from refold.headless.streams import print_document, print_error, write
from refold.place.private_files import write as keep
from refold.session.redactor import Redactor
from refold.views.escape import escape_to_one_line
from refold.views.settings_list import setting_lines


def add_arguments(config: ArgumentParser) -> None:
    subparsers = config.add_subparsers(dest="what", metavar="WHAT", required=True)
    show = subparsers.add_parser(
        "show", help="list settings, their values and where each is set"
    )
    show.add_argument(
        "keys", nargs="*", metavar="KEY", help="only these settings or tables"
    )
    show.add_argument(
        "--origin", action="store_true", help="list the value in every layer, too"
    )
    show.add_argument("--json", action="store_true", help="print JSON lines")
    get = subparsers.add_parser("get", help="print the value of one setting")
    get.add_argument(
        "key", metavar="KEY", help="such as permission_mode or sandbox.network"
    )
    set_parser = subparsers.add_parser(
        "set", help="change a setting in a file; the rest of it stays as it is"
    )
    set_parser.add_argument(
        "key", metavar="KEY", help="such as permission_mode or sandbox.network"
    )
    set_parser.add_argument("value", metavar="VALUE", help="the new value")
    remove = subparsers.add_parser("unset", help="remove a setting from a file")
    remove.add_argument(
        "key", metavar="KEY", help="such as permission_mode or sandbox.network"
    )
    path = subparsers.add_parser("path", help="list the settings files")
    path.add_argument("--json", action="store_true", help="print JSON lines")
    edit = subparsers.add_parser(
        "edit", help="edit a settings file in your editor, then check it"
    )
    for child in (set_parser, remove, edit):
        _add_file(child)


def _add_file(parser: ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--project", dest="whose", action="store_const", const="project",
        default="user", help="use .refold/config.toml of this directory")  # fmt: skip
    group.add_argument("--local", dest="whose", action="store_const", const="project-local",
        help="use .refold/config.local.toml, which is not committed")  # fmt: skip


def run(args: Namespace) -> int:
    folder, places = current_directory(), paths(os.environ)
    match args.what:
        case "show":
            return _show(origins_report(folder, places, os.environ), places, args)
        case "get":
            return _get(origins_report(folder, places, os.environ), places, args.key)
        case "path":
            return _path(folder, places, as_json=args.json)
        case "edit":
            return edit_file(file_of(args.whose, folder, places))
        case _:
            return _change(file_of(args.whose, folder, places), args)


def _show(origins: SettingOrigins, paths: Paths, args: Namespace) -> int:
    """Print settings, with --origin also their layers. Return 1 for a problem, else 0."""
    redactor = masks_of(os.environ, paths)
    settings = settings_without_secrets(origins, redactor, tuple(args.keys))
    if args.json:
        for item in settings:
            print_document({"key": item.key, "value": item.value, "where": item.where,
                   "says": msgspec.to_builtins(item.layer_values)})  # fmt: skip
    else:
        write("".join(f"{line}\n" for line in setting_lines(settings, whole=args.origin)))
    _print_ignored_settings(origins)
    return _print_problems(origins, redactor)


def _get(origins: SettingOrigins, paths: Paths, key: str) -> int:
    """Print the value of a setting; an empty line if it has none. Return the exit code."""
    name = canonical_key(key)
    settings = settings_of_key(key, origins.values)
    if name not in settings:
        raise BadInput(f"{key} is a table of settings: `refold config show {key}` shows it")
    redactor = masks_of(os.environ, paths)
    value = without_secrets(name, msgspec.to_builtins(settings[name]), redactor)
    if value is None:  # the setting is unset, and has no default
        value = ""
    print_answer(value if isinstance(value, str) else value_in_toml(value))
    return _print_problems(origins, redactor)


def _change(file: SettingsFile, args: Namespace) -> int:
    """Set or unset a setting in `file`. Return 1 if there was nothing to unset, else 0."""
    if args.what == "set":
        _set(file, args.key, args.value)
    elif not _unset(file, args.key):
        return 1
    _print_overridden(file, args.key)
    return 0


def _set(file: SettingsFile, key: str, text: str) -> None:
    """Set the setting `key` in `file`, and print its value without secrets."""
    redactor = masks_of(os.environ, file.places)
    warning = _model_warning(file, key, text)
    new_value = set_value(file, key, text)
    value = value_in_toml(without_secrets(key, new_value, redactor))
    place = escape_to_one_line(str(file.path))
    write(f"{escape_to_one_line(key)} = {escape_to_one_line(value)} is set in {place}.\n")
    if warning:
        print_error(escape_to_one_line(warning))


def _unset(file: SettingsFile, key: str) -> bool:
    """Remove the setting `key` from `file`. Return False if it is not set there."""
    name = escape_to_one_line(key)
    place = escape_to_one_line(str(file.path))
    if unset(file, key):
        write(f"{name} is not set in {place} any more.\n")
        return True
    values = origins_report(file.folder, file.places, os.environ).values
    settings_of_key(key, values)  # raises if there is no such setting
    print_error(f"{name} is not set in {place}")
    return False


def _path(folder: Path, paths: Paths, *, as_json: bool) -> int:
    """Print each settings file, whether it exists and whether it is used. Return 0."""
    state = origins_report(folder, paths, os.environ).state
    owners: tuple[SettingsOwner, ...] = ("user", "project", "project-local")
    for owner in owners:
        file = file_of(owner, folder, paths)
        exists = file.path.is_file()
        is_used = exists and (owner == "user" or state == "trusted")
        if as_json:
            print_document(
                {"whose": owner, "path": str(file.path), "there": exists, "counts": is_used}
            )
        else:
            note = ""
            if not is_used:
                note = "  (is ignored)" if exists else "  (does not exist)"
            write(f"{owner:<13}  {escape_to_one_line(str(file.path))}{note}\n")
    return 0


def _print_problems(origins: SettingOrigins, redactor: Redactor) -> int:
    """Print the problems of the settings. Return exit code 1 if there are any, else 0."""
    for problem in problems(origins, redactor):
        print_error(problem)
    return 1 if origins.problems else 0


def _model_warning(file: SettingsFile, key: str, value: str) -> str:
    """Return a warning if `value` is an unknown model for the setting `key`; otherwise "".

    Raises `BadInput` if no provider can have the model.
    """
    if not canonical_key(key).startswith("models."):
        return ""
    from refold.app.model_offers import ModelOffers
    from refold.app.models import Models
    from refold.cli.models import NoModelOptions
    from refold.config.credentials import read

    settings = origins_report(file.folder, file.places, os.environ).settings
    keys = read(file.places.credentials)
    models = Models(settings, file.places, os.environ, keys, NoModelOptions())
    return ModelOffers(models, settings, os.environ).unknown_model_warning(value)


def _print_ignored_settings(origins: SettingOrigins) -> None:
    if origins.state in ("new", "changed"):
        print_error(reason_settings_ignored(origins.project, origins.state))


def _print_overridden(file: SettingsFile, key: str) -> None:
    """Print a notice if another layer overrides the value of `key` in `file`.

    Also print which settings are ignored, and the problems of all settings.
    """
    origins = origins_report(file.folder, file.places, os.environ)
    name = canonical_key(key)
    layers = origins.chain.get(name, ())
    # the rules of all layers apply together
    overrides = not name.startswith("permissions.")
    if overrides and layers:
        strongest = layers[-1]
        if not strongest.place.startswith(f"{file.display_name}:"):
            print_error(f"{escape_to_one_line(strongest.where)} takes precedence")
    _print_ignored_settings(origins)
    _print_problems(origins, masks_of(os.environ, file.places))


_EMPTY_FILE = "# docs/reference/settings.md says what can stand here.\n"


def edit_file(file: SettingsFile) -> int:
    """Let the user edit a copy of the file, and write it if it is valid.

    Return exit code 1 if the user leaves the copy invalid, otherwise 0.
    """
    command = find_editor("write refold config set KEY VALUE")
    text = file.text()
    before = text or _EMPTY_FILE  # what the editor shows at first
    edited_copy = file.path.with_name(f"{file.path.stem}.edited{file.path.suffix}")
    if os.path.lexists(edited_copy):
        # an unchanged copy may be replaced
        may_replace = not edited_copy.is_symlink() and _has_text(edited_copy, before)
        if not may_replace:
            raise BadInput(
                f"{edited_copy} is left from an earlier edit: copy what you need from it, and delete it"
            )
    _save_edit(edited_copy, before)
    while True:
        try:
            edit(command, edited_copy)
            after = _read(edited_copy)
        except BadInput as error:
            if _has_text(edited_copy, before):
                edited_copy.unlink(missing_ok=True)
            raise BadInput(f"{error}; nothing was changed") from error
        if after == before:
            edited_copy.unlink(missing_ok=True)
            write(f"{escape_to_one_line(str(file.path))} stays as it was.\n")
            return 0
        try:
            replace_text(file, after, expected=text)
        except BadInput as error:
            print_error(escape_to_one_line(str(error)))
            if _ask_to_edit_again():
                continue
            place = escape_to_one_line(str(edited_copy))
            print_error(f"nothing was changed; what you wrote is in {place}")
            return 1
        edited_copy.unlink(missing_ok=True)
        write(f"{escape_to_one_line(str(file.path))} is written.\n")
        return 0


def _save_edit(edited_copy: Path, text: str) -> None:
    try:
        keep(edited_copy, text)
    except OSError as error:
        raise BadInput(f"{edited_copy} cannot be written: {reason_of(error)}") from error


def _has_text(edited_copy: Path, text: str) -> bool:
    with suppress(OSError, UnicodeDecodeError):
        return edited_copy.read_bytes().decode("utf-8") == text
    return False


def _read(edited_copy: Path) -> str:
    try:
        return edited_copy.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{edited_copy} cannot be read: {reason_of(error)}") from error


def _ask_to_edit_again() -> bool:
    """Ask whether to edit again; Enter means yes, and the end of the input means no.

    Return False if there is no terminal.
    """
    if not is_interactive():
        return False
    write("Edit it again? [Y/n] ")
    line = sys.stdin.readline()
    return line != "" and line.strip().lower() in ("", "y", "yes")
