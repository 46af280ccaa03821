"""Ports of a workspace elsewhere over REST: a page lists them, and opens one on this machine.

The page links to what is opened. It has an origin and a host name of its own, which gets no cookie of
this server (`place.elsewhere.place_ports`).
"""

from typing import Annotated

from anyio import to_thread
from fastapi import Path, Response

from refold.client.host import Host
from refold.client.types import ListeningPort
from refold.errors import BadInput
from refold.server.api import Api, json_response
from refold.server.rest import CONVERSATION_PATH, open_conversation

_REACHED_BY_OTHERS = (
    "this server is reached from other machines, and port {port} would open on this one alone: "
    "run `refold ports` on yours"
)


# pyright: reportUnusedFunction=false
# Each function below is a route: it is called by FastAPI.
def add_ports(api: Api, host: Host) -> None:
    @api.route("GET", f"{CONVERSATION_PATH}/ports", list[ListeningPort])
    async def list_ports(id_: str) -> Response:
        """The ports of a workspace elsewhere on which the user's programs listen.

        The `link` opens one on this machine; "": it is not open.
        """
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(chat.session.workspace.list_ports))

    @api.route("POST", f"{CONVERSATION_PATH}/ports/{{port}}", ListeningPort)
    async def open_port(id_: str, port: Annotated[int, Path(ge=1, le=65535)]) -> Response:
        """Open a port on this machine, while the conversation is open there."""
        if not host.paths.rights.recent:
            raise BadInput(_REACHED_BY_OTHERS.format(port=port))
        chat = await open_conversation(host, id_)
        workspace = chat.session.workspace
        return json_response(await to_thread.run_sync(workspace.open_port, port))
