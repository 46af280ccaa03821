"""The workspace of a session that works elsewhere: over SSH, in a container, behind a command.

Its files, commands and snapshots are in the place (`place.elsewhere`). Everything else stays on this
machine: settings, trust and notes, found by the directory that stands for the place, hooks and MCP
servers, and the decisions about calls.
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
    has_read_rule,
    hidden_reason,
)
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.permissions.facts import Facts
from refold.permissions.rules import Rule
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
_MAX_PATHS = 100_000  # compared with rules before a command
_CONTAINER_NOTICE = (
    "{address}: bubblewrap does not work there, so the place itself is the only boundary of "
    "commands: they can change and read everything in it{network}."
)
_NO_SERVERS = "language servers run only on this machine, and the workspace is elsewhere"


class WorkspaceElsewhere(Workspace):
    """A workspace at `address`. Its directory on this machine stands for it."""

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
        self._made = None
        profile = sandbox.profile
        if address.is_made:
            from refold.place.containers.session_container import open_container

            self._made = open_container(
                address, paths.data, environ, network=sandbox.network
            )
            address = self._made.address
            # A sandbox in it could not be set up: its processes have no capabilities.
            profile = "off" if profile == "workspace" else profile
        wanted = PlaceSettings(
            {
                "profile": profile,
                "network": sandbox.network,
                "user_namespaces": sandbox.user_namespaces,
            },
            {
                "processes": limits.command_processes,
                "memory": limits.command_memory_mib * _MIB_BYTES,
            },
            paths.place_program,
        )
        self._pipe = Pipe(address, wanted, environ)
        self._packs = HomePacks(paths.checkpoints, self.directory, environ)
        self._at_home = CheckpointsAtHome(
            self._pipe, self._packs, keeps_files=self._made is not None
        )
        self.ports = self._ports = PortsElsewhere(self._pipe)
        self._pipe.at_news = self._note_news
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
            self._made.environment if self._made else None,
        ).with_hidden_paths(self._all_unread_by_settings)

    def _greet(self) -> PlaceGreeting:
        try:
            return self._pipe.greeting
        except BaseException:
            if self._made is not None:
                self._made.lock.release()
            raise

    def _note_news(self, greeting: PlaceGreeting) -> None:
        self._ports.note(greeting.ports)
        with suppress(OSError):  # the session has those that were stored before
            store_instructions(self.directory, greeting.instructions)

    def use_editor(self, editor: "Editor | None") -> None:
        """The files of an editor are on this machine: those of the place are never open in it."""

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
        greeting, name = self._pipe.greeting, escape_name(self._address.text)
        where = f"The workspace is {name}: {escape_name(greeting.root)} of {greeting.user}@{greeting.host}."
        kept = f"{name}: {self._at_home.notice}." if self._at_home.notice else ""
        if self._made is not None:
            return (where, *self._made.notices, *filter(None, (kept,)))
        network = (
            ", and reach its network" if greeting.has_network else ". It has no network"
        )
        boundary = (
            ""
            if greeting.confines
            else _CONTAINER_NOTICE.format(address=name, network=network)
        )
        return (where, *filter(None, (boundary, kept)))

    def close(self) -> None:
        super().close()
        self._ports.close()
        self.local_commands.close()
        self._pipe.close()
        if self._made is not None:
            self._made.lock.release()

    def _open_code(self, log: WriteLog) -> "CodeWorkspace":
        from refold.code.language_servers import LanguageServers, ServerContext
        from refold.code.source_code import CodeWorkspace

        around = ServerContext(self.directory, self.commands, _find_nothing, log, 0)
        servers = LanguageServers(around)
        return CodeWorkspace((self.tool_directory,), servers, _find_nothing, _NO_SERVERS)

    @cached_property
    def _facts(self) -> Facts:
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
        from refold.permissions.decide import unreadable_literal_paths, why_unreadable

        if not has_read_rule(rules):
            return ()
        facts = self._facts
        elsewhere = {*filter(facts.outside, unreadable_literal_paths(rules, facts))}
        inside = paths_below(self._pipe, self.tool_directory, _MAX_PATHS)
        return (
            *(path for path in inside if why_unreadable(path, rules, facts)),
            *elsewhere,
        )

    def why_unreadable(self, path: str) -> str:
        return self._why_unreadable(Real(os.path.normpath(path)))


def _find_nothing(_name: str) -> str:
    return ""
