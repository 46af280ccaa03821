"""Prepares the sandbox of each command, as far as this machine can enforce one.

Commands run in bubblewrap where it works. Otherwise Landlock keeps them from using TCP and from
writing outside the workspace, but hides no files; on a Mac `sandbox-exec` is used, untested.
`notice` says what is missing. `sandbox_probe` tries out what works, and `command_starter`
starts commands.
"""

import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from threading import Lock, Thread
from typing import TYPE_CHECKING

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
from refold.place.sandbox_probe import Capabilities, Kind, probe
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


_TMP_NAME = "refold-sandbox-"
# the first version of Landlock that can restrict abstract sockets
_ABSTRACT_SOCKET_VERSION = 6
_BWRAP_MISSING = (
    "bubblewrap (bwrap), which commands run in, no longer exists. Install it again, or "
    "restart refold to run commands without it."
)
_FILTER_UNAVAILABLE = (
    "The command could not be kept to named hosts: bubblewrap is setuid here. Install it "
    "without that, or ask for every host."
)


def _has_stored_states(directory: str) -> bool:
    """Whether an earlier command has stored states of guarded paths."""
    try:
        return bool(directory and os.listdir(directory))
    except OSError:  # no command was run yet
        return False


def _do_nothing() -> None:
    pass


class Launch(Struct, frozen=True):
    """How to start one command. Call `after` when all its processes have exited."""

    arguments: tuple[str, ...] = ()  # to put before the shell
    environ: Mapping[str, str] = {}
    restrictions: Restrictions | None = None  # to apply before the command starts
    after: Callable[[], GuardReport] = GuardReport  # by default, an empty report
    beat: Callable[[], None] = _do_nothing  # call it regularly while the command runs
    mounts: MountPlan | None = None  # must be in place before the command runs
    offline: bool = False  # the command has no network
    looking: bool = False  # the command can only read
    guards_sockets: bool = False  # as in `CommandContext`
    reachable_socket: str = ""  # allowed nevertheless, wherever the command sees it
    seccomp: bytes = b""  # the filter that bubblewrap sets for the command
    no_namespaces: bool = False  # the filter refuses to make namespaces
    in_memory: tuple[str, ...] = ()  # directories in memory, without the leading slash
    hosts: "ReachableHosts | None" = None  # reachable only through `filter`
    filter: HostFilter | None = None

    @property
    def own_space(self) -> bool:
        """Whether the kernel kills all processes of the command with its first process."""
        return self.mounts is not None


def find_sandbox(
    environ: Mapping[str, str], config: SandboxConfig, sibling: "Sandbox | None" = None
) -> "Sandbox":
    """Return the sandbox of a session.

    The machine is tested by `begin`, or when the sandbox is first used. `sibling` is another
    sandbox of the same workspace, whose commands may run at the same time.
    """
    return Sandbox(environ, config, sibling)


class Sandbox:
    """The sandbox of a session, with a private directory for its commands. Close it."""

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
        has_same_roots = sibling is not None and sibling.config.roots == config.roots
        self._sibling = sibling if has_same_roots else None
        self._undone: Sequence[GuardChange] = ()
        self._probed: Capabilities | None = None
        self._probe_lock = Lock()

    def begin(self) -> None:
        """Start to test the machine, in a thread. Properties that need the result wait for it."""
        Thread(target=self._capabilities, daemon=True).start()

    @property
    def kind(self) -> Kind:
        return self._capabilities().kind

    @property
    def confines(self) -> bool:
        """Whether commands can be kept both from writing and from using the network."""
        return self.kind in ("bubblewrap", "seatbelt")

    @property
    def filters_hosts(self) -> bool:
        """Whether commands can be limited to named hosts.

        A setuid bubblewrap cannot do that, and a session may have no `filter`.
        """
        gives_up = self.kind == "bubblewrap" and self._capabilities().gives_up
        return gives_up and self.config.filter is not None

    @property
    def notice(self) -> str:
        """A sentence for the user about missing protection; "" if nothing is missing."""
        return self._capabilities().notice

    @property
    def undone(self) -> Sequence[GuardChange]:
        """Changes by commands of a killed refold that this session has undone at its start."""
        self._capabilities()
        return self._undone

    def launch(
        self,
        cwd: str,
        confines: Confinement,
        extras: CommandExtras = NOTHING_MORE,
        unread: Callable[[], Sequence[str]] = no_paths,
    ) -> Launch:
        """Return how to start one command, which may not read the paths of `unread`.

        Call it from a thread, because it reads the disk. Call `after` of the result when all
        processes of the command have exited. Raises `ToolFailed`.
        """
        if self.kind in ("none", "off"):
            return Launch()
        limited = self._limit_to_settings(confines)
        if limited.hosts is not None and self.config.filter is not None:
            self.config.filter.begin()
        if not limited.writes:
            rules = self._rules(cwd, limited, extras, self.watch.paths(), unread)
            return self._launch(rules, extras.environ)
        from refold.place.guard_state import (
            AllowedPaths,
        )  # not needed before a command runs

        opened = (*limited.opened, *linked_step_folders(limited.opened))
        allowed = AllowedPaths(opened, limited.of_git)
        paths = self._begin_watch(allowed)
        try:
            rules = self._rules(cwd, limited, extras, paths, unread)
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
        """Return the read-only mounts, if the command cannot detach any; else ()."""
        can_detach = launch.mounts is None or not launch.seccomp or not launch.no_namespaces
        return () if can_detach else bubblewrap.read_only_paths(rules)

    def launch_without_guards(
        self,
        cwd: str,
        confines: Confinement,
        unread: Callable[[], Sequence[str]] = no_paths,
    ) -> Launch:
        """Return a `Launch` to set up a sandbox before its command is known.

        Unlike with `launch`, no writing command is registered.
        """
        limited = self._limit_to_settings(confines)
        paths = self.watch.paths()
        rules = self._rules(cwd, limited, NOTHING_MORE, paths, unread)
        return self._launch(rules)

    def _limit_to_settings(self, confines: Confinement) -> Confinement:
        """Return `confines` changed by the session's settings for writing and network."""
        writes = confines.writes and self.config.profile == "workspace"
        network = confines.network or self.config.network
        hosts = self._hosts(confines.hosts) if network else None
        return structs.replace(confines, writes=writes, network=network, hosts=hosts)

    def _hosts(self, allowed: "ReachableHosts | None") -> "ReachableHosts | None":
        """Return the hosts that a command with network may reach through the filter.

        `allowed` is None if every host is. Return None if the command gets the network without
        a filter. Raises `ToolFailed` if the command needs a filter and none works here.
        """
        may_reach_every_host = allowed is None or self.config.network
        if self.filters_hosts:
            from refold.values.hosts import ReachableHosts, every_host_but

            denied = ReachableHosts(denied=tuple(self.config.denied_hosts()))
            hosts = (allowed or ReachableHosts()).without(denied)
            return every_host_but(hosts) if may_reach_every_host else hosts
        if self.kind == "bubblewrap" and not may_reach_every_host:
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
        """Return the rules for one command, with the git settings and indexes that it sees.

        If files are hidden from the command, it gets a copy of git's index in which these are
        skipped.
        """
        with self._lock:
            private = self._private_directory  # the first caller creates it
        guards_sockets = self._capabilities().guards_sockets
        context = CommandContext(private, cwd, guards_sockets, extras.own_tmp)
        denied = dict.fromkeys((*self.config.unread(), *unread()))
        rules = self._layout.rules(context, confines, guarded, extras.seen)
        rules = with_denied(_deniable_paths(denied), rules)
        git = self._programs.find("git")
        signing: tuple[tuple[str, str], ...] = ()
        if confines.writes and self.config.ssh_agent:
            signing = self._git_settings.signing_files(git, private)
        if confines.writes and not confines.narrow:
            return structs.replace(rules, settings=signing)  # git must write this index
        hidden = (*rules.unread, *rules.denied)
        copies = tuple(self._indexes.copies(hidden, self._git_directories, private))
        read_only = rules.shut
        if confines.writes:  # git must not commit: it would commit the copy of the index
            index_folders = [os.path.dirname(index) for index, _ in copies]
            git_folders = (*index_folders, *map(main_git, index_folders))
            read_only = tuple(dict.fromkeys((*git_folders, *rules.shut)))
        return structs.replace(
            rules,
            instead=(*rules.instead, *copies),
            settings=(*self._git_settings.files(git, private), *signing),
            shut=read_only,
        )

    def _launch(self, rules: SandboxRules, variables: Mapping[str, str] = {}) -> Launch:
        """Return how to start a command with these rules and the variables that the user named."""
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
        """Return the filter of system calls for a command in bubblewrap."""
        from refold.place.seccomp import command_filter  # not needed before a command runs

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
        """Return a tracked file that commands without approval do not see; "" if none."""
        from refold.place.git_index import first_tracked_path

        hidden = (*self.watch.paths().keys, *self.config.unread())
        return first_tracked_path(hidden, self._git_directories)

    @property
    def watch(self) -> "GuardWatch":
        """The watch over guarded paths, which this sandbox shares with its sibling."""
        return self._sibling.watch if self._sibling is not None else self._watch

    @cached_property
    def _watch(self) -> "GuardWatch":
        from refold.place.git_targets import user_settings
        from refold.place.guard_watch import GuardedWorkspace, GuardWatch

        config = self.config
        workspace = GuardedWorkspace(
            roots=config.roots,
            repositories=tuple(self._layout.repositories),
            quarantine=config.quarantine,
            states=config.states,
            home=self._home,
            git_settings=user_settings(self._environ_of_git),
            covered=config.own,
        )
        return GuardWatch(workspace)

    def close(self) -> None:
        """Delete the private directory, and end what watches and signs for commands."""
        # Reading a cached property would create what was not needed until now.
        if "_git_settings" in self.__dict__:
            self._git_settings.close()
        if "_private_directory" in self.__dict__:
            shutil.rmtree(self._private_directory, ignore_errors=True)
            del self.__dict__["_private_directory"]
        if "_watch" in self.__dict__:
            self._watch.close()

    @cached_property
    def _private_directory(self) -> str:
        """Return a new directory that is deleted at the latest when this process ends."""
        import tempfile

        directory = os.path.realpath(
            tempfile.mkdtemp(prefix=f"{_TMP_NAME}{owner_token()}.")
        )
        # Delete the directories of sessions that are never closed.
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        bubblewrap.fill_private_directory(directory)
        return directory

    def _capabilities(self) -> Capabilities:
        """Return what this machine can enforce, found out by the first call.

        The first call also undoes the changes of commands whose refold was killed.
        """
        with self._probe_lock:
            if self._probed is None:
                if self._sibling is None and _has_stored_states(self.config.states):
                    from refold.place.guard_watch import undo_after_kill

                    self._undone = undo_after_kill(self._watch.workspace)
                self._probed = probe(self.config, self._programs)
            return self._probed

    @property
    def _bwrap(self) -> str:
        return self._programs.find("bwrap")

    def _arguments(self, rules: SandboxRules, mounts: MountPlan | None) -> tuple[str, ...]:
        """Return the words to put before the command; none if no program confines it."""
        if mounts:
            if not self._bwrap:
                raise ToolFailed(_BWRAP_MISSING)
            return tuple(mounts.arguments(self._bwrap))
        if self.kind == "seatbelt":
            return (seatbelt.PROGRAM_PATH, "-p", seatbelt.profile(rules))
        return ()

    def _restrictions(self, rules: SandboxRules) -> Restrictions | None:
        """Return the rights that the starting thread must give up; None if it keeps all."""
        if self.kind == "landlock":
            writable = (*rules.open, self._private_directory, *_DEVICES)
            shared = ("/dev/shm",) if rules.open else ()
            return Restrictions((*writable, *shared), tcp=not rules.network, others=True)
        if not self._capabilities().gives_up:
            return None
        if landlock.landlock_version() < _ABSTRACT_SOCKET_VERSION:
            return None
        return Restrictions(others=True)

    def _environ(self, rules: SandboxRules, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that the sandbox sets for a command.

        A directory such as TMPDIR is left out if it is in `variables`, which the user named.
        """
        in_bubblewrap = self.kind == "bubblewrap"
        if in_bubblewrap:
            tmp = bubblewrap.temporary_directory(rules)
        else:
            tmp = bubblewrap.tmp_directory(self._private_directory)
        directories = {"TMPDIR": tmp, "XDG_STATE_HOME": f"{tmp}/.state"}
        if not self._layout.can_write(".cache"):
            directories["XDG_CACHE_HOME"] = f"{tmp}/.cache"
        if not self._layout.can_write(".npm"):
            directories["npm_config_cache"] = f"{tmp}/.npm"
        environ = {
            name: directories[name] for name in directories.keys() - variables.keys()
        }
        if rules.instead and not rules.looking:
            environ |= KEEPS_HIDDEN
        if rules.hosts is not None:
            from refold.place.sandbox_listener import proxy_variables

            environ |= proxy_variables(rules.hosts)
        if agent := dict(rules.settings).get(SOCKET_PATH):
            environ["SSH_AUTH_SOCK"] = SOCKET_PATH if in_bubblewrap else agent
        return environ


_DEVICES = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
)


def remove_strays() -> None:
    """Delete the private directories of refold processes that have exited."""
    import tempfile

    folder = tempfile.gettempdir()
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_TMP_NAME) and not owner_lives(name.removeprefix(_TMP_NAME)):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _deniable_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that exist and are no links.

    A link cannot be covered by a mount, and its target has a rule of its own.
    """
    return tuple(p for p in paths if os.path.exists(p) and not os.path.islink(p))
