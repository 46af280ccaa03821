"""What this machine can enforce for a command, and the sandbox of one command.

bubblewrap where it works; otherwise Landlock, which prevents writing elsewhere and TCP, and
hides nothing; on a Mac `sandbox-exec`, untested. `notice` says what is missing. `commands`
starts and ends commands.
"""

import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from refold.errors import ToolFailed
from refold.place import bubblewrap, landlock, seatbelt
from refold.place.bubblewrap import MountPlan
from refold.place.environment import KEEPS_HIDDEN
from refold.place.guarded_paths import GuardedPaths, linked_step_folders, main_git
from refold.place.landlock import Restrictions
from refold.place.port import NOTHING_MORE, CommandExtras, GuardChange, GuardReport
from refold.place.port import NetworkFilter as HostFilter
from refold.place.reaper import owner_lives, owner_token
from refold.place.sandbox_rules import (
    SOCKET_PATH,
    CommandContext,
    SandboxConfig,
    SandboxRuleBuilder,
    SandboxRules,
    no_paths,
    with_denied,
)
from refold.programs import Programs
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.place.git_index import HiddenIndexes
    from refold.place.guard_state import AllowedPaths
    from refold.place.guard_watch import GuardWatch
    from refold.place.user_git_settings import UserGitSettings
    from refold.values.hosts import ReachableHosts

Kind: TypeAlias = Literal["bubblewrap", "landlock", "seatbelt", "none", "off"]

_TMP_NAME = "refold-sandbox-"
_WITH_ABSTRACT = 6  # the first version of Landlock with abstract sockets
_BWRAP_MISSING = (
    "bubblewrap (bwrap), which commands run in, no longer exists. Install it again, or "
    "restart refold to run commands without it."
)
_NAMESPACES_ALLOWED = (
    "Commands can make namespaces (sandbox.user_namespaces is true), and detach what covers "
    "protected files while they run."
)
_FILTER_UNAVAILABLE = (
    "The command could not be kept to named hosts: bubblewrap is setuid here. Install it "
    "without that, or ask for every host."
)
_INSTALL_HINT = "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap)"


def _has_entries(directory: str) -> bool:
    try:
        return bool(directory and os.listdir(directory))
    except OSError:  # no command was ever run
        return False


def _do_nothing() -> None:
    pass


class _Capabilities(Struct, frozen=True):
    """What this machine can do, tried once, and what the user must know about it."""

    kind: Kind
    notice: str = ""
    gives_up: bool = False  # what starts a command can give up rights before
    guards_sockets: bool = False


class Launch(Struct, frozen=True):
    """How to start one command, and what to do when all of it has ended."""

    arguments: tuple[str, ...] = ()  # before the shell
    environ: Mapping[str, str] = {}
    restrictions: Restrictions | None = None  # applied before it is started
    after: Callable[[], GuardReport] = GuardReport
    beat: Callable[[], None] = _do_nothing  # call it from time to time while it runs
    mounts: MountPlan | None = None  # must be in place before the command runs
    offline: bool = False
    looking: bool = False
    guards_sockets: bool = False  # as in `CommandContext`
    reachable_socket: str = ""  # all the same, wherever the command sees it
    seccomp: bytes = b""  # the filter that bubblewrap sets for the command
    no_namespaces: bool = False  # the filter refuses them
    in_memory: tuple[str, ...] = ()  # directories in memory, without the first slash
    hosts: "ReachableHosts | None" = None  # it reaches these, through `filter`
    filter: HostFilter | None = None

    @property
    def own_space(self) -> bool:
        """Whether all processes of the command end with its first process."""
        return self.mounts is not None


def find_sandbox(
    environ: Mapping[str, str], config: SandboxConfig, sibling: "Sandbox | None" = None
) -> "Sandbox":
    """The sandbox of a session. It tests the machine when it is first used or at `begin`.

    `sibling` is another sandbox of the workspace: commands of both may run in parallel.
    """
    return Sandbox(environ, config, sibling)


class Sandbox:
    """Close it at the end of the session: it keeps a private directory for commands."""

    def __init__(
        self,
        environ: Mapping[str, str],
        config: SandboxConfig,
        sibling: "Sandbox | None" = None,
    ) -> None:
        self.config = config
        home = os.path.realpath(environ["HOME"]) if environ.get("HOME") else ""
        self._home, self._environ_of_git = home, environ
        self._layout = SandboxRuleBuilder(
            config, home, lambda: self._programs.path.split(":")
        )
        self._programs = Programs(environ, (*config.roots, *self._layout.writable))
        self._lock = Lock()
        same = sibling is not None and sibling.config.roots == config.roots
        self._sibling = sibling if same else None
        self._undone: Sequence[GuardChange] = ()
        self._tried: _Capabilities | None = None
        self._trying = Lock()

    def begin(self) -> None:
        """Test the machine in a thread. Callers that need the result wait for it."""
        Thread(target=self._capabilities, daemon=True).start()

    @property
    def kind(self) -> Kind:
        return self._capabilities().kind

    @property
    def confines(self) -> bool:
        """Whether a command can be kept from writing and from the network."""
        return self.kind in ("bubblewrap", "seatbelt")

    @property
    def filters_hosts(self) -> bool:
        """Whether commands can be limited to named hosts. A setuid sandbox cannot be entered."""
        gives_up = self.kind == "bubblewrap" and self._capabilities().gives_up
        return gives_up and self.config.filter is not None

    @property
    def notice(self) -> str:
        """What the user must know about missing protection; "" if nothing is missing."""
        return self._capabilities().notice

    @property
    def undone(self) -> Sequence[GuardChange]:
        """Changes by commands of a killed refold, undone at the start."""
        self._capabilities()
        return self._undone

    def launch(
        self,
        cwd: str,
        confines: Confinement,
        extras: CommandExtras = NOTHING_MORE,
        unread: Callable[[], Sequence[str]] = no_paths,
    ) -> Launch:
        """The sandbox of one command, which may not read `unread`.

        It reads the disk: call it from a thread. Call `after` of the result at the end.
        """
        can = self._capabilities()
        if can.kind in ("none", "off"):
            return Launch()
        within = self._limit_to_settings(confines)
        if within.hosts is not None and self.config.filter is not None:
            self.config.filter.begin()
        if not within.writes:
            rules = self._rules(cwd, within, extras, self.watch.paths(), unread)
            return self._launch(rules, extras.environ)
        from refold.place.guard_state import AllowedPaths  # a start runs no command

        opened = (*within.opened, *linked_step_folders(within.opened))
        allowed = AllowedPaths(opened, within.of_git)
        paths = self._begin_watch(allowed)
        try:
            rules = self._rules(cwd, within, extras, paths, unread)
            launch = self._launch(rules, extras.environ)
        except BaseException:
            self.watch.cancel(allowed)
            raise
        try:
            self.watch.record_unwritable(self._undetachable_mounts(launch, rules))
        except OSError as error:
            self.watch.end(allowed)
            raise self._cannot_store_error(error) from error
        after = partial(self.watch.end, allowed)
        return structs.replace(launch, after=after, beat=self.watch.record_heartbeat)

    def _undetachable_mounts(self, launch: Launch, rules: SandboxRules) -> Sequence[str]:
        """Read-only mounts that the command cannot detach."""
        if launch.mounts is None or not launch.seccomp or not launch.no_namespaces:
            return ()
        return bubblewrap.read_only_paths(rules)

    def launch_without_guards(
        self,
        cwd: str,
        confines: Confinement,
        unread: Callable[[], Sequence[str]] = no_paths,
    ) -> Launch:
        """What `launch` would return for a next command, without registering it as a writer."""
        within, paths = self._limit_to_settings(confines), self.watch.paths()
        return self._launch(self._rules(cwd, within, NOTHING_MORE, paths, unread))

    def _limit_to_settings(self, confines: Confinement) -> Confinement:
        writes = confines.writes and self.config.profile == "workspace"
        network = confines.network or self.config.network
        hosts = self._hosts(confines.hosts) if network else None
        return structs.replace(confines, writes=writes, network=network, hosts=hosts)

    def _hosts(self, request: "ReachableHosts | None") -> "ReachableHosts | None":
        """The hosts to allow; None: every host. A deny rule needs the filter, too."""
        if self.filters_hosts:
            from refold.values.hosts import ReachableHosts, every_host_but

            hosts = (request or ReachableHosts()).without(
                ReachableHosts((), tuple(self.config.denied_hosts()))
            )
            every = request is None or self.config.network
            return every_host_but(hosts) if every else hosts
        if request is not None and self.kind == "bubblewrap" and not self.config.network:
            raise ToolFailed(_FILTER_UNAVAILABLE)
        return None

    def _rules(
        self,
        cwd: str,
        confines: Confinement,
        extras: CommandExtras,
        guarded: GuardedPaths,
        unread: Callable[[], Sequence[str]],
    ) -> SandboxRules:
        with self._lock:
            private = self._private_directory  # made once, by the first caller
        guards = self._capabilities().guards_sockets
        context = CommandContext(private, cwd, guards, extras.own_tmp)
        named = dict.fromkeys((*self.config.unread(), *unread()))
        rules = self._layout.rules(context, confines, guarded, extras.seen)
        rules = with_denied(_deniable_paths(named), rules)
        git = self._programs.find("git")
        signs = confines.writes and self.config.ssh_agent
        settings = self._git_settings.signing_files(git, private) if signs else ()
        if confines.writes and not confines.narrow:
            return structs.replace(rules, settings=settings)  # git writes the index
        hidden = (*rules.unread, *rules.denied)
        copies = (*self._indexes.copies(hidden, self._git_directories, private),)
        shut = rules.shut
        if confines.writes:  # then git cannot commit, because it would commit what it sees
            its = [os.path.dirname(index) for index, _ in copies]
            shut = (*dict.fromkeys((*its, *map(main_git, its), *shut)),)
        settings = (*self._git_settings.files(git, private), *settings)
        instead = (*rules.instead, *copies)
        return structs.replace(rules, instead=instead, settings=settings, shut=shut)

    def _launch(self, rules: SandboxRules, variables: Mapping[str, str] = {}) -> Launch:
        can = self._capabilities()
        mounts = MountPlan(rules) if can.kind == "bubblewrap" else None
        return Launch(
            arguments=self._arguments(rules, mounts),
            environ=self._environ(rules, variables),
            restrictions=self._restrictions(rules),
            mounts=mounts,
            offline=not rules.network,
            looking=rules.looking,
            guards_sockets=can.guards_sockets,
            reachable_socket=dict(rules.settings).get(SOCKET_PATH, ""),
            seccomp=self._filter() if mounts else b"",
            no_namespaces=bool(mounts) and not self.config.user_namespaces,
            in_memory=bubblewrap.tmpfs_directories(rules) if mounts else (),
            hosts=rules.hosts,
            filter=self.config.filter if rules.hosts is not None else None,
        )

    def _filter(self) -> bytes:
        from refold.place.seccomp import command_filter  # not before a command

        return command_filter(
            namespaces=self.config.user_namespaces,
            asks=self._capabilities().guards_sockets,
        )

    def _begin_watch(self, allowed: "AllowedPaths") -> GuardedPaths:
        try:
            return self.watch.begin(allowed)
        except OSError as error:
            raise self._cannot_store_error(error) from error

    def _cannot_store_error(self, error: OSError) -> ToolFailed:
        return ToolFailed(
            f"The command could not be started: what must not change cannot be noted in "
            f"{self.config.states} ({error.strerror or error})."
        )

    @cached_property
    def _indexes(self) -> "HiddenIndexes":
        from refold.place.git_index import HiddenIndexes

        return HiddenIndexes()

    @cached_property
    def _git_settings(self) -> "UserGitSettings":
        from refold.place.user_git_settings import UserGitSettings

        root, agent = self.config.roots[0], self.config.ssh_agent
        return UserGitSettings(self._environ_of_git, self._home, root, agent)

    @property
    def _git_directories(self) -> tuple[str, ...]:
        return (*self.config.roots, *self._layout.repositories)

    def key_in_git(self) -> str:
        """A file in git's index that commands without approval do not see; "" for none."""
        from refold.place.git_index import first_tracked_path

        return first_tracked_path(
            (*self.watch.paths().keys, *self.config.unread()), self._git_directories
        )

    @property
    def watch(self) -> "GuardWatch":
        """The watch of all commands that write in this workspace."""
        return self._sibling.watch if self._sibling is not None else self._watch

    @cached_property
    def _watch(self) -> "GuardWatch":
        from refold.place.git_targets import user_settings
        from refold.place.guard_watch import GuardedWorkspace, GuardWatch

        config = self.config
        return GuardWatch(
            GuardedWorkspace(
                config.roots,
                tuple(self._layout.repositories),
                config.quarantine,
                config.states,
                self._home,
                user_settings(self._environ_of_git),
                config.own,
            )
        )

    def close(self) -> None:
        if "_git_settings" in self.__dict__:
            self._git_settings.close()
        if "_private_directory" in self.__dict__:
            shutil.rmtree(self._private_directory, ignore_errors=True)
            del self.__dict__["_private_directory"]
        if "_watch" in self.__dict__:
            self._watch.close()

    @cached_property
    def _private_directory(self) -> str:
        import tempfile

        directory = os.path.realpath(
            tempfile.mkdtemp(prefix=f"{_TMP_NAME}{owner_token()}.")
        )
        # For sessions that are never closed.
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        bubblewrap.fill_private_directory(directory)
        return directory

    def _capabilities(self) -> _Capabilities:
        with self._trying:
            if self._tried is None:
                if self._sibling is None and _has_entries(self.config.states):
                    from refold.place.guard_watch import undo_after_kill

                    self._undone = undo_after_kill(self._watch.workspace)
                self._tried = self._probe()
            return self._tried

    def _probe(self) -> _Capabilities:
        if self.config.profile == "off":
            return _Capabilities(
                "off", "The sandbox is off: commands can do whatever you can do."
            )
        if os.path.exists(seatbelt.PROGRAM_PATH):
            return _Capabilities(
                "seatbelt",
                "Commands run under sandbox-exec with a profile that was never tested "
                "on a Mac: do not rely on it.",
            )
        why = self._why_bwrap_unusable() or bubblewrap.why_unusable(self._bwrap)
        if not why:
            from refold.place import socket_guard  # nothing else needs it

            # A setuid bubblewrap could no longer become root.
            plain = not bubblewrap.is_setuid(self._bwrap)
            guards = plain and socket_guard.is_permitted()
            notice = _NAMESPACES_ALLOWED if self.config.user_namespaces else ""
            return _Capabilities("bubblewrap", notice, plain, guards)
        if landlock.landlock_version():
            return _Capabilities(
                "landlock",
                f"Commands run in a weak sandbox, because {why}: they cannot write outside "
                "the workspace or connect by TCP, but they can read your keys and change "
                f"protected files in the workspace. refold asks more often. {_INSTALL_HINT}.",
                gives_up=True,
            )
        return _Capabilities(
            "none",
            f"Commands run WITHOUT a sandbox, because {why}: they can do whatever "
            f"you can do. refold asks more often. {_INSTALL_HINT}.",
        )

    def _why_bwrap_unusable(self) -> str:
        skipped_programs = [] if self._bwrap else self._programs.skipped_programs("bwrap")
        return next((f"{path} is not run: {why}" for path, why in skipped_programs), "")

    @property
    def _bwrap(self) -> str:
        return self._programs.find("bwrap")

    def _arguments(self, rules: SandboxRules, mounts: MountPlan | None) -> tuple[str, ...]:
        if mounts:
            if not self._bwrap:
                raise ToolFailed(_BWRAP_MISSING)
            return tuple(mounts.arguments(self._bwrap))
        if self.kind == "seatbelt":
            return (seatbelt.PROGRAM_PATH, "-p", seatbelt.profile(rules))
        return ()

    def _restrictions(self, rules: SandboxRules) -> Restrictions | None:
        if self.kind == "landlock":
            writable = (*rules.open, self._private_directory, *_DEVICES)
            shared = ("/dev/shm",) if rules.open else ()
            return Restrictions((*writable, *shared), tcp=not rules.network, others=True)
        can_scope = (
            self._capabilities().gives_up and landlock.landlock_version() >= _WITH_ABSTRACT
        )
        return Restrictions(others=True) if can_scope else None

    def _environ(self, rules: SandboxRules, variables: Mapping[str, str]) -> dict[str, str]:
        walled, private = self.kind == "bubblewrap", self._private_directory
        visible = (
            bubblewrap.temporary_directory(rules)
            if walled
            else bubblewrap.tmp_directory(private)
        )
        places = {"TMPDIR": visible, "XDG_STATE_HOME": f"{visible}/.state"}
        if not self._layout.can_write(".cache"):
            places |= {"XDG_CACHE_HOME": f"{visible}/.cache"}
        if not self._layout.can_write(".npm"):
            places |= {"npm_config_cache": f"{visible}/.npm"}
        places = {name: places[name] for name in places.keys() - variables.keys()}
        if rules.instead and not rules.looking:
            places |= KEEPS_HIDDEN
        if rules.hosts is not None:
            from refold.place.sandbox_listener import proxy_variables

            places |= proxy_variables(rules.hosts)
        if agent := dict(rules.settings).get(SOCKET_PATH):
            places["SSH_AUTH_SOCK"] = SOCKET_PATH if walled else agent
        return places


_DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
)


def remove_strays() -> None:
    """Delete the private directories of refolds that have ended."""
    import tempfile

    folder = tempfile.gettempdir()
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_TMP_NAME) and not owner_lives(name.removeprefix(_TMP_NAME)):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _deniable_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Existing paths without links: a link cannot be covered, and its target has its own rule."""
    return tuple(p for p in paths if os.path.exists(p) and not os.path.islink(p))
