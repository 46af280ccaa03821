"""The workspace of a session: its files, commands and history, and facts for permissions.

It connects the parts of `place/` with the settings, and collects the facts by which calls
are judged. `permissions/` judges them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from msgspec.structs import replace

from refold.config.layers import rules_of
from refold.config.paths import Paths, home, user_trees
from refold.config.settings import Settings
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule, deny_host_patterns, is_about, is_elsewhere, reads
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.limits import Limits
from refold.place.port import (
    Commands,
    Files,
    Real,
    Snapshots,
    TellAttempt,
)
from refold.skills.directories import folder_of_shipped
from refold.tools.contract import Tool
from refold.values.display import HostAttempt
from refold.values.log_level import WriteLog
from refold.values.printable_names import escape_name
from refold.values.secret_mask import FindSecrets, without_secrets

if TYPE_CHECKING:
    from socket import socket

    from refold.app.ports_elsewhere import PortsElsewhere
    from refold.code.source_code import CodeWorkspace
    from refold.network.filter import HostFilter
    from refold.place.checkpoints import Checkpoints
    from refold.place.editor_files import Editor
    from refold.place.elsewhere.greeting import PlaceGreeting
    from refold.place.sandbox import Sandbox
    from refold.session.recorder import Recorder
    from refold.values.hosts import ReachableHosts

_MIB_BYTES = 1024 * 1024
_UNCONFINED_SERVERS = (
    "language servers run only in a sandbox, and there is none here (refold doctor)"
)
_MAX_OTHER_PATHS = 5_000  # examined outside of the workspace


class WorkspaceDirectories(Struct, frozen=True):
    """The directories of a workspace. Relative paths start at the first."""

    directory: Path
    more: tuple[Path, ...] = ()

    @property
    def real(self) -> tuple[str, ...]:
        return tuple(os.path.realpath(path) for path in (self.directory, *self.more))


class Workspace:
    """The files and commands of a session. Must be closed: commands share resources in it.

    `main` is the workspace of which this is a worktree: its unreadable files stay
    unreadable. `ports` are those of a place elsewhere.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        directories: WorkspaceDirectories,
        main: "Workspace | None" = None,
        find_secrets: FindSecrets = without_secrets,
    ) -> None:
        self._settings, self._paths, self._environ = settings, paths, environ
        self._where, self._home, self._main = directories, home(environ), main
        self._own = paths.own
        # Commands run what skills bring; ours may lie where a sandbox hides things.
        self._shared = (
            os.path.join(self._own[0], "skills"),
            os.path.realpath(folder_of_shipped()),
        )
        self.find_secrets = main.find_secrets if main else find_secrets
        self.ports: PortsElsewhere | None = None
        self._code: CodeWorkspace | None = None
        self._code_lock = Lock()  # two sessions may be first at once
        self._filter = _LazyFilter(environ)
        self._rules: Sequence[Rule] = rules_of(settings.permissions)
        self.files: Files = DiskFiles(
            directories.directory,
            directories.more,
            why_unreadable=self._why_unreadable,
            why_hidden=lambda real: hidden_reason(real, self.rules, self._facts),
            find_secrets=self.find_secrets,
        )
        limits = settings.limits
        # For hooks, which the user wrote for this machine, wherever the workspace is.
        self.commands = self.local_commands = ShellCommands(
            environ,
            lambda: self.sandbox,
            Limits(
                processes=limits.command_processes,
                memory=limits.command_memory_mib * _MIB_BYTES,
                disks=(*directories.real, str(paths.data), _temporary_directory(environ)),
            ),
        )

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules of the settings, as they are now. A worktree has those of its main workspace."""
        return self._main.rules if self._main else self._rules

    def use_rules(self, rules: Sequence[Rule]) -> bool:
        """Use these rules from the next call on. Return True if they change what may be read."""
        before, self._rules = self._rules, rules
        differs = _read_rules(before) != _read_rules(rules)
        if differs and self._code is not None:
            self._code.servers.restart()
        return differs

    def use_editor(self, editor: "Editor | None") -> None:
        """Read unsaved text from this editor, and make changes through it, from now on."""
        if editor is not None and isinstance(self.files, DiskFiles):
            from refold.place.editor_files import EditorFiles, EditorGate

            self.commands.gate = EditorGate()
            self.files = EditorFiles(self.files, editor, self.commands.gate)

    @cached_property
    def sandbox(self) -> "Sandbox":
        from refold.place.sandbox import find_sandbox  # computed while the model responds
        from refold.place.sandbox_rules import SandboxConfig

        sandbox = self._settings.sandbox
        return find_sandbox(
            self._environ,
            SandboxConfig(
                roots=self._where.real,
                profile=sandbox.profile,
                network=sandbox.network,
                user_namespaces=sandbox.user_namespaces,
                ssh_agent=self._environ.get("SSH_AUTH_SOCK", "")
                if sandbox.sign_commits
                else "",
                writable=_expand_home(sandbox.writable),
                readable=_expand_home(sandbox.readable),
                own=self._own,
                shared=self._shared,
                quarantine=os.path.join(os.path.realpath(self._paths.data), "quarantine"),
                states=os.path.join(os.path.realpath(self._paths.data), "guarded"),
                filter=self._filter,
                denied_hosts=lambda: deny_host_patterns(self.rules),
                unread=self._all_unread_by_settings,
            ),
        )

    def server_commands(
        self, *, writes: bool, own_paths: Sequence[str] = (), writable: Sequence[str] = ()
    ) -> ShellCommands:
        """Runs programs that live as long as the session, in a sandbox of their own.

        Without `writes` they can change no file of the workspace. They can change the directories
        `own_paths`, and `writable` ones if the profile lets commands write. Keys in the home are
        hidden from them. They may use the network.
        """
        from refold.place.sandbox import find_sandbox
        from refold.place.sandbox_rules import key_paths

        config = self.sandbox.config
        if config.profile == "read-only" and own_paths:
            config = replace(config, profile="workspace", roots=(), writable=())
            writes, writable = False, ()
        config = replace(
            config,
            roots=config.roots if writes else (),
            writable=(*config.writable, *own_paths, *writable),
        )
        limits = self.commands.limits
        own_sandbox = self.sandbox
        commands = ShellCommands(
            self._environ, lambda: find_sandbox(self._environ, config, own_sandbox), limits
        )
        commands.gate = self.commands.gate if writes else None
        return commands.with_hidden_paths(lambda: tuple(key_paths(self._home)))

    @property
    def reads_only(self) -> bool:
        """Whether commands cannot change any file."""
        return self._settings.sandbox.profile == "read-only"

    def code(self, log: WriteLog) -> "CodeWorkspace":
        """Its language servers, not started yet. It tests the sandbox: call it in a thread."""
        with self._code_lock:
            if self._code is None:
                self._code = self._open_code(log)
            return self._code

    @property
    def reads_code(self) -> bool:
        """Whether `code` was called, so that language servers may run."""
        return self._code is not None

    def facts(self) -> Facts:
        """The facts by which calls are judged. The first call tests the sandbox."""
        return self._facts

    def snapshots(self, session: str) -> Snapshots | None:
        """The snapshots to restore files; None if the settings disable them."""
        if not self._settings.checkpoints:
            return None
        roots, paths, environ = self._where.real, self._paths, self._environ
        lazy = _LazySnapshots(lambda: checkpoints(roots, paths, environ, session))
        return cast("Snapshots", lazy)

    def notices(self) -> tuple[str, ...]:
        """Missing protection, as sentences for the user."""
        undone = (f"{one.sentence(escape_name(one.path))}." for one in self.sandbox.undone)
        return (*filter(None, (self.sandbox.notice,)), *undone)

    def store_allow_rules(self, *rules: str) -> None:
        """Store `rules` that allow calls in this folder from now on, in all sessions."""
        TrustedFolders(self._paths.folders).store_allow_rules(self._where.directory, *rules)

    def why_unreadable(self, path: str) -> str:
        """The reason why a deny rule forbids reading this absolute path, or ""."""
        return self._why_unreadable(Real(os.path.realpath(path)))

    def files_and_commands(self, rules: Sequence[Rule]) -> tuple[Files, Commands]:
        """The files and commands, with these additional rules about reading."""
        files = self.files.with_restrictions(
            lambda real: self._denial(real, rules),
            lambda real: hidden_reason(real, rules, self._facts),
        )
        if not has_read_rule(rules):
            return files, self.commands
        return files, self.commands.with_hidden_paths(lambda: self._all_unread(rules))

    @property
    def directory(self) -> str:
        return self._where.real[0]

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories of the workspace as real paths, without links."""
        return self._where.real

    @property
    def tool_directory(self) -> str:
        """The directory that commands and relative paths of tools start from."""
        return self.directory

    @property
    def elsewhere(self) -> "Callable[[], PlaceGreeting] | None":
        """Describes the place of the workspace; None if that is this machine."""
        return None

    def claim(self, session: str, epoch: Callable[[], int]) -> Callable[[], None] | None:
        """Have a place elsewhere refuse older writers of this session. The result ends that."""
        return None

    async def join(
        self, session: str, record: "Recorder", *, read_only: bool = False
    ) -> None:
        """Bring checkpoints of this session home and announce ports, if it is elsewhere."""

    async def settle(self) -> None:
        """Wait, for a while, for what `join` has begun. Call it before `close`."""

    def close(self) -> None:
        if self._code is not None:
            self._code.servers.close()
        self.commands.close()
        self._filter.close()
        if "sandbox" in self.__dict__:  # only if it was created
            self.sandbox.close()

    def _open_code(self, log: WriteLog) -> "CodeWorkspace":
        from refold.code.language_servers import LanguageServers, ServerContext
        from refold.code.source_code import CodeWorkspace
        from refold.place.sandbox import find_sandbox
        from refold.programs import Programs

        wanted = self._settings.code
        # They run without a question, so they only read, and never reach a network.
        config = replace(self.sandbox.config, network=False)
        commands = ShellCommands(
            self._environ, lambda: find_sandbox(self._environ, config), self.commands.limits
        )
        # One that lies in the workspace could have been written by the agent.
        programs = Programs(self._environ, self.roots)
        surroundings = ServerContext(
            self.directory, commands, programs.find, log, wanted.answer_seconds
        )
        refused = "" if self.sandbox.confines else _UNCONFINED_SERVERS
        if wanted.servers == "off":
            refused = "language servers are off (the setting code.servers)"
        return CodeWorkspace(
            self.roots, LanguageServers(surroundings), programs.find, refused
        )

    @cached_property
    def _facts(self) -> Facts:
        # Meanwhile, processes left by a killed refold are killed.
        Thread(target=_remove_strays, daemon=True).start()
        return Facts(
            roots=self._where.real,
            home=self._home,
            own=self._own,
            shared=self._shared,
            trees=user_trees(self._paths, self._where.real),
            sandboxed=self.sandbox.confines,
            asks_after_outside_text=self._settings.ask_after_outside_text,
            follow=self.files.real,
            bare_repository_part=self._git_part,
            tracked_keys=lambda: self.sandbox.key_in_git(),
            filters_hosts=self.sandbox.filters_hosts,
            git_urls=self._git_urls,
        )

    def _git_part(self, paths: Sequence[str]) -> str:
        from refold.place.guarded_paths import bare_repository_part

        return bare_repository_part(paths) or self.sandbox.watch.path_named_by_git(paths)

    def _git_urls(self) -> Sequence[str]:
        from refold.place.gitconfig import remote_urls

        return [url for root in self._where.real for url in remote_urls(root)]

    def _why_unreadable(self, real: Real) -> str:
        return self._denial(real, self.rules) if has_read_rule(self.rules) else ""

    def _denial(self, real: str, rules: Sequence[Rule]) -> str:
        from refold.permissions.decide import why_unreadable

        main = self._main
        return why_unreadable(real, rules, self._facts) or (
            main._denial(real, rules) if main else ""
        )

    def _all_unread_by_settings(self) -> Sequence[str]:
        return self._all_unread(self.rules) if has_read_rule(self.rules) else ()

    def _all_unread(self, rules: Sequence[Rule]) -> Sequence[str]:
        """The paths that no command may read now.

        In the workspace these are all files that match a rule. Elsewhere they are the paths
        that a rule names, and matches in the folders near the start of its pattern.
        """
        from refold.permissions.decide import (
            folders_with_unreadable,
            unreadable_literal_paths,
            why_unreadable,
        )
        from refold.place.all_paths import near_paths, paths_below

        facts = self._facts
        elsewhere = {*filter(facts.outside, unreadable_literal_paths(rules, facts))}
        for folder in filter(facts.outside, folders_with_unreadable(rules, facts)):
            near = islice(near_paths(folder, self._where.real), _MAX_OTHER_PATHS)
            elsewhere.update(path for path in near if why_unreadable(path, rules, facts))
        paths = [
            path
            for root in self._where.real
            for path in paths_below(root)
            if why_unreadable(path, rules, facts)
        ]
        return (*paths, *elsewhere, *(self._main._all_unread(rules) if self._main else ()))


def check_tools(rules: Sequence[Rule], tools: Sequence[Tool]) -> None:
    """Raise `BadInput` for a rule about an unknown tool.

    A deny rule with a typo in its name would silently forbid nothing.
    """
    here = {tool.name: tool.effect for tool in tools}
    for rule in rules:
        known = any(is_about(rule.tool, name, effect) for name, effect in here.items())
        if not known and not is_elsewhere(rule.tool):
            from refold.values.similar_names import similar

            best = similar(rule.tool, here, 1)
            hint = f"did you mean {best[0]}?" if best else f"there are {', '.join(here)}"
            raise BadInput(f"the rule {str(rule)!r} names no tool there is; {hint}")


def _temporary_directory(environ: Mapping[str, str]) -> str:
    """The directory that `tempfile` would find; importing `tempfile` takes long."""
    named = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next(filter(None, named), "/tmp")


class _LazyFilter:
    """The filter of commands with named hosts, loaded with the first such command."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ, self._lock = environ, Lock()
        self._filter: HostFilter | None = None

    def begin(self) -> None:
        with self._lock:
            if self._filter is None:
                from refold.network.filter import HostFilter

                self._filter = HostFilter(self._environ)
        self._filter.begin()

    def open(
        self,
        listener: "socket",
        hosts: "ReachableHosts",
        tell: TellAttempt | None = None,
    ) -> Callable[[], tuple[HostAttempt, ...]]:
        assert self._filter is not None  # `begin` came first
        return self._filter.open(listener, hosts, tell)

    def close(self) -> None:
        if self._filter is not None:
            self._filter.close()


class _LazySnapshots:
    """Snapshots that are opened at first use, after the first request to a model.

    It has the methods of `Snapshots`; those that are not here open them.
    """

    def __init__(self, open_snapshots: Callable[[], Snapshots]) -> None:
        self._open, self._opened = open_snapshots, False

    @property
    def is_behind(self) -> bool:
        return self._opened and self._snapshots.is_behind

    def forget(self) -> None:
        if self._opened:
            self._snapshots.forget()

    def __getattr__(self, name: str) -> object:
        return getattr(self._snapshots, name)

    @cached_property
    def _snapshots(self) -> Snapshots:
        self._opened = True
        return self._open()


def checkpoints(
    roots: Sequence[Path | str], paths: Paths, environ: Mapping[str, str], session: str
) -> "Checkpoints":
    """The store for snapshots of these directories in this session."""
    from refold.place.checkpoints import Checkpoints

    own = (paths.config, paths.data, paths.state)
    return Checkpoints(roots, paths.checkpoints, environ, session, own_paths=own)


def has_read_rule(rules: Sequence[Rule]) -> bool:
    return bool(_read_rules(rules))


def _read_rules(rules: Sequence[Rule]) -> frozenset[str]:
    """The deny rules about reading."""
    denied = (rule for rule in rules if rule.verdict == "deny" and reads(rule.tool))
    return frozenset(map(str, denied))


def hidden_reason(real: str, rules: Sequence[Rule], facts: Facts) -> str:
    from refold.permissions.decide import is_readable

    shown = is_readable(real, rules, facts)
    return "" if shown else "it is protected: name it, and the person is asked"


def _expand_home(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(os.path.expanduser(path)) for path in paths)


def _remove_strays() -> None:
    from refold.place.reaper import reap_strays
    from refold.place.sandbox import remove_strays

    reap_strays()
    remove_strays()
