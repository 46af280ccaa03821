"""The checks of `refold doctor` that contact neither a model nor a provider.

They check the settings, trust and keys, the machine (for example Python, the sandbox, the disk
and the terminal), and the newest session. A check yields findings, and may raise an error.
"""

import locale
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeAlias, cast

from refold import programs as starting
from refold._version import __version__
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.app.python_setup import check_engine
from refold.app.search_places import has_hook_files
from refold.app.session_index import session_index
from refold.config import credentials, keyring
from refold.config.folder_settings import untrusted_texts
from refold.config.paths import Paths
from refold.config.project import FolderTexts
from refold.config.settings_report import SettingOrigins, origins_report
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput, RefoldError, reason_of
from refold.journal.catalogue.catalogue import FILE_NAME
from refold.logs.logbook import LOG_NAME as LOG
from refold.place.sandbox import find_sandbox
from refold.place.sandbox_rules import SandboxConfig
from refold.programs import Programs
from refold.provider.spec import ProviderSpec
from refold.views.check_findings import Finding

Check: TypeAlias = "Callable[[CheckContext], Iterable[Finding]]"


class CheckContext:
    """Holds the values that the checks share. If `offline`, no provider may be contacted."""

    def __init__(
        self, folder: Path, paths: Paths, environ: Mapping[str, str], *, offline: bool
    ) -> None:
        self.folder, self.places, self.environ = folder, paths, environ
        self.offline = offline

    @cached_property
    def setting_origins(self) -> SettingOrigins:
        return origins_report(self.folder, self.places, self.environ)

    @cached_property
    def texts(self) -> FolderTexts:
        return untrusted_texts(self.folder, TrustedFolders(self.places.folders))

    @cached_property
    def file_keys(self) -> Mapping[str, str]:
        """The keys in credentials.toml, by provider; {} if the file cannot be read."""
        try:
            return credentials.read(self.places.credentials)
        except BadInput:
            return {}

    @cached_property
    def models(self) -> Models:
        """Access to the models that the settings define.

        Raises `BadInput` if the settings of a provider are invalid.
        """
        options = LaunchOptions(directory=self.folder)
        return Models(
            self.setting_origins.settings,
            self.places,
            self.environ,
            self.file_keys,
            options,
        )

    @cached_property
    def model(self) -> str:
        """The full name of the model that a session would use; "" if there is none.

        Raises `BadInput` if the settings name an invalid model.
        """
        return self.models.default()


_LOW_DISK_BYTES = 100 * 1024 * 1024  # with less free space, a long session may not fit
_SLOW_SYNC_SECONDS = 0.2  # for writing one line: every approval waits for that
_VERSION_SECONDS = 5.0  # for a program to print its version
# in seconds since 1970; this line was written in 2026, so an earlier clock is wrong
_EARLIEST_TIME = 1_767_225_600
_CLOCK_TOLERANCE_SECONDS = 60  # files on another machine may be a little newer


def check_program(context: CheckContext) -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding(
        "refold", "ok", f"{__version__}, Python {python}, {platform.platform(terse=True)}"
    )


def check_sandbox(context: CheckContext) -> Iterator[Finding]:
    """Report what confines commands, and whether it confines less than it should."""
    configured = context.setting_origins.settings.sandbox
    config = SandboxConfig(
        roots=(os.path.realpath(context.folder),), profile=configured.profile
    )
    sandbox = find_sandbox(context.environ, config)
    if sandbox.notice:
        # a notice may end with what to install
        text, _, to_install = sandbox.notice.partition(" Install ")
        advice = f"Install {to_install}" if to_install else ""
        if sandbox.kind == "off":
            yield Finding("sandbox", "warning", text)
        # these two confine commands, but less than the usual sandbox
        elif sandbox.kind in ("landlock", "seatbelt"):
            yield Finding("sandbox", "warning", text, advice)
        else:
            yield Finding("sandbox", "wrong", text, advice)
    else:
        network = "reaches the network" if configured.network else "no network unless asked"
        yield Finding(
            "sandbox", "ok", f"{sandbox.kind}, profile {configured.profile}, {network}"
        )


def check_python_engine(context: CheckContext) -> Iterator[Finding]:
    """Check the engine that runs Python code of models, unless it is CPython."""
    settings = context.setting_origins.settings.python
    if settings.engine == "cpython":
        return
    try:
        check_engine(settings)
    except BadInput as error:
        text, _, advice = str(error).partition(": ")
        yield Finding("python engine", "wrong", text, advice)
        return
    from importlib.metadata import version

    what = f"Monty {version('pydantic-monty')} runs code of models: a part of Python"
    yield Finding("python engine", "ok", what)


def check_containers(context: CheckContext) -> Iterator[Finding]:
    """Report the containers that were created for sessions, if there are any."""
    from refold.place.containers.container_leftovers import ContainerLeftovers

    containers = ContainerLeftovers(context.places.data, context.environ)
    leftovers = list(containers.find())
    for problem in containers.problems:
        yield Finding("containers", "warning", problem)
    if strays := [one.name for one in leftovers if one.kind == "stray"]:
        text = f"left by a refold that was killed: {', '.join(strays)}"
        yield Finding("containers", "warning", text, "refold storage clean removes them")
    elif leftovers:
        kept = sum(one.kind == "kept" for one in leftovers)
        images = sum(one.kind == "image" for one in leftovers)
        yield Finding("containers", "ok", f"{kept} kept, {images} images")


def check_programs(context: CheckContext) -> Iterator[Finding]:
    """Check the programs that refold uses if they are installed."""
    for name, consequence, package in (
        ("git", "there are no checkpoints and no working trees", "git"),
        ("rg", "searches are slower", "ripgrep"),
    ):
        programs = Programs(context.environ, (os.path.realpath(context.folder),))
        path = programs.find(name)
        for skipped_path, why in programs.skipped_programs(name):
            yield Finding(name, "warning", f"{skipped_path} is ignored: {why}",
                "take its directory off your PATH here")  # fmt: skip
        if not path:
            advice = f"apt install {package}, or the equivalent on your system"
            yield Finding(name, "warning", f"not installed: {consequence}", advice)
        elif version := _version(path):
            yield Finding(name, "ok", f"{version}, {path}")
        else:
            advice = f"{path} --version says why"
            yield Finding(name, "warning", f"{path} does not run: {consequence}", advice)


def check_disk(context: CheckContext) -> Iterator[Finding]:
    """Check the directories of refold, and whether the log can be written."""
    places = context.places
    directories = {
        "settings": places.config, "sessions": places.data, "logs": places.state,
    }  # fmt: skip
    if places.config == places.data:
        directories = {"all files": places.data}
    for name, path in directories.items():
        yield from _check_directory(name, path)
    log = places.state / LOG
    if log.exists() and not (log.is_file() and os.access(log, os.W_OK)):
        yield Finding("log", "warning", f"nothing can be written into {log}",
            "make it yours, or remove it")  # fmt: skip


def check_clock(context: CheckContext) -> Iterator[Finding]:
    """Check that the clock is neither before refold existed nor before its newest files."""
    now = time.time()
    today = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    newest = max(
        _modification_time(context.places.data), _modification_time(context.places.config)
    )
    if now < _EARLIEST_TIME:
        yield Finding("clock", "wrong", f"it says {today}: certificates and prices depend on it",
            "set the clock")  # fmt: skip
    elif newest > now + _CLOCK_TOLERANCE_SECONDS:
        yield Finding("clock", "warning", f"it says {today}, and files that refold wrote are newer",
            "set the clock")  # fmt: skip
    else:
        yield Finding("clock", "ok", today)


def check_language(context: CheckContext) -> Iterator[Finding]:
    encoding = locale.getpreferredencoding(do_setlocale=False)
    variables = map(context.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))
    language = next(filter(None, variables), "none set")  # the first that is set applies
    text = f"{language}, {encoding}"
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding("locale", "warning", f"{text}: letters outside ASCII may not show",
            "export LC_ALL=C.UTF-8")  # fmt: skip
    else:
        yield Finding("locale", "ok", text)


def _version(path: str) -> str:
    """Return the first line of the version that the program `path` prints; "" if it fails."""
    try:
        result = starting.run([path, "--version"], _VERSION_SECONDS)
    except (OSError, starting.TimedOut):
        return ""
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    return lines[0] if lines and not result.returncode else ""


def _check_directory(name: str, path: Path) -> Iterator[Finding]:
    """Check the rights and the free space of a directory, and the speed of writing into it."""
    exists = path.is_dir()
    # the directory itself, or the one in which it would be made
    nearest = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding("disk", "wrong", f"{name}: nothing can be written in {nearest}",
            "make it yours, or set REFOLD_HOME to a directory that is")  # fmt: skip
        return
    if exists and path.stat().st_mode & 0o077:  # any right of the group or of all users
        yield Finding(
            "disk", "warning", f"{name}: others can look into {path}", f"chmod 700 {path}"
        )
    free = shutil.disk_usage(nearest).free
    elapsed, note = 0.0, ", not made yet"
    if exists:
        try:
            elapsed = _time_sync(path)
        except OSError as error:
            problem = f"{name}: no file can be written in {path}: {reason_of(error)}"
            yield Finding("disk", "wrong", problem,
                "make room, or set REFOLD_HOME to another directory")  # fmt: skip
            return
        note = f"; sync write: {elapsed * 1000:.1f} ms"
    text = f"{name} in {path}: {_format_bytes(free)} free{note}"
    if free < _LOW_DISK_BYTES:
        yield Finding("disk", "warning", text, "make room: a session needs some")
    elif elapsed > _SLOW_SYNC_SECONDS:
        yield Finding("disk", "warning", f"{text}: each approval waits for that",
            "set REFOLD_HOME to a directory on a faster disk")  # fmt: skip
    else:
        yield Finding("disk", "ok", text)


def _time_sync(path: Path) -> float:
    """Write and sync a line in `path`, and return the seconds. Raises `OSError`."""
    file = path / f".doctor-{os.getpid()}"
    began = time.perf_counter()
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(opened, b"a line\n")
            os.fsync(opened)
        finally:
            os.close(opened)
        return time.perf_counter() - began
    finally:
        with suppress(OSError):
            file.unlink()


def _modification_time(path: Path) -> float:
    """Return the modification time in seconds since 1970; 0.0 if it cannot be read."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _format_bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def check_settings(context: CheckContext) -> Iterator[Finding]:
    """Check the settings, and the permissions of the user's files."""
    origins = context.setting_origins
    for problem in origins.problems:
        yield Finding("settings", "wrong", problem, "refold config edit")
    for file in (context.places.settings, context.places.folders):
        yield from _check_permissions(file)
    if not origins.problems:
        set_count = len(origins.chain)
        text = f"{set_count} of {len(origins.values)} set" if set_count else "all defaults"
        yield Finding("settings", "ok", f"{text} (refold config show)")


def check_trust(context: CheckContext) -> Iterator[Finding]:
    """Report settings and instructions that are ignored because they are not trusted."""
    state, texts = context.setting_origins.state, context.texts
    if state in ("new", "changed"):
        reason = "changed since you saw them" if state == "changed" else "not trusted"
        yield Finding(
            "trust", "warning", f"the settings of this folder are {reason}: they are ignored",
            "refold trust add",
        )  # fmt: skip
    if texts.found:
        yield Finding(
            "trust", "warning", f"{texts.names} has instructions for the model and is ignored",
            "refold trust add",
        )  # fmt: skip
    elif state in ("nothing", "trusted"):
        text = (
            "its settings are used" if state == "trusted" else "nothing in it needs trust"
        )
        yield Finding("trust", "ok", f"{context.folder}: {text}")


def check_hooks(context: CheckContext) -> Iterator[Finding]:
    """Check the hooks, if there are any. Raises `BadInput` for an invalid file."""
    if not has_hook_files(str(context.folder), context.places):
        return
    from refold.app.session_hooks import load_hooks

    loaded = load_hooks(str(context.folder), context.places)
    for problem in loaded.problems:
        yield Finding("hooks", "warning", problem)
    if count := len(loaded.hooks):
        noun = "hook" if count == 1 else "hooks"
        yield Finding("hooks", "ok", f"{count} {noun} (refold hooks list)")


def check_keys(context: CheckContext) -> Iterator[Finding]:
    """Check the file of keys, and report the providers that have a key."""
    file = context.places.credentials
    try:
        credentials.read(file)
    except BadInput as error:
        yield Finding("keys", "wrong", str(error))
    warning = credentials.exposure_warning(file) if file.exists() else ""
    if warning:
        text, _, advice = warning.partition(": ")
        yield Finding("keys", "warning", text, advice)
    providers = list[str]()
    for spec in context.models.connections.known:
        source = key_origin(context, spec)
        if source:
            providers.append(f"{spec.name} ({source})")
    keyring_note = ""
    if keyring.is_installed():
        keyring_note = "; a keyring is there, and was not asked"
    if providers:
        yield Finding("keys", "ok", f"{', '.join(providers)}{keyring_note}")
    else:
        state = "ok" if context.model else "warning"  # the chosen model needs no key
        yield Finding(
            "keys", state, f"no key of a provider was found{keyring_note}",
            "refold auth set PROVIDER stores one",
        )  # fmt: skip


def key_origin(context: CheckContext, spec: ProviderSpec) -> str:
    """Return the source of a provider's key; "" if there is no key.

    A `key_command` is reported as the source if it is set, but is not run.
    """
    store = context.models.connections.keys
    if key := store.in_environment(spec):
        return key.variable
    if store.command(spec):
        return "key_command"
    return "credentials.toml" if store.in_file(spec) else ""


def _check_permissions(file: Path) -> Iterator[Finding]:
    """Check whether other users can write the settings file or its directory.

    Such users could change what runs without asking.
    """
    for path in (file.parent, file):
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_mode & 0o022:  # the group or all users may write
            yield Finding(
                "settings", "wrong", f"others can change {path}", f"chmod go-w {path}"
            )
        elif status.st_uid not in (os.geteuid(), 0):  # 0 is root
            yield Finding("settings", "wrong", f"{path} belongs to another user",
                f"chown {os.geteuid()} {path}")  # fmt: skip


def check_terminal(context: CheckContext) -> Iterator[Finding]:
    """Check what the terminal can show, and whether it is large enough."""
    if not sys.stdout.isatty():
        yield Finding(
            "terminal", "ok", "the output is not a terminal: plain text is written"
        )
        return
    from refold.console.capabilities import detect_capabilities

    configured = context.setting_origins.settings.terminal
    screen = detect_capabilities(
        sys.stdout, context.environ, display=configured.display, theme=configured.theme
    )
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    name = context.environ.get("TERM", "")
    colours = "colours" if screen.color else "no colours"
    text = (
        f"{name or 'TERM is not set'}, {columns}x{rows}, {sys.stdout.encoding}, {colours}, "
        f"display {screen.display}"
    )
    if not name:
        yield Finding(
            "terminal", "warning", text, "set TERM: without it only text is written"
        )
    elif 0 < columns < _MIN_COLUMNS or 0 < rows < _MIN_ROWS:  # 0: the size is unknown
        yield Finding("terminal", "warning", text, "make the window larger")
    else:
        yield Finding("terminal", "ok", text)


_MIN_COLUMNS, _MIN_ROWS = 40, 8  # that a prompt and a response need


def check_sessions(context: CheckContext) -> Iterator[Finding]:
    """Check the journal of the newest session, and the index of all sessions."""
    try:
        index = session_index(context.places)
        entries = list(index.sessions())
    except (RefoldError, OSError) as error:
        yield Finding("sessions", "wrong", str(error))
        return
    if not entries:
        yield Finding("sessions", "ok", "there are none yet")
        return
    newest = entries[0]
    try:
        damages = index.check(newest.id).damages
    except (RefoldError, OSError) as error:
        yield Finding("sessions", "wrong", f"{newest.id} cannot be read: {error}",
            f"refold sessions check {newest.id}")  # fmt: skip
        return
    if damages:
        yield Finding("sessions", "wrong", f"{newest.id} is damaged: {damages[0]}",
            f"refold sessions check {newest.id}")  # fmt: skip
    else:
        yield Finding(
            "sessions", "ok", f"{len(entries)}, newest session intact ({newest.id})"
        )
    yield from _check_catalogue(context)


class _PragmaConnection(Protocol):
    """The method of `apsw.Connection` that its type annotations lack."""

    def pragma(self, name: str, /) -> object: ...  # returns the answer of SQLite


def _check_catalogue(context: CheckContext) -> Iterator[Finding]:
    """Check the SQLite index of the sessions, if there is one."""
    file = context.places.data / FILE_NAME
    if not file.exists():
        return
    import apsw

    try:
        opened = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        with closing(opened):
            answer = str(cast("_PragmaConnection", opened).pragma("quick_check"))
    except apsw.Error as error:
        answer = str(error)
    if answer == "ok":
        yield Finding("sessions", "ok", f"index intact ({file.stat().st_size:,} bytes)")
    else:
        yield Finding("sessions", "warning", f"index damaged: {answer}",
            "refold sessions reindex rebuilds it")  # fmt: skip
