"""The workspace of a session: its files, commands and snapshots, and facts for permissions.

It connects the parts of `place/` with the settings, and collects the facts by which
`permissions/` judges calls.
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
from refold.permissions.rules import (
    Rule,
    deny_host_patterns,
    deny_read_rules,
    is_about,
    may_be_tool_of_other_session,
)
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.limits import Limits
from refold.place.port import Commands, Files, Real, Snapshots, TellAttempt
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
_MAX_OTHER_PATHS = 5_000  # paths outside of the workspace that are examined for each folder


class WorkspaceDirectories(Struct, frozen=True):
    """The directories of a workspace. Relative paths start at the first directory."""

    directory: Path
    more: tuple[Path, ...] = ()

    @property
    def real(self) -> tuple[str, ...]:
        return tuple(os.path.realpath(path) for path in (self.directory, *self.more))


class Workspace:
    """The files and commands of a session. Call `close` to release what its commands share.

    `main` is set for a worktree: files that are unreadable in the workspace `main` stay
    unreadable. `ports` are the open ports of a workspace elsewhere; None on this machine.
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
        self._directories, self._home, self._main = directories, home(environ), main
        self._own_paths = paths.own
        # Commands run scripts of skills, which may be in folders that the sandbox hides.
        self._skill_folders = (
            os.path.join(self._own_paths[0], "skills"),
            os.path.realpath(folder_of_shipped()),
        )
        self.find_secrets = main.find_secrets if main else find_secrets
        self.ports: PortsElsewhere | None = None
        # Whether other workers have the workspace too, perhaps at another path.
        self.is_movable = False
        self._code: CodeWorkspace | None = None
        self._code_lock = Lock()  # two sessions may load it at the same time
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
        # These run hooks, which the user wrote for this machine, wherever the workspace is.
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
        """The rules that apply now. A worktree has those of its main workspace."""
        return self._main.rules if self._main else self._rules

    def use_rules(self, rules: Sequence[Rule]) -> bool:
        """Use these rules from now on. Return whether they change which files may be read."""
        before, self._rules = self._rules, rules
        differs = deny_read_rules(before) != deny_read_rules(rules)
        if differs and self._code is not None:
            self._code.servers.restart()
        return differs

    def use_editor(self, editor: "Editor | None") -> None:
        """From now on, read unsaved text from this editor, and let it make changes."""
        if editor is not None and isinstance(self.files, DiskFiles):
            from refold.place.editor_files import EditorFiles, EditorGate

            self.commands.gate = EditorGate()
            self.files = EditorFiles(self.files, editor, self.commands.gate)

    @cached_property
    def sandbox(self) -> "Sandbox":
        from refold.place.sandbox import find_sandbox  # imported while the model responds
        from refold.place.sandbox_rules import SandboxConfig

        sandbox = self._settings.sandbox
        return find_sandbox(
            self._environ,
            SandboxConfig(
                roots=self._directories.real,
                profile=sandbox.profile,
                network=sandbox.network,
                user_namespaces=sandbox.user_namespaces,
                ssh_agent=self._environ.get("SSH_AUTH_SOCK", "")
                if sandbox.sign_commits
                else "",
                writable=_expand_home(sandbox.writable),
                readable=_expand_home(sandbox.readable),
                own=self._own_paths,
                shared=self._skill_folders,
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
        """Return a runner for programs that live as long as the session, each in a sandbox.

        Without `writes` they cannot change files of the workspace. They can change the
        directories `own_paths`, and those in `writable` if commands may write at all. Keys in
        the home are hidden from them. They may use the network.
        """
        from refold.place.sandbox import find_sandbox
        from refold.place.sandbox_rules import key_paths

        own_sandbox = self.sandbox
        config = own_sandbox.config
        if config.profile == "read-only" and own_paths:
            # With "read-only" nothing is writable: use "workspace", with `own_paths` alone.
            writes = False
            config = replace(
                config, profile="workspace", roots=(), writable=tuple(own_paths)
            )
        else:
            config = replace(
                config,
                roots=config.roots if writes else (),
                writable=(*config.writable, *own_paths, *writable),
            )
        limits = self.commands.limits
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
        """Return the language servers, not started yet. Call it in a thread: it waits."""
        with self._code_lock:
            if self._code is None:
                self._code = self._open_code(log)
            return self._code

    @property
    def reads_code(self) -> bool:
        """Whether `code` was called, so that language servers may run."""
        return self._code is not None

    def facts(self) -> Facts:
        """Return the facts for permission decisions. The first call tests the sandbox."""
        return self._facts

    def snapshots(self, session: str) -> Snapshots | None:
        """Return the snapshots for restoring files; None if the settings disable them."""
        if not self._settings.checkpoints:
            return None
        roots, paths, environ = self._directories.real, self._paths, self._environ
        lazy = _LazySnapshots(lambda: checkpoints(roots, paths, environ, session))
        return cast("Snapshots", lazy)

    def notices(self) -> tuple[str, ...]:
        """Return sentences for the user about missing protection."""
        undone = (f"{c.sentence(escape_name(c.path))}." for c in self.sandbox.undone)
        return (*filter(None, (self.sandbox.notice,)), *undone)

    def store_allow_rules(self, *rules: str) -> None:
        """Store allow rules for this folder. They apply to all sessions from now on."""
        trusted_folders = TrustedFolders(self._paths.folders)
        trusted_folders.store_allow_rules(self._directories.directory, *rules)

    def why_unreadable(self, path: str) -> str:
        """Return why a deny rule forbids reading this absolute path, or "" if none does."""
        return self._why_unreadable(Real(os.path.realpath(path)))

    def files_and_commands(self, rules: Sequence[Rule]) -> tuple[Files, Commands]:
        """Return the files and commands, limited also by these rules about reading."""
        files = self.files.with_restrictions(
            lambda real: self._denial(real, rules),
            lambda real: hidden_reason(real, rules, self._facts),
        )
        if not deny_read_rules(rules):
            return files, self.commands
        return files, self.commands.with_hidden_paths(lambda: self._all_unread(rules))

    @property
    def directory(self) -> str:
        return self._directories.real[0]

    @property
    def roots(self) -> tuple[str, ...]:
        """The directories of the workspace as real paths, without links."""
        return self._directories.real

    @property
    def tool_directory(self) -> str:
        """The directory in which commands start; relative paths begin there."""
        return self.directory

    @property
    def elsewhere(self) -> "Callable[[], PlaceGreeting] | None":
        """A function that describes the workspace's place; None if that is this machine."""
        return None

    def claim(self, session: str, epoch: Callable[[], int]) -> Callable[[], None] | None:
        """Make the place of a workspace elsewhere refuse older writers of a session.

        Return a function that ends the claim; None on this machine. `epoch` returns the epoch
        of the session's writer.
        """
        return None

    async def join(
        self, session: str, record: "Recorder", *, read_only: bool = False
    ) -> None:
        """Copy a session's checkpoints and announce ports, if the place is elsewhere."""

    async def settle(self) -> None:
        """Wait, for a limited time, for copies that `join` began. Call it before `close`."""

    def close(self) -> None:
        if self._code is not None:
            self._code.servers.close()
        self.commands.close()
        self._filter.close()
        if "sandbox" in self.__dict__:  # only if it was used
            self.sandbox.close()

    def _open_code(self, log: WriteLog) -> "CodeWorkspace":
        from refold.code.language_servers import LanguageServers, ServerContext
        from refold.code.source_code import CodeWorkspace
        from refold.place.sandbox import find_sandbox
        from refold.programs import Programs

        code_settings = self._settings.code
        # Language servers start without a question, so they get no network.
        config = replace(self.sandbox.config, network=False)
        commands = ShellCommands(
            self._environ, lambda: find_sandbox(self._environ, config), self.commands.limits
        )
        # A directory in the workspace might be written by the agent.
        programs = Programs(self._environ, self.roots)
        context = ServerContext(
            self.directory, commands, programs.find, log, code_settings.answer_seconds
        )
        refused = "" if self.sandbox.confines else _UNCONFINED_SERVERS
        if code_settings.servers == "off":
            refused = "language servers are off (the setting code.servers)"
        return CodeWorkspace(self.roots, LanguageServers(context), programs.find, refused)

    @cached_property
    def _facts(self) -> Facts:
        # Meanwhile a thread kills the processes that a killed refold left.
        Thread(target=_remove_strays, daemon=True).start()
        return Facts(
            roots=self._directories.real,
            home=self._home,
            own=self._own_paths,
            shared=self._skill_folders,
            trees=user_trees(self._paths, self._directories.real),
            sandboxed=self.sandbox.confines,
            asks_after_outside_text=self._settings.ask_after_outside_text,
            follow=self.files.real,
            bare_repository_part=self._git_part,
            tracked_keys=lambda: self.sandbox.key_in_git(),
            filters_hosts=self.sandbox.filters_hosts,
            git_urls=self._git_urls,
            movable_root=self.directory if self.is_movable else "",
        )

    def _git_part(self, paths: Sequence[str]) -> str:
        from refold.place.bare_repository import bare_repository_part

        return bare_repository_part(paths) or self.sandbox.watch.path_named_by_git(paths)

    def _git_urls(self) -> Sequence[str]:
        from refold.place.gitconfig import remote_urls

        return [url for root in self._directories.real for url in remote_urls(root)]

    def _why_unreadable(self, real: Real) -> str:
        return self._denial(real, self.rules) if deny_read_rules(self.rules) else ""

    def _denial(self, real: str, rules: Sequence[Rule]) -> str:
        """Return why a rule forbids reading a file, here or in the main workspace, or ""."""
        from refold.permissions.decide import why_unreadable

        here = why_unreadable(real, rules, self._facts)
        return here or (self._main._denial(real, rules) if self._main else "")

    def _all_unread_by_settings(self) -> Sequence[str]:
        return self._all_unread(self.rules) if deny_read_rules(self.rules) else ()

    def _all_unread(self, rules: Sequence[Rule]) -> Sequence[str]:
        """Return the paths that no command may read now.

        In the workspace these are all files that match a rule. Outside of it they are the paths
        that a rule names, and matches in the folders near the start of its pattern.
        """
        from refold.permissions.decide import (
            folders_with_unreadable,
            unreadable_literal_paths,
            why_unreadable,
        )
        from refold.place.all_paths import near_paths, paths_below

        facts = self._facts
        outside = {*filter(facts.outside, unreadable_literal_paths(rules, facts))}
        for folder in filter(facts.outside, folders_with_unreadable(rules, facts)):
            near = islice(near_paths(folder, self._directories.real), _MAX_OTHER_PATHS)
            outside.update(path for path in near if why_unreadable(path, rules, facts))
        inside = [
            path
            for root in self._directories.real
            for path in paths_below(root)
            if why_unreadable(path, rules, facts)
        ]
        # In a worktree, the files of the main workspace must stay hidden, too.
        in_main_workspace = self._main._all_unread(rules) if self._main else ()
        return (*inside, *outside, *in_main_workspace)


def check_tools(rules: Sequence[Rule], tools: Sequence[Tool]) -> None:
    """Raise `BadInput` for a rule about a tool that does not exist.

    A deny rule with a mistyped name would silently forbid nothing.
    """
    effects = {tool.name: tool.effect for tool in tools}
    for rule in rules:
        known = any(is_about(rule.tool, name, effect) for name, effect in effects.items())
        if not known and not may_be_tool_of_other_session(rule.tool):
            from refold.values.similar_names import similar

            best = similar(rule.tool, effects, 1)
            hint = f"did you mean {best[0]}?" if best else f"there are {', '.join(effects)}"
            raise BadInput(f"the rule {str(rule)!r} names no tool there is; {hint}")


def _temporary_directory(environ: Mapping[str, str]) -> str:
    """Return the directory for temporary files, without importing `tempfile`, which is slow."""
    named = (environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next(filter(None, named), "/tmp")


class _LazyFilter:
    """The filter for commands that may reach only named hosts, loaded at its first use."""

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
        assert self._filter is not None  # `begin` was called before
        return self._filter.open(listener, hosts, tell)

    def close(self) -> None:
        if self._filter is not None:
            self._filter.close()


class _LazySnapshots:
    """Snapshots that are opened at first use, after the first request to a model.

    It has the methods of `Snapshots`. A method that this class does not define opens them.
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
    """Return the store of the checkpoints that this session makes of these directories."""
    from refold.place.checkpoints import Checkpoints

    own = (paths.config, paths.data, paths.state)
    return Checkpoints(roots, paths.checkpoints, environ, session, own_paths=own)


def hidden_reason(real: str, rules: Sequence[Rule], facts: Facts) -> str:
    """Return why a file is left out of lists and searches, or "" if it is shown."""
    from refold.permissions.decide import is_readable

    is_shown = is_readable(real, rules, facts)
    return "" if is_shown else "it is protected: name it, and the person is asked"


def _expand_home(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(os.path.expanduser(path)) for path in paths)


def _remove_strays() -> None:
    from refold.place.reaper import reap_strays
    from refold.place.sandbox import remove_strays

    reap_strays()
    remove_strays()
