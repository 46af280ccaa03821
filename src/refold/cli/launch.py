"""Opens the session that the command line names, for every client."""

import gc
import os
from argparse import Namespace
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import DeclaredStart, LaunchOptions
from refold.app.session_index import session_index
from refold.cli.flags import PICK_SESSION
from refold.client.launch import Launch, OpenedSession
from refold.client.resume import LEFT_BYPASS, SessionDirectory, find_directory, with_a_model
from refold.client.session import Session
from refold.config.folder_settings import FolderSettings, ignored_settings, load_here
from refold.config.paths import Paths, here, paths
from refold.config.project import any_agent_file
from refold.config.settings import Permissions, RuleWithCases
from refold.errors import BadInput, Held, said_by
from refold.headless.streams import print_error, print_note
from refold.headless.task import Task
from refold.session.session import Session as Engine
from refold.tools.contract import ImageData
from refold.values.modes import MODES, Mode
from refold.views.escape import on_one_line

if TYPE_CHECKING:
    from refold.client.host import NewConversation


class _GivenStart(Struct, frozen=True):
    """What the command line says of a start, with the declared agent that it chose."""

    flags: Mapping[str, object]  # as settings
    model: str  # "": none is named
    environ: Mapping[str, str]
    declared: DeclaredStart


def app_of(found: Namespace, *, attended: bool) -> App:
    """Settings from all their layers, and the options of this start."""
    return launch_of(found, attended=attended).app


def settings_of(found: Namespace) -> FolderSettings:
    """The settings of all layers, and notices about those of the folder itself."""
    directory = place_of(found).directory
    return _load(found, directory, _read_declarations(found, directory))


def launch_of(
    found: Namespace,
    *,
    attended: bool,
    watched: bool = False,
    notes: bool = True,
) -> Launch:
    """One start, with the settings of all layers and the options of the command line."""
    where = place_of(found)
    given = _read_declarations(found, where.directory)
    loaded, declared = _load(found, where.directory, given), given.declared
    ignored = ignored_settings(loaded.project, loaded.state, found.agents or "")
    added = [_directory(each) for each in found.add_dir]
    options = LaunchOptions(
        directory=where.directory,
        more_roots=tuple(dict.fromkeys((*where.roots, *added))),
        model=given.model,
        attended=attended,
        timed=found.timeout is not None and not attended,
        watched=watched,
        trust=found.trust,
        like=found.like,
        own_system=found.system_prompt or "",
        more_system=found.append_system_prompt or "",
        script=_file(found.script),
        record=_file(found.record),
        replay=_file(found.replay),
        tool_names=() if found.no_tools else found.tools,
        schema=schema(found.json_schema) if found.json_schema is not None else None,
        keep=not found.no_session,
        notices=tuple(
            filter(
                None, (*where.notices, ignored, *loaded.loaded.unknown, *declared.notices)
            )
        ),
        given=loaded.given,
        agents=declared.profiles,
        more_tools=declared.tools,
    )
    environ = {**os.environ, **given.environ}
    app = App(loaded.settings, paths(os.environ), environ, options)
    if found.save:
        _save(found, app)
    return Launch(app, given.flags, command_names, notes=notes)


def _load(found: Namespace, directory: Path, given: _GivenStart) -> FolderSettings:
    return load_here(
        directory, paths(os.environ), os.environ, given.flags, trust=found.trust
    )


def options_at(
    loaded: FolderSettings, directory: Path, script: str | None
) -> LaunchOptions:
    """What every start has that a page, an editor or another agent asks for."""
    return LaunchOptions(
        directory=directory,
        watched=True,
        script=_file(script),
        notices=tuple(filter(None, (loaded.unheeded,))),
        given=loaded.given,
    )


def launch_at(
    found: Namespace,
    places: Paths,
    directory: Path,
    roots: Sequence[Path],
    wanted: "NewConversation",
) -> Launch:
    """A start for a page or an editor in a directory, with its settings and what the
    conversation begins with.
    """
    from refold.client.host import EditorConversation

    flags: dict[str, object] = {
        "preset": wanted.preset or None,
        "log_requests": wanted.log_requests or None,
    }
    loaded = load_here(directory, places, os.environ, flags, trust=wanted.trust)
    options = replace(
        options_at(loaded, directory, found.script),
        more_roots=tuple(roots),
        model=wanted.model or found.model,
        trust=wanted.trust,
        more_system=wanted.system_prompt,
    )
    if isinstance(wanted, EditorConversation):
        more = map(Path, wanted.roots)
        options = replace(
            options, more_roots=tuple(dict.fromkeys((*roots, *more))),
            mcp_servers=wanted.mcp_servers, editor=wanted.editor,
        )  # fmt: skip
    app = App(loaded.settings, places, os.environ, options)
    return Launch(app, flags, commands=command_names, notes=True)


def command_names() -> Collection[str]:
    from refold.commands.table import names

    return names()


async def open_or_resume(launch: Launch, found: Namespace) -> OpenedSession:
    """The session that -c or -r name, or a fork of that, or a new one."""
    if found.resume is None and not found.continue_:
        return await launch.start()
    if found.no_session:
        raise BadInput("--no-session keeps no journal, so it cannot go with -c or -r")
    app = launch.app
    id_ = app.home.find(found.resume).id if found.resume is not None else app.newest()
    if found.fork:
        made = await app.fork(id_, found.at)
        id_ = made.id
        print_note(f"{id_}: forked from {made.source} at event {made.seq}")
    try:
        with gc_paused():
            there = await launch.resume(id_)
    except Held as error:
        from refold.client.session_holder import explain_held

        raise await to_thread.run_sync(explain_held, app.home, id_, error) from error
    if found.holder is not None:
        await there.engine.record(found.holder.ended, kept=True, by="person")
    await choose_again(app, there.engine, found, app.options.model, _mode_from_flags(found))
    return there


def task_of(found: Namespace) -> Task:
    """One task without a terminal, as the command line asks for it."""

    async def open_session(launch: Launch) -> Session:
        if found.steal and found.resume is not None:
            from refold.cli.steal import steal

            found.holder = await to_thread.run_sync(steal, launch.app.home, found.resume)
        return Session(launch, await open_or_resume(launch, found))

    check_resume(found)
    return Task(
        text=found.text,
        input_format=found.input_format,
        output_format=found.output_format,
        partial_messages=found.include_partial_messages,
        timeout=found.timeout,
        verify=found.verify,
        resumes=found.resume is not None or found.continue_,
        inside=partial(_inside, found),
        images=partial(images, found),
        launch=lambda attended: launch_of(found, attended=attended),
        open=open_session,
    )


def _inside(found: Namespace) -> AbstractContextManager[object]:
    if found.resume is PICK_SESSION:
        from refold.cli.session_picker import nobody_picks

        raise nobody_picks()
    return in_a_worktree(found)


def check_resume(found: Namespace) -> None:
    """Raises `BadInput` for flags that need a session to resume, where there is none."""
    for flag, does in (("fork", "copies a session"), ("steal", "takes a session over")):
        if getattr(found, flag) and found.resume is None and not found.continue_:
            raise BadInput(f"--{flag} {does}: say which, with -c or -r ID")
    if found.fork and found.steal:
        raise BadInput("--fork copies a session that is open, too: leave --steal out")
    if found.at is not None and not found.fork:
        raise BadInput("--at needs --fork, which it says where to copy to: add --fork")


def as_settings(found: Namespace) -> Mapping[str, object]:
    """What the command line says about settings."""
    return _read_declarations(found, place_of(found).directory).flags


def _read_declarations(found: Namespace, directory: Path) -> _GivenStart:
    """Reads the files of declared agents, if there are any. `directory`: of the session."""
    declared = _declaration_of(found, directory)
    model = _model_from_flags(found, declared)
    moved, variables = _at_an_address(found, declared, model)
    flags: dict[str, object] = {  # None and () say nothing
        **moved,
        "effort": found.effort,
        "roles.main.temperature": found.temperature,
        "roles.main.output_tokens": found.max_output_tokens,
        "fallback_models": tuple(found.fallback_model),
        "log_requests": found.log_requests,
        "log_level": found.log_level,
        "agent": found.agent,
        "preset": found.preset,
        "subagents.teams": found.teams,
        "memory": False if found.no_memory else None,
        "budget.dollars": found.max_budget_usd,
        "budget.tokens": found.max_tokens,
        "security_profile": found.security_profile,
        "permission_mode": _mode(found),
        "sandbox.user_namespaces": found.user_namespaces,
        "terminal.display": found.display,
        "limits.steps": found.max_turns,
        "permissions.allow": (*declared.allow, *found.allow),
        "permissions.ask": tuple(found.ask),
        "permissions.deny": tuple(found.deny),
    }
    said = {key: value for key, value in flags.items() if value is not None}
    environ = {**variables, **declared.environ}
    return _GivenStart({**declared.settings, **said}, model, environ, declared)


def _declaration_of(found: Namespace, directory: Path) -> DeclaredStart:
    """What a declared agent changes in this start; for most starts there is none."""
    if not (found.agents or any_agent_file(directory, paths(os.environ).config)):
        return DeclaredStart()
    from refold.cli.declared_start import start_from_declarations

    return start_from_declarations(found, directory)


def _save(found: Namespace, app: App) -> None:
    """--save: what was chosen here is the default from now on."""
    from refold.config.set_setting import remember

    model = app.options.model
    if not (model or found.effort):
        raise BadInput(
            "--save needs something to save: -m PROVIDER/MODEL, --effort, or both"
        )
    if model:
        remember(app.paths, "model", app.models.check(model))
    if found.effort:
        remember(app.paths, "effort", found.effort)


def _model_from_flags(found: Namespace, declared: DeclaredStart) -> str:
    """The model that -m and -b name together; "" where neither says one."""
    if not found.backend:
        return found.model or declared.model
    return f"{found.backend}/{found.model}" if found.model else found.backend


def _at_an_address(
    found: Namespace, declared: DeclaredStart, model: str
) -> tuple[dict[str, object], Mapping[str, str]]:
    """--host and --port: the provider that -b or -m names, on another machine.

    Settings that say so to us, and variables that say so to a program.
    """
    host, port = found.host or "", found.port or 0
    if not (host or port):
        host, port = declared.address
    if not (host or port):
        return {}, {}
    from refold.provider.command.backends import own_server

    provider = model.partition("/")[0]
    if not provider:
        raise BadInput("--host and --port need a provider: add one, such as -b ollama")
    if (variables := own_server(provider, host, port)) is not None:
        return {}, variables
    from refold.app.local_servers import own_address

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
                f"{flag} {given!r} is neither a JSON object nor a readable file: {said_by(error)}"
            ) from error
    try:
        return Raw(msgspec.json.format(text.encode(), indent=-1))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadInput(f"{flag} {given!r} is not valid JSON: {error}") from error


def images(found: Namespace) -> tuple[ImageData, ...]:
    """Those that --image names. Raises `BadInput` for what a model cannot see."""
    if not found.image:
        return ()
    from refold.tools.images import image_file  # few starts have one

    return tuple(image_file(Path(name).expanduser(), name) for name in found.image)


def _mode_from_flags(found: Namespace) -> Mode | None:
    """What the flags say of the mode, also by the name of a security profile."""
    from refold.config.security_profiles import PROFILES

    bundle = PROFILES.get(found.security_profile or "", {})
    return _mode(found) or MODES.get(str(bundle.get("permission_mode", "")))


def _mode(found: Namespace) -> Mode | None:
    return "bypass" if found.yolo else MODES.get(found.permission_mode or "")


def _directory(text: str) -> Path:
    found = Path(text).expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"--add-dir {text!r}: there is no such directory")
    return found


def place_of(found: Namespace) -> SessionDirectory:
    """Where the session works: a resumed session stays in its directory.

    Its messages and paths are about that place. `found.resume` is an id from then on.
    """
    home = session_index(paths(os.environ))
    if found.resume is None:
        newest = home.newest_of(here()) if found.continue_ else None
        if newest is None:
            return SessionDirectory(found.workspace or here())
        found.resume = newest.id
    from refold.headless.streams import WaitNotice

    session = home.resolve(found.resume, here(), WaitNotice())
    found.resume = session.id
    return find_directory(home, session.id, here())


async def choose_again(
    app: App, session: Engine, found: Namespace, model: str, mode: Mode | None
) -> None:
    """Apply the command line to a resumed session, and repair its other choices."""
    inbox = session.inbox
    if model:
        await inbox.choose_model(app.models.full(model))
    if found.effort:
        await inbox.choose_effort(found.effort)
    if mode:
        await inbox.set_mode(mode)
    elif session.left_bypass:
        print_error(on_one_line(LEFT_BYPASS.format(way="--yolo is given again")))
    if found.agent:
        from refold.agents.registry import choose_agent

        await choose_agent(inbox, app.agents, found.agent)
    if found.max_budget_usd and (chosen := session.view.rights.budget) is not None:
        budget = replace(chosen, dollars=found.max_budget_usd)
        await inbox.set_budget(budget)  # what was chosen in it would win
    if not model and (notice := await with_a_model(app, session)):
        print_error(on_one_line(notice))


@contextmanager
def in_a_worktree(found: Namespace) -> Generator[None]:
    """Make the working tree that the command line asks for, and have the session work in it.

    Raises `BadInput` where there can be none. Not to be called in an event loop.
    """
    if found.worktree is None:
        yield
        return
    if found.resume is not None or found.continue_:
        raise BadInput(
            "--worktree starts a new session, so it cannot be combined with -c or -r"
        )
    from refold.client.worktree_flag import StartWorktrees

    trees = StartWorktrees()
    inside = trees.begin(found.worktree, str(here()))
    left = _rules(found, here())
    found.workspace = Path(inside.directory)
    if inside.trusted and not found.trust:
        found.trust, found.like = True, os.path.realpath(here())
    there = _rules(found, found.workspace)
    # The branch may have older settings, and no file that git ignores.
    found.ask = [*found.ask, *_missing(left.ask, there.ask)]
    found.deny = [*found.deny, *_missing(left.deny, there.deny)]
    print_error(f"works in {inside.directory}, on the branch {inside.branch}")
    try:
        yield
    finally:
        for sentence in trees.leave():
            print_error(sentence)


def _rules(found: Namespace, directory: Path) -> Permissions:
    trust = found.trust
    loaded = load_here(directory, paths(os.environ), os.environ, {}, trust=trust)
    return loaded.settings.permissions


def _missing(
    rules: Sequence[str | RuleWithCases], there: Sequence[str | RuleWithCases]
) -> Sequence[str]:
    texts, known = (
        [each if isinstance(each, str) else each.rule for each in some]
        for some in (rules, there)
    )
    return [text for text in texts if text not in known]


# No look for garbage while a long session is read: what that makes stays to the end.
#
# A look goes through everything there is, and would find nothing. How often there is one
# otherwise is said in `main`.
@contextmanager
def gc_paused() -> Generator[None]:
    """Pause the garbage collector meanwhile, and freeze what was allocated."""
    if not gc.isenabled():  # somebody else has a say in it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
