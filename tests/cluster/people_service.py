"""Runs a web node with people in this process. A test makes the people, who need no login."""

import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.host import Host, HostPaths
from refold.client.launch import Launch
from refold.client.new_conversation import NewConversation
from refold.client.nodes.services import Services
from refold.client.nodes.web_host import WebHost
from refold.client.nodes.worker_host import WorkerHost
from refold.client.people.oidc import OidcClient
from refold.cluster.database import Database
from refold.cluster.people import People, Role
from refold.cluster.sessions import PostgreSQLSessions
from refold.config.folder_settings import load_folder_settings
from refold.config.oidc_settings import OidcSettings
from refold.config.paths import Paths
from refold.server.guard import Names
from refold.server.people.access import TOKEN_PREFIX
from refold.server.people.tenants import TenantHosts, people_application
from refold.testing.providers import Line, ScriptedProvider
from tests.cluster.asgi_client import AsgiClient

ADDRESS = "http://127.0.0.1:9"


class PeopleService:
    """A web node with people.

    `url` is the database for the role of a web node, `owner` that for the owner of the tables,
    with whose rights `people` makes people.
    """

    def __init__(self, url: str, owner: str, directory: Path) -> None:
        self.people = People(Database(owner))
        self._url, self._directory = url, directory
        settings = OidcSettings(ADDRESS, "http://127.0.0.1:9", "refold")
        self.tenants = TenantHosts(self._open_host)
        names = Names(frozenset({"127.0.0.1:9"}), frozenset({ADDRESS}))
        self.database = Database(url)
        self.app = people_application(
            People(self.database), OidcClient(settings, {}), self.tenants, names
        )

    async def token(self, tenant: str, subject: str, role: Role = "member") -> str:
        """Return a token of a person with this role, who has logged in."""
        await self.people.add_tenant(tenant)
        await self.people.log_in(tenant, subject, f"Name of {subject}", "")
        await self.people.change_person(tenant, "", subject, role=role)
        return TOKEN_PREFIX + await self.people.new_secret(tenant, subject, "token", 60.0)

    async def client(self, tenant: str, subject: str, role: Role = "member") -> AsgiClient:
        return AsgiClient(self.app, ADDRESS, await self.token(tenant, subject, role))

    @asynccontextmanager
    async def _open_host(self, tenant: str) -> AsyncGenerator[Host]:
        database = Database(self._url, tenant)
        home = PostgreSQLSessions(database, self._directory / "sessions")
        places = Paths(self._directory, self._directory, self._directory)

        def launch_at(directory: Path, _: object, draft: NewConversation) -> Launch:
            loaded = load_folder_settings(directory, places, {}, {"memory": False})
            options = LaunchOptions(directory=directory, sessions=home, model="openai/m")
            return Launch(App(loaded.settings, places, {}, options), {}, lambda: ())

        with tempfile.TemporaryDirectory() as empty:
            host_paths = HostPaths(Path(empty), self._directory, self._directory)
            yield WebHost(Services(database), home, host_paths, launch_at, is_shared=True)
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(database.close)

    @asynccontextmanager
    async def worker(
        self, tenant: str, url: str, *replies: Line, work: Path
    ) -> AsyncGenerator[WorkerHost]:
        """Yield a worker of the tenant in this process.

        `work` is the directory in which its conversations begin.
        """
        database = Database(url, tenant)
        home = PostgreSQLSessions(database, self._directory / "sessions")
        own = self._directory / "worker"
        places = Paths(own, own, own)

        def launch_at(directory: Path, _: object, draft: NewConversation) -> Launch:
            loaded = load_folder_settings(directory, places, {}, {"memory": False})
            provider = ScriptedProvider(*replies)
            options = LaunchOptions(directory=directory, sessions=home, provider=provider)
            return Launch(App(loaded.settings, places, os.environ, options), {})

        host_paths = HostPaths(work, own, places.checkpoints)
        host = WorkerHost(Services(database), home, host_paths, launch_at)
        async with host.run():
            yield host
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(database.close)

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as self.tenants.group:
            yield
            self.tenants.group.cancel_scope.cancel()
        for database in (self.database, self.people.database):
            await to_thread.run_sync(partial(database.close))
