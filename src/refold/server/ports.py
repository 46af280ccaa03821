"""Serves the ports of a workspace on another machine over REST: lists and forwards ports.

The link to a forwarded port has a host name of its own, so no cookie of this server is sent
to the port (`place.elsewhere.place_ports`).
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
# FastAPI calls each function below as a route.
def add_ports(api: Api, host: Host) -> None:
    @api.route("GET", f"{CONVERSATION_PATH}/ports", list[ListeningPort])
    async def list_ports(id_: str) -> Response:
        """List the ports of a workspace elsewhere on which the user's programs listen.

        `link` opens the port on the machine of the server; "" if the port is not forwarded.
        """
        chat = await open_conversation(host, id_)
        return json_response(await to_thread.run_sync(chat.session.workspace.list_ports))

    @api.route("POST", f"{CONVERSATION_PATH}/ports/{{port}}", ListeningPort)
    async def open_port(id_: str, port: Annotated[int, Path(ge=1, le=65535)]) -> Response:
        """Forward a port to the machine of the server, while it has the conversation
        open.
        """
        if not host.paths.rights.recent:
            raise BadInput(_REACHED_BY_OTHERS.format(port=port))
        chat = await open_conversation(host, id_)
        workspace = chat.session.workspace
        return json_response(await to_thread.run_sync(workspace.open_port, port))
