"""Opens the session that the command line describes, for every client."""

import gc
import os
from argparse import Namespace
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from refold.client.resume import (
    LEFT_BYPASS,
    SessionDirectory,
    find_directory,
    replace_unusable_model,
)
from refold.client.session import Session
from refold.config.folder_settings import (
    FolderSettings,
    load_folder_settings,
    reason_settings_ignored,
)
from refold.config.paths import Paths, current_directory, paths
from refold.config.project import has_agent_file
from refold.errors import BadInput, Held, reason_of
from refold.headless.streams import print_error, print_note
from refold.headless.task import Task
from refold.session.session import Session as Engine
from refold.tools.contract import ImageData
from refold.values.modes import MODE_NAMES, Mode
from refold.views.escape import escape_to_one_line

if TYPE_CHECKING:
    from refold.client.new_conversation import NewConversation
    from refold.journal.session_index import SessionIndex


class _GivenStart(Struct, frozen=True):
    """The options of one start, from the command line and the declared agent of the start."""

    flags: Mapping[str, object]  # flags, as settings
    model: str  # "" if none is named
    environ: Mapping[str, str]
    declared: DeclaredStart


def app_of(args: Namespace, *, attended: bool) -> App:
    """Return the `App` with the settings of all layers and the options of this start."""
    return launch_of(args, attended=attended).app


def settings_of(args: Namespace) -> FolderSettings:
    """Return the settings of all layers for the directory of the session."""
    directory = find_session_directory(args).directory
    return _load_settings(args, directory, _read_declarations(args, directory))


def launch_of(
    args: Namespace,
    *,
    attended: bool,
    watched: bool = False,
    notes: bool = True,
) -> Launch:
    """Return a start with the settings of all layers and the options of the command line.

    `attended` means that a user can be asked, `watched` that a user sees the session, and
    `notes` that memory notes may be made of its messages.
    """
    place = find_session_directory(args)
    start = _read_declarations(args, place.directory)
    loaded = _load_settings(args, place.directory, start)
    declared = start.declared
    ignored = reason_settings_ignored(loaded.project, loaded.state, args.agents or "")
    added = [_added_directory(path) for path in args.add_dir]
    notices = (*place.notices, ignored, *loaded.loaded.unknown, *declared.notices)
    options = LaunchOptions(
        directory=place.directory,
        more_roots=tuple(dict.fromkeys((*place.roots, *added))),
        model=start.model,
        attended=attended,
        timed=args.timeout is not None and not attended,
        watched=watched,
        trust=args.trust,
        like=args.like,
        own_system=args.system_prompt or "",
        more_system=args.append_system_prompt or "",
        script=_absolute_path(args.script),
        record=_absolute_path(args.record),
        replay=_absolute_path(args.replay),
        tool_names=() if args.no_tools else args.tools,
        schema=schema(args.json_schema) if args.json_schema is not None else None,
        keep=not args.no_session,
        notices=tuple(notice for notice in notices if notice),
        given=loaded.limits_of_flags,
        agents=declared.profiles,
        more_tools=declared.tools,
    )
    environ = {**os.environ, **start.environ}
    app = App(loaded.settings, paths(os.environ), environ, options)
    if args.save:
        _save(args, app)
    return Launch(app, start.flags, command_names, notes=notes)


def _load_settings(args: Namespace, directory: Path, start: _GivenStart) -> FolderSettings:
    places, flags = paths(os.environ), start.flags
    return load_folder_settings(directory, places, os.environ, flags, trust=args.trust)


def options_at(
    settings: FolderSettings, directory: Path, script: str | None
) -> LaunchOptions:
    """Return the options of every start for a page, an editor or another agent."""
    return LaunchOptions(
        directory=directory,
        watched=True,
        script=_absolute_path(script),
        notices=tuple(filter(None, (settings.reason_ignored,))),
        given=settings.limits_of_flags,
    )


def launch_at(
    args: Namespace,
    paths: Paths,
    index: "SessionIndex",
    directory: Path,
    roots: Sequence[Path],
    draft: "NewConversation",
) -> Launch:
    """Return the start of the conversation `draft` for a page or an editor."""
    from refold.client.new_conversation import EditorConversation, ScheduledConversation
    from refold.config.tenant_keys import read_tenant_keys  # only workers have these keys

    schedule = None
    if isinstance(draft, ScheduledConversation) and draft.schedule:
        from refold.app.session_schedules import open_book

        schedule = open_book(paths, os.environ).find(draft.schedule)
    agent = schedule.plan.agent if schedule is not None else ""
    flags: dict[str, object] = {
        "agent": agent or None,
        "preset": draft.preset or None,
        "log_requests": draft.log_requests or None,
    }
    loaded = load_folder_settings(directory, paths, os.environ, flags, trust=draft.trust)
    options = replace(
        options_at(loaded, directory, args.script),
        more_roots=tuple(roots),
        model=draft.model or args.model,
        trust=draft.trust,
        more_system=draft.system_prompt,
        tenant_keys=read_tenant_keys(paths),
        sessions=index,
    )
    if isinstance(draft, EditorConversation):
        more_roots = tuple(dict.fromkeys((*roots, *map(Path, draft.roots))))
        options = replace(
            options, more_roots=more_roots, mcp_servers=draft.mcp_servers, editor=draft.editor,
        )  # fmt: skip
    settings = loaded.settings
    if schedule is not None:  # a run has the rights of its schedule, and no user
        from refold.app.session_schedules import narrow_settings, options_of_run

        options = options_of_run(replace(options, watched=False), schedule)
        settings = narrow_settings(settings, schedule.plan.rights)
    app = App(settings, paths, os.environ, options)
    return Launch(app, flags, command_names, notes=True)


def command_names() -> Collection[str]:
    from refold.commands.table import names

    return names()


async def open_or_resume(launch: Launch, args: Namespace) -> OpenedSession:
    """Open the session that -c or -r names, or a fork of it; otherwise open a new session."""
    if args.resume is None and not args.continue_:
        return await launch.start()
    if args.no_session:
        raise BadInput("--no-session keeps no journal, so it cannot go with -c or -r")
    app = launch.app
    id_ = app.home.find(args.resume).id if args.resume is not None else app.newest_session()
    if args.fork:
        last_event = args.at or await _end_of_turn(app, id_, args.turn)
        fork = await app.fork(id_, last_event)
        id_ = fork.id
        print_note(f"{id_}: forked from {fork.source} at event {fork.seq}")
    try:
        with pause_gc():
            session = await launch.resume(id_)
    except Held as error:
        from refold.client.session_holder import explain_held

        args.held = id_  # a terminal can join this session
        raise await to_thread.run_sync(explain_held, app.home, id_, error) from error
    if args.holder is not None:  # the process that --steal has killed
        await session.engine.record(args.holder.end_event, kept=True, author="person")
    mode = _mode_from_flags(args)
    await apply_choices(app, session.engine, args, app.options.model, mode)
    return session


async def _end_of_turn(app: App, id_: str, turn: int | None) -> int | None:
    """Return the number of the last event of turn `turn`; None if `turn` is None."""
    if turn is None:
        return None
    from refold.journal.turns import end_of_turn  # few starts name a turn

    entries, _ = await to_thread.run_sync(app.home.entries, id_)
    return end_of_turn(entries, turn, id_)


def task_of(args: Namespace) -> Task:
    """Return the task that the command line describes, for a run without a terminal."""

    async def open_session(launch: Launch) -> Session:
        """Open the session. With --steal, first kill the process that has it open."""
        if args.steal and args.resume is not None:
            from refold.cli.steal import steal

            args.holder = await to_thread.run_sync(steal, launch.app.home, args.resume)
        return Session(launch, await open_or_resume(launch, args))

    check_resume(args)
    return Task(
        text=args.text,
        input_format=args.input_format,
        output_format=args.output_format,
        partial_messages=args.include_partial_messages,
        timeout=args.timeout,
        verify=args.verify,
        resumes=args.resume is not None or args.continue_,
        inside=partial(_enter_directory_without_terminal, args),
        images=partial(images, args),
        launch=lambda attended: launch_of(args, attended=attended),
        open=open_session,
    )


def _enter_directory_without_terminal(args: Namespace) -> AbstractContextManager[object]:
    if args.resume is PICK_SESSION:  # -r without an ID
        from refold.cli.session_picker import no_terminal_error

        raise no_terminal_error()
    return enter_directory(args)


def enter_directory(args: Namespace) -> AbstractContextManager[object]:
    """Create the worktree or clone that the flags ask for; report its changes at the end.

    Raises `BadInput`. Must not be called in an event loop.
    """
    creates_directory = args.worktree is not None or args.clone is not None or args.setup
    if not creates_directory and args.resume is None and not args.continue_:
        return nullcontext()
    from refold.cli.start_directory import enter_new_directory  # few starts need it

    return enter_new_directory(args, find_session_directory)


def check_resume(args: Namespace) -> None:
    """Raise `BadInput` if --fork, --steal, --at or --turn lacks a flag that it needs."""
    for flag, purpose in (("fork", "copies a session"), ("steal", "takes a session over")):
        if getattr(args, flag) and args.resume is None and not args.continue_:
            raise BadInput(f"--{flag} {purpose}: say which, with -c or -r ID")
    if args.fork and args.steal:
        raise BadInput("--fork copies a session that is open, too: leave --steal out")
    for flag in ("at", "turn"):
        if getattr(args, flag) is not None and not args.fork:
            text = f"--{flag} needs --fork, which it says where to copy to: add --fork"
            raise BadInput(text)


def settings_from_flags(args: Namespace) -> Mapping[str, object]:
    """Return the settings that the command line and its declared agent set."""
    return _read_declarations(args, find_session_directory(args).directory).flags


def _read_declarations(args: Namespace, directory: Path) -> _GivenStart:
    """Return the options of the command line and of the declared agent that it chooses.

    `directory` is the directory of the session, which may contain files of agents.
    """
    declared = _declaration_of(args, directory)
    model = _model_from_flags(args, declared)
    address_settings, address_variables = _server_address(args, declared, model)
    flags: dict[str, object] = {  # None and () mean that the flag is not set
        **address_settings,
        "effort": args.effort,
        "roles.main.temperature": args.temperature,
        "roles.main.output_tokens": args.max_output_tokens,
        "fallback_models": tuple(args.fallback_model),
        "log_requests": args.log_requests,
        "log_level": args.log_level,
        "agent": args.agent,
        "preset": args.preset,
        "subagents.teams": args.teams,
        "memory": False if args.no_memory else None,
        "budget.dollars": args.max_budget_usd,
        "budget.tokens": args.max_tokens,
        "security_profile": args.security_profile,
        "permission_mode": _named_mode(args),
        "sandbox.user_namespaces": args.user_namespaces,
        "terminal.display": args.display,
        "limits.steps": args.max_turns,
        "permissions.allow": (*declared.allow, *args.allow),
        "permissions.ask": tuple(args.ask),
        "permissions.deny": tuple(args.deny),
    }
    options = {key: value for key, value in flags.items() if value is not None}
    environ = {**address_variables, **declared.environ}
    return _GivenStart({**declared.settings, **options}, model, environ, declared)


def _declaration_of(args: Namespace, directory: Path) -> DeclaredStart:
    """Return the options that files of agents set for this start; no options without a file."""
    if not (args.agents or has_agent_file(directory, paths(os.environ).config)):
        return DeclaredStart()
    from refold.cli.declared_start import start_from_declarations

    return start_from_declarations(args, directory)


def _save(args: Namespace, app: App) -> None:
    """For --save, store the choices of this start in the user's settings."""
    from refold.config.set_setting import remember

    model = app.options.model
    if not (model or args.effort):
        raise BadInput(
            "--save needs something to save: -m PROVIDER/MODEL, --effort, or both"
        )
    if model:
        remember(app.paths, "model", app.models.check(model))
    if args.effort:
        remember(app.paths, "effort", args.effort)


def _model_from_flags(args: Namespace, declared: DeclaredStart) -> str:
    """Return the model that the flags -m and -b name together, or ""."""
    if not args.backend:
        return args.model or declared.model
    return f"{args.backend}/{args.model}" if args.model else args.backend


def _server_address(
    args: Namespace, declared: DeclaredStart, model: str
) -> tuple[dict[str, object], Mapping[str, str]]:
    """Return the settings and the environment variables that --host and --port set.

    If refold itself contacts the provider's server, the address is a setting, and there are no
    variables. If a program contacts it, variables for the program have the address.
    """
    host, port = args.host or "", args.port or 0
    if not (host or port):
        host, port = declared.address
    if not (host or port):
        return {}, {}
    from refold.provider.command.backends import own_server

    provider = model.partition("/")[0]
    if not provider:
        raise BadInput("--host and --port need a provider: add one, such as -b ollama")
    if (address_variables := own_server(provider, host, port)) is not None:
        return {}, address_variables
    from refold.app.local_servers import own_address

    name, url = own_address(provider, host, port)
    return {f"providers.{name}.base_url": url}, {}


def _absolute_path(name: str | None) -> Path | None:
    return Path(name).expanduser().absolute() if name else None


def schema(value: str, flag: str = "--json-schema") -> Raw:
    """Parse a JSON Schema, or read it from the named file. Raises `BadInput`."""
    text = value
    if not value.strip():
        raise BadInput(f"{flag} is empty: give a JSON Schema, or a file with one")
    if not value.lstrip().startswith("{"):
        try:
            text = Path(value).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{flag} {value!r} is neither a JSON object nor a readable file: {reason_of(error)}"
            ) from error
    try:
        return Raw(msgspec.json.format(text.encode(), indent=-1))  # on one line
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadInput(f"{flag} {value!r} is not valid JSON: {error}") from error


def images(args: Namespace) -> tuple[ImageData, ...]:
    """Return the images of --image. Raises `BadInput` for an image that models cannot read."""
    if not args.image:
        return ()
    from refold.tools.images import image_file  # few starts have an image

    return tuple(image_file(Path(name).expanduser(), name) for name in args.image)


def _mode_from_flags(args: Namespace) -> Mode | None:
    """Return the mode that a flag, or a security profile in a flag, sets; None if none does."""
    from refold.config.security_profiles import SECURITY_PROFILES

    if mode := _named_mode(args):
        return mode
    profile = SECURITY_PROFILES.get(args.security_profile or "", {})
    return MODE_NAMES.get(str(profile.get("permission_mode", "")))


def _named_mode(args: Namespace) -> Mode | None:
    """Return the mode that --yolo or --permission-mode names, or None."""
    return "bypass" if args.yolo else MODE_NAMES.get(args.permission_mode or "")


def _added_directory(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise BadInput(f"--add-dir {text!r}: there is no such directory")
    return path


def find_session_directory(args: Namespace) -> SessionDirectory:
    """Return the session's directory, and set `args.resume` to the id of a resumed session.

    A resumed session keeps its directory, because its messages name files there.
    """
    index = session_index(paths(os.environ))
    is_elsewhere = args.elsewhere or args.container or args.devcontainer or args.keep
    if is_elsewhere and args.workspace is None:
        from refold.cli.start_elsewhere import directory_elsewhere

        args.workspace = directory_elsewhere(args)
    if args.resume is None:
        directory = args.workspace or current_directory()
        newest = index.newest_of(directory) if args.continue_ else None
        if newest is None:
            return SessionDirectory(directory)
        args.resume = newest.id
    from refold.headless.streams import WaitNotice

    session = index.resolve(args.resume, current_directory(), WaitNotice())
    args.resume = session.id
    return find_directory(index, session.id, current_directory())


async def apply_choices(
    app: App, session: Engine, args: Namespace, model: str, mode: Mode | None
) -> None:
    """Apply the flags to a resumed session, and replace its model if it is no longer usable."""
    inbox = session.inbox
    if model:
        await inbox.choose_model(app.models.full_name(model))
    if args.effort:
        await inbox.choose_effort(args.effort)
    if mode:
        await inbox.set_mode(mode)
    elif session.left_bypass:
        print_error(escape_to_one_line(LEFT_BYPASS.format(way="--yolo is given again")))
    if args.agent:
        from refold.agents.registry import choose_agent

        await choose_agent(inbox, app.agents, args.agent)
    own_budget = session.view.rights.budget
    # the session's own budget would take precedence over the flag
    if args.max_budget_usd and own_budget is not None:
        await inbox.set_budget(replace(own_budget, dollars=args.max_budget_usd))
    if not model and (notice := await replace_unusable_model(app, session)):
        print_error(escape_to_one_line(notice))


# While a session is loaded, a collection would find nothing to free.
@contextmanager
def pause_gc() -> Generator[None]:
    """Pause garbage collection in the block. Later collections skip all objects made before."""
    if not gc.isenabled():  # other code controls the garbage collector
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
