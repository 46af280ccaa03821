"""The workspace of a session that works elsewhere: over SSH, in a container, behind a command.

Its files, commands and snapshots are in the place (`place.elsewhere`). Everything else stays on
this machine: hooks, MCP servers and permission decisions, and also settings, trust and notes,
which belong to a local directory that stands for the place.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from refold.app.checkpoints_at_home import CheckpointsAtHome
from refold.app.ports_elsewhere import PortsElsewhere
from refold.app.workspace import (
    Workspace,
    WorkspaceDirectories,
    hidden_reason,
)
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule, deny_read_rules
from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.directory import store_instructions
from refold.place.elsewhere.greeting import PlaceGreeting
from refold.place.elsewhere.home_packs import HomePacks
from refold.place.elsewhere.pipe import Pipe, PlaceSettings
from refold.place.elsewhere.place_commands import PlaceCommands
from refold.place.elsewhere.place_files import PlaceFiles, paths_below
from refold.place.elsewhere.place_snapshots import PlaceSnapshots
from refold.place.limits import Limits
from refold.place.port import Real, Snapshots
from refold.values.log_level import WriteLog
from refold.values.printable_names import escape_name
from refold.values.secret_mask import FindSecrets, without_secrets

if TYPE_CHECKING:
    from refold.code.source_code import CodeWorkspace
    from refold.place.editor_files import Editor
    from refold.session.recorder import Recorder

_MIB_BYTES = 1024 * 1024
_MAX_PATHS = 100_000  # paths that are compared with rules before a command
_UNCONFINED_NOTICE = (
    "{address}: bubblewrap does not work there, so the place itself is the only boundary of "
    "commands: they can change and read everything in it{network}."
)
_NO_SERVERS = "language servers run only on this machine, and the workspace is elsewhere"


class WorkspaceElsewhere(Workspace):
    """A workspace at `address`. A directory on this machine stands for it."""

    def __init__(
        self,
        address: PlaceAddress,
        settings: Settings,
        paths: Paths,
        environ: Mapping[str, str],
        directories: WorkspaceDirectories,
        *,
        find_secrets: FindSecrets = without_secrets,
    ) -> None:
        super().__init__(settings, paths, environ, directories, find_secrets=find_secrets)
        self._address = address
        sandbox, limits = settings.sandbox, settings.limits
        self._container = None
        profile = sandbox.profile
        if address.is_made:
            from refold.place.containers.session_container import open_container

            self._container = open_container(
                address, paths.data, environ, network=sandbox.network
            )
            address = self._container.address
            # A sandbox cannot be set up in the place: its processes have no capabilities.
            profile = "off" if profile == "workspace" else profile
        place_settings = PlaceSettings(
            sandbox={
                "profile": profile,
                "network": sandbox.network,
                "user_namespaces": sandbox.user_namespaces,
            },
            limits={
                "processes": limits.command_processes,
                "memory": limits.command_memory_mib * _MIB_BYTES,
            },
            cache=paths.place_program,
        )
        self._pipe = Pipe(address, place_settings, environ)
        self._packs = HomePacks(paths.checkpoints, self.directory, environ)
        self._at_home = CheckpointsAtHome(
            self._pipe, self._packs, keeps_files=self._container is not None
        )
        self.ports = self._ports = PortsElsewhere(self._pipe)
        self._pipe.at_news = self._on_new_greeting
        greeting = self._greet()
        self.files = files = PlaceFiles(
            self._pipe,
            greeting.root,
            why_unreadable=self._why_unreadable,
            why_hidden=lambda real: hidden_reason(real, self.rules, self._facts),
            find_secrets=self.find_secrets,
        )
        self._forget, self._git_part_there = files.forget, files.git_part
        self.commands = PlaceCommands(
            self._pipe,
            Limits(
                processes=limits.command_processes,
                memory=limits.command_memory_mib * _MIB_BYTES,
            ),
            self._forget,
            self._container.environment if self._container else None,
        ).with_hidden_paths(self._all_unread_by_settings)

    def _greet(self) -> PlaceGreeting:
        """Return the greeting of the place. If that fails, unlock the container."""
        try:
            return self._pipe.greeting
        except BaseException:
            if self._container is not None:
                self._container.lock.release()
            raise

    def _on_new_greeting(self, greeting: PlaceGreeting) -> None:
        """Store what a new connection reports: the open ports, and the project's instructions."""
        self._ports.note(greeting.ports)
        # If this fails, the session has the instructions that were stored before.
        with suppress(OSError):
            store_instructions(self.directory, greeting.instructions)

    def use_editor(self, editor: "Editor | None") -> None:
        """Do nothing: the files of an editor are on this machine, not in the place."""

    @property
    def tool_directory(self) -> str:
        return self._pipe.greeting.root

    @property
    def elsewhere(self) -> Callable[[], PlaceGreeting]:
        return lambda: self._pipe.greeting

    def claim(self, session: str, epoch: Callable[[], int]) -> Callable[[], None]:
        return self._pipe.claim(session, epoch)

    def snapshots(self, session: str) -> Snapshots | None:
        if not self._settings.checkpoints:
            return None
        return PlaceSnapshots(self._pipe, self._forget, self._packs)

    async def join(
        self, session: str, record: "Recorder", *, read_only: bool = False
    ) -> None:
        self._ports.join(record)
        if self._settings.checkpoints:
            await self._at_home.join(session, record, read_only=read_only)

    async def settle(self) -> None:
        await self._at_home.settle()

    def notices(self) -> tuple[str, ...]:
        """Return sentences for the user: where the workspace is, and what confines commands."""
        greeting, name = self._pipe.greeting, escape_name(self._address.text)
        where = f"The workspace is {name}: {escape_name(greeting.root)} of {greeting.user}@{greeting.host}."
        checkpoint_notice = (
            f"{name}: {self._at_home.notice}." if self._at_home.notice else ""
        )
        if self._container is not None:
            return (where, *self._container.notices, *filter(None, (checkpoint_notice,)))
        boundary = ""
        if not greeting.confines:
            network = (
                ", and reach its network" if greeting.has_network else ". It has no network"
            )
            boundary = _UNCONFINED_NOTICE.format(address=name, network=network)
        return (where, *filter(None, (boundary, checkpoint_notice)))

    def close(self) -> None:
        super().close()
        self._ports.close()
        self.local_commands.close()
        self._pipe.close()
        if self._container is not None:
            self._container.lock.release()

    def _open_code(self, log: WriteLog) -> "CodeWorkspace":
        """Return the code of the workspace. Language servers are off: they do not run there."""
        from refold.code.language_servers import LanguageServers, ServerContext
        from refold.code.source_code import CodeWorkspace

        context = ServerContext(
            self.directory, self.commands, _find_nothing, log, seconds=0
        )
        servers = LanguageServers(context)
        return CodeWorkspace((self.tool_directory,), servers, _find_nothing, _NO_SERVERS)

    @cached_property
    def _facts(self) -> Facts:
        """Return the facts for permissions, about the machine on which the place is."""
        greeting = self._pipe.greeting
        return Facts(
            roots=(greeting.root,),
            home=greeting.home,
            sandboxed=greeting.confines,
            asks_after_outside_text=self._settings.ask_after_outside_text,
            follow=self.files.real,
            renew=self._forget,
            bare_repository_part=self._git_part_there,
        )

    def _all_unread(self, rules: Sequence[Rule]) -> Sequence[str]:
        """Return the paths that commands must not see, because deny rules forbid reading them."""
        from refold.permissions.decide import unreadable_literal_paths, why_unreadable

        if not deny_read_rules(rules):
            return ()
        facts = self._facts
        outside = {*filter(facts.outside, unreadable_literal_paths(rules, facts))}
        inside = paths_below(self._pipe, self.tool_directory, _MAX_PATHS)
        return (
            *(path for path in inside if why_unreadable(path, rules, facts)),
            *outside,
        )

    def why_unreadable(self, path: str) -> str:
        return self._why_unreadable(Real(os.path.normpath(path)))


def _find_nothing(_name: str) -> str:
    return ""
