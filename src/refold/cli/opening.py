"""Open the session that the command line names. Shared by the doors."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from refold.app import App
from refold.cli.standing import here
from refold.config.here import Here, load_here
from refold.config.paths import paths
from refold.config.remember import remember
from refold.errors import BadInput
from refold.journal.home import Home, started_in
from refold.models import own_address
from refold.session.session import Session
from refold.tools.contract import Picture
from refold.tools.pictures import picture_file
from refold.values.rights import MODES, Mode
from refold.wishes import Wishes


def app_of(found: Namespace, *, attended: bool) -> App:
    """Settings from all their layers, and the wishes of this start."""
    places = paths(os.environ)
    _, variables = _at_an_address(found)
    loaded = settings_of(found)
    wishes = Wishes(
        directory=_workspace(found, places.data / "sessions"),
        more_roots=tuple(_directory(each) for each in found.add_dir),
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
        notices=(loaded.unheeded,) if loaded.unheeded else (),
    )
    app = App(loaded.settings, places, {**os.environ, **variables}, wishes)
    if found.save:
        _save(found, app, places.settings)
    return app


def settings_of(found: Namespace) -> Here:
    """Those of every layer, and what is to be said of the folder's own."""
    places = paths(os.environ)
    moved, _ = _at_an_address(found)
    return load_here(
        _workspace(found, places.data / "sessions"),
        places,
        os.environ,
        {**_as_settings(found), **moved},
        trust=found.trust,
    )


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
        sys.stderr.write(f"{id_}: forked from {made.source} at event {made.seq}\n")
    session = await app.resume(id_)
    app.put_down(id_)
    if model := named_model(found):
        await session.inbox.choose_model(app.models.full(model))
    if found.effort:
        await session.inbox.choose_effort(found.effort)
    if mode := _mode(found):
        await session.inbox.set_mode(mode)
    if found.agent:
        from refold.agents.choosing import choose

        await choose(session.inbox, app.agents, found.agent)
    if found.max_budget_usd and (chosen := session.view.rights.budget) is not None:
        budget = replace(chosen, dollars=found.max_budget_usd)
        await session.inbox.set_budget(budget)  # what was chosen in it would win
    return id_, session


def _check_fork(found: Namespace) -> None:
    if found.fork and found.resume is None and not found.continue_:
        raise BadInput("--fork copies a session: say which, with -c or -r ID")
    if found.at is not None and not found.fork:
        raise BadInput("--at says where to fork: it goes with --fork")


def _as_settings(found: Namespace) -> dict[str, object]:
    """What the command line says about settings; None and () say nothing."""
    return {
        "effort": found.effort,
        "fallback": tuple(found.fallback_model),
        "trace": found.trace,
        "agent": found.agent,
        "preset": found.preset,
        "memory": False if found.no_memory else None,
        "budget.dollars": found.max_budget_usd,
        "permission_mode": _mode(found),
        "limits.steps": found.max_turns,
        "permissions.allow": tuple(found.allow),
        "permissions.ask": tuple(found.ask),
        "permissions.deny": tuple(found.deny),
    }


def _save(found: Namespace, app: App, file: Path) -> None:
    """--save: what was chosen here is the default from now on."""
    model = named_model(found)
    if not (model or found.effort):
        raise BadInput(
            "--save needs something to save: -m PROVIDER/MODEL, --effort, or both"
        )
    if model:
        remember(file, "model", app.models.check(model))
    if found.effort:
        remember(file, "effort", found.effort)


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
            text = Path(given).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{flag} {given!r} is no JSON object and no file to be read: {error}"
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


def _workspace(found: Namespace, sessions: Path) -> Path:
    """Where the session works: one that is taken up stays where it was started.

    What was allowed in it, and the paths in it, are about that place.
    """
    if found.resume is None:
        return here()
    session = Home(sessions).find(found.resume)
    directory = Path(started_in(session.path) or here())
    if not directory.is_dir():
        raise BadInput(
            f"the session {session.id} works in {directory}, which is gone: make that "
            "directory again, or start a new session"
        )
    return directory


def _directory(text: str) -> Path:
    found = Path(text).expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"--add-dir {text!r}: there is no such directory")
    return found
