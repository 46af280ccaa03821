"""Serves the settings of a folder over REST: rules, MCP servers, skills, agents, notes,
schedules.

`folder` is a directory on the server's machine. A changed rule applies at once. Any other
change applies to new conversations, and to open ones once nothing runs in them.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from anyio import to_thread
from fastapi import Path, Query, Request, Response
from msgspec import Struct

from refold.client.host import Host
from refold.client.launch import Launch
from refold.client.settings import knowledge, mcp_servers, rules, schedules
from refold.client.settings.knowledge import (
    AgentList,
    NewNote,
    NoteList,
    SkillList,
    SkillText,
)
from refold.client.settings.mcp_servers import NewServer, ServerList, ServerRow
from refold.client.settings.rules import ChangedRule, RuleList
from refold.client.settings.schedules import ScheduleRequest, ScheduleRow
from refold.server.api import Api, find_or_404, json_response, read_body
from refold.server.model_settings import SETTINGS_PATH, Folder
from refold.values.modes import Mode

T = TypeVar("T")
_ScheduleId = Annotated[int, Path(ge=1, le=10**9)]
_SERVER_FOLDER = ""  # for settings that are the same in every folder


class RemovedServer(Struct, frozen=True):
    """The result of removing a server.

    `left` is the directory with data of the server that remains, or "".
    """

    left: str


class SeenDifferences(Struct, frozen=True, forbid_unknown_fields=True):
    """How blocked tools differ from accepted tools, as the user has seen it."""

    differences: Sequence[str]


class WantedMode(Struct, frozen=True, forbid_unknown_fields=True):
    mode: Mode


class WantedMemory(Struct, frozen=True, forbid_unknown_fields=True):
    on: bool


class Confirmation(Struct, frozen=True):
    text: str


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def add_folder_settings(api: Api, host: Host) -> None:
    _add_rules(api, host)
    _add_servers(api, host)
    _add_knowledge(api, host)
    _add_notes(api, host)
    _add_schedules(api, host)


def _add_rules(api: Api, host: Host) -> None:
    @api.route("GET", f"{SETTINGS_PATH}/rules", RuleList)
    async def list_rules(folder: Folder = "") -> Response:
        """List the permission rules that apply in a folder, and where each is set."""
        return json_response(
            await _run_in_folder(host, folder, lambda launch: rules.list_rules(launch.app))
        )

    @api.route("POST", f"{SETTINGS_PATH}/rules", RuleList, body=ChangedRule)
    async def change_rule(request: Request, folder: Folder = "") -> Response:
        """Add, change or remove a rule. The change applies at once, in running turns, too.

        With the place `user`, a deny or ask rule is added for all folders.
        """
        change = await read_body(request, ChangedRule)
        running = [chat.launch.app for chat in host.conversations]
        async with host.start_in(folder) as launch:
            await to_thread.run_sync(rules.change_rule, launch.app, change, running)
        return json_response(
            await _run_in_folder(host, folder, lambda launch: rules.list_rules(launch.app))
        )

    @api.route("PUT", f"{SETTINGS_PATH}/mode", RuleList, body=WantedMode)
    async def choose_mode(request: Request, folder: Folder = "") -> Response:
        """Make a permission mode, other than bypass, the default of new conversations."""
        wanted = await read_body(request, WantedMode)
        await _run_in_folder(
            host, folder, lambda launch: rules.choose_mode(launch.app, wanted.mode)
        )
        host.reload_settings()
        return json_response(
            await _run_in_folder(host, folder, lambda launch: rules.list_rules(launch.app))
        )


def _add_servers(api: Api, host: Host) -> None:
    path = f"{SETTINGS_PATH}/mcp"

    @api.route("GET", path, ServerList)
    async def list_servers(folder: Folder = "") -> Response:
        """List the MCP servers that apply in a folder, without starting a server."""
        live = [
            status
            for chat in host.conversations
            if chat.session.mcp is not None
            for status in chat.session.mcp.statuses()
        ]
        return json_response(
            await _run_in_folder(
                host, folder, lambda launch: mcp_servers.list_servers(launch.app, live)
            )
        )

    @api.route("POST", path, ServerList, status=201, body=NewServer)
    async def add_server(request: Request) -> Response:
        """Add a server to the user's own file, as `refold mcp add` does, without
        starting it.
        """
        server = await read_body(request, NewServer)

        def add(launch: Launch) -> ServerList:
            mcp_servers.add_server(launch.app, server)
            return mcp_servers.list_servers(launch.app)

        listed = await _run_in_folder(host, _SERVER_FOLDER, add)
        host.reload_settings()
        return json_response(listed, 201)

    @api.route("DELETE", f"{path}/{{name}}", RemovedServer)
    async def remove_server(name: str, data: bool = False) -> Response:
        """Remove a server from the user's own file; with `data`, also the data that it
        stored.
        """

        def remove(launch: Launch) -> str:
            return find_or_404(mcp_servers.remove_own, launch.app, name, data=data)

        data_directory = await _run_in_folder(host, _SERVER_FOLDER, remove)
        host.reload_settings()
        return json_response(RemovedServer(data_directory))

    @api.route("POST", f"{path}/{{name}}/test", ServerRow)
    async def try_server(name: str, folder: Folder = "") -> Response:
        """Connect to a server, and list what it offers and what has changed."""
        return json_response(await _run_in_folder(host, folder, _connection_test(name)))

    @api.route("POST", f"{path}/{{name}}/accept", ServerRow, body=SeenDifferences)
    async def accept(request: Request, name: str, folder: Folder = "") -> Response:
        """Accept the changed tools of a server, if they still differ as the user has seen."""
        shown = await read_body(request, SeenDifferences)
        row = await _run_in_folder(host, folder, _connection_test(name, shown.differences))
        host.reload_settings()
        return json_response(row)


def _connection_test(
    name: str, accept: Sequence[str] | None = None
) -> Callable[[Launch], ServerRow]:
    """Return a function that tests the MCP server `name` by `mcp_servers.try_server`.

    `accept` is an argument of `try_server`. The function raises `NotThere` if the folder
    has no such server.
    """

    def try_server(launch: Launch) -> ServerRow:
        find_or_404(mcp_servers.find_here, launch.app, name)
        return mcp_servers.try_server(launch.app, name, accept)

    return try_server


def _add_knowledge(api: Api, host: Host) -> None:
    @api.route("GET", f"{SETTINGS_PATH}/skills", SkillList)
    async def list_skills(folder: Folder = "") -> Response:
        """List the skills that apply in a folder, and the errors of invalid skills."""
        return json_response(
            await _run_in_folder(
                host, folder, lambda launch: knowledge.list_skills(launch.app)
            )
        )

    @api.route("GET", f"{SETTINGS_PATH}/skills/{{name}}", SkillText)
    async def read_skill(name: str, folder: Folder = "") -> Response:
        """Return a skill as the model reads it."""

        def read(launch: Launch) -> SkillText:
            return find_or_404(knowledge.read_skill, launch.app, name)

        return json_response(await _run_in_folder(host, folder, read))

    @api.route("GET", f"{SETTINGS_PATH}/agents", AgentList)
    async def list_agents(folder: Folder = "") -> Response:
        """List the agents that apply in a folder, and the errors of invalid agents."""
        return json_response(
            await _run_in_folder(
                host, folder, lambda launch: knowledge.list_agents(launch.app)
            )
        )


def _add_notes(api: Api, host: Host) -> None:
    @api.route("GET", f"{SETTINGS_PATH}/notes", NoteList)
    async def list_notes(folder: Folder = "") -> Response:
        """List the notes that conversations in a folder get."""
        return json_response(
            await _run_in_folder(
                host, folder, lambda launch: knowledge.list_notes(launch.app)
            )
        )

    @api.route("PUT", f"{SETTINGS_PATH}/memory", NoteList, body=WantedMemory)
    async def switch_memory(request: Request, folder: Folder = "") -> Response:
        """Switch memory on or off for all later conversations."""
        wanted = await read_body(request, WantedMemory)
        await _run_in_folder(
            host,
            folder,
            lambda launch: knowledge.switch_memory(launch.app, enabled=wanted.on),
        )
        host.reload_settings()
        return json_response(
            await _run_in_folder(
                host, folder, lambda launch: knowledge.list_notes(launch.app)
            )
        )

    @api.route("POST", f"{SETTINGS_PATH}/notes", Confirmation, status=201, body=NewNote)
    async def add_note(request: Request, folder: Folder = "") -> Response:
        """Store a note."""
        note = await read_body(request, NewNote)
        text = await _run_in_folder(
            host, folder, lambda launch: knowledge.add_note(launch.app, note.text)
        )
        return json_response(Confirmation(text), 201)

    @api.route("DELETE", f"{SETTINGS_PATH}/notes", None, status=204)
    async def forget_note(
        text: Annotated[str, Query(max_length=10_000)], folder: Folder = ""
    ) -> Response:
        """Delete the note with this text for good, and never learn it again."""

        def forget(launch: Launch) -> None:
            find_or_404(knowledge.forget_note, launch.app, text)

        await _run_in_folder(host, folder, forget)
        return Response(status_code=204)


def _add_schedules(api: Api, host: Host) -> None:
    path = f"{SETTINGS_PATH}/schedules"

    @api.route("GET", path, list[ScheduleRow])
    async def list_schedules() -> Response:
        """List the schedules that run again, in every folder."""
        return json_response(
            await _run_in_folder(
                host, _SERVER_FOLDER, lambda launch: schedules.list_schedules(launch.app)
            )
        )

    @api.route("POST", path, ScheduleRow, status=201, body=ScheduleRequest)
    async def add_schedule(request: Request, folder: Folder = "") -> Response:
        """Add a schedule with the rights of a folder, as `refold schedule add` does."""
        wanted = await read_body(request, ScheduleRequest)
        row = await _run_in_folder(
            host, folder, lambda launch: schedules.add_schedule(launch.app, wanted)
        )
        return json_response(row, 201)

    @api.route("DELETE", f"{path}/{{number}}", None, status=204)
    async def stop_schedule(number: _ScheduleId) -> Response:
        """Stop a schedule. A run that has begun continues."""

        def stop(launch: Launch) -> None:
            app = launch.app
            book = schedules.open_book(app.paths, app.environ)
            find_or_404(schedules.stop_schedule, app.paths, book, number)

        await _run_in_folder(host, _SERVER_FOLDER, stop)
        return Response(status_code=204)


async def _run_in_folder(host: Host, folder: str, function: Callable[[Launch], T]) -> T:
    """Call `function` in a thread with a `Launch` for this folder, and return its result.

    Raises `BadInput` if `folder` is not a directory, or may not be used.
    """
    async with host.start_in(folder) as launch:
        return await to_thread.run_sync(function, launch)
