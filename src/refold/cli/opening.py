"""Open the session that the command line names. Shared by the doors."""

import gc
import os
from argparse import Namespace
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Raw

from refold.cli.out import remark
from refold.cli.taking_up import choose_again, place_of
from refold.config.here import FolderSettings, load_here
from refold.config.paths import paths
from refold.errors import BadInput, said_by
from refold.hall.app import App
from refold.hall.models import own_address
from refold.hall.wishes import Wishes
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.tools.pictures import picture_file
from refold.values.rights import MODES, Mode


def app_of(found: Namespace, *, attended: bool) -> App:
    """Settings from all their layers, and the wishes of this start."""
    places = paths(os.environ)
    _, variables = _at_an_address(found)
    loaded, where = settings_of(found), place_of(found)
    added = [_directory(each) for each in found.add_dir]
    wishes = Wishes(
        directory=where.directory,
        more_roots=tuple(dict.fromkeys((*where.roots, *added))),
        model=named_model(found),
        attended=attended,
        trust=found.trust,
        own_system=found.system_prompt or "",
        more_system=found.append_system_prompt or "",
        script=_file(found.script),
        record=_file(found.record),
        replay=_file(found.replay),
        schema=schema(found.json_schema) if found.json_schema is not None else None,
        keep=not found.no_session,
        notices=tuple(filter(None, (*where.notices, loaded.unheeded))),
        given=loaded.given,
    )
    app = App(loaded.settings, places, {**os.environ, **variables}, wishes)
    if found.save:
        _save(found, app)
    return app


def settings_of(found: Namespace) -> FolderSettings:
    """Those of every layer, and what is to be said of the folder's own."""
    places, directory = paths(os.environ), place_of(found).directory
    return load_here(directory, places, os.environ, as_settings(found), trust=found.trust)


async def open_session(app: App, found: Namespace) -> tuple[str, Session]:
    """The session that -c or -r name, or a fork of that, or a new one."""
    _check_fork(found)
    if found.resume is None and not found.continue_:
        id_, session = await app.start()
        app.put_down(id_)
        return id_, session
    if found.no_session:
        raise BadInput("--no-session keeps no journal, so it cannot go with -c or -r")
    id_ = app.home.find(found.resume).id if found.resume is not None else app.newest()
    if found.fork:
        made = await app.fork(id_, found.at)
        id_ = made.id
        remark(f"{id_}: forked from {made.source} at event {made.seq}")
    with all_kept():
        session = await app.resume(id_)
    app.put_down(id_)
    await choose_again(app, session, found, named_model(found), _mode(found))
    return id_, session


def _check_fork(found: Namespace) -> None:
    if found.fork and found.resume is None and not found.continue_:
        raise BadInput("--fork copies a session: say which, with -c or -r ID")
    if found.at is not None and not found.fork:
        raise BadInput("--at says where to fork: it goes with --fork")


def as_settings(found: Namespace) -> dict[str, object]:
    """What the command line says about settings; None and () say nothing."""
    moved, _ = _at_an_address(found)
    return {
        **moved,
        "effort": found.effort,
        "fallback": tuple(found.fallback_model),
        "trace": found.trace,
        "log": found.log_level,
        "agent": found.agent,
        "preset": found.preset,
        "memory": False if found.no_memory else None,
        "budget.dollars": found.max_budget_usd,
        "permission_mode": _mode(found),
        "terminal.display": found.display,
        "limits.steps": found.max_turns,
        "permissions.allow": tuple(found.allow),
        "permissions.ask": tuple(found.ask),
        "permissions.deny": tuple(found.deny),
    }


def _save(found: Namespace, app: App) -> None:
    """--save: what was chosen here is the default from now on."""
    from refold.config.writing import remember

    model = named_model(found)
    if not (model or found.effort):
        raise BadInput(
            "--save needs something to save: -m PROVIDER/MODEL, --effort, or both"
        )
    if model:
        remember(app.paths, "model", app.models.check(model))
    if found.effort:
        remember(app.paths, "effort", found.effort)


def named_model(found: Namespace) -> str:
    """The model that -m and -b name together; "" where neither says one."""
    if not found.backend:
        return found.model or ""
    return f"{found.backend}/{found.model}" if found.model else found.backend


def _at_an_address(found: Namespace) -> tuple[dict[str, object], Mapping[str, str]]:
    """--host and --port: the provider that -b or -m names, on another machine.

    Settings that say so to us, and variables that say so to a program.
    """
    if not (found.host or found.port):
        return {}, {}
    from refold.provider.command.backends import own_server

    provider = named_model(found).partition("/")[0]
    if not provider:
        raise BadInput("--host and --port need to know of which provider: say -b ollama")
    host, port = found.host or "", found.port or 0
    if (variables := own_server(provider, host, port)) is not None:
        return {}, variables
    name, url = own_address(provider, host, port)
    return {f"providers.{name}.base_url": url}, {}


def _file(name: str | None) -> Path | None:
    return Path(name).expanduser().absolute() if name else None


def schema(given: str, flag: str = "--json-schema") -> Raw:
    """A JSON Schema, or the name of a file that holds one. Raises `BadInput`."""
    text = given
    if not given.strip():
        raise BadInput(f"{flag} is empty: give a JSON Schema, or a file with one")
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{flag} {given!r} is no JSON object and no file to be read: {said_by(error)}"
            ) from error
    try:
        return Raw(msgspec.json.format(text.encode(), indent=-1))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadInput(f"{flag} {given!r} is no JSON: {error}") from error


def pictures(found: Namespace) -> tuple[Picture, ...]:
    """Those that --image names. Raises `BadInput` for what a model cannot see."""
    return tuple(picture_file(Path(name).expanduser(), name) for name in found.image)


def _mode(found: Namespace) -> Mode | None:
    return "bypass" if found.yolo else MODES.get(found.permission_mode or "")


def _directory(text: str) -> Path:
    found = Path(text).expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"--add-dir {text!r}: there is no such directory")
    return found


# No look for garbage while a long session is read: what that makes stays to the end.
#
# A look goes through everything there is, and would find nothing. How often there is one
# otherwise is said in `main`.
@contextmanager
def all_kept() -> Generator[None]:
    """Throw nothing away meanwhile, and look at none of it again afterwards."""
    if not gc.isenabled():  # somebody else has a say in it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
