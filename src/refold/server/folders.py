"""Serves lists of the folders in which a conversation can be started.

`client.folders` makes the lists.
"""

import os
from typing import Annotated

from anyio import to_thread
from fastapi import Query, Response

from refold.client.folders import FolderChoices, FolderList, folder_choices, list_folders
from refold.client.host import Host
from refold.server.api import Api, find_or_404, json_response


def add_folders(api: Api, host: Host) -> None:
    @api.route("GET", "/api/folders", FolderChoices)
    async def choices() -> Response:  # pyright: ignore[reportUnusedFunction] - a route
        """Return the usual folder, recent folders, and the roots below which a folder can
        be picked.
        """
        return json_response(await to_thread.run_sync(folder_choices, host, os.environ))

    @api.route("GET", "/api/folders/list", FolderList)
    async def list_folder(  # pyright: ignore[reportUnusedFunction] - a route
        path: Annotated[str, Query(max_length=4096)],
    ) -> Response:
        """List the folders in a folder below a root, without hidden ones."""
        return json_response(
            await to_thread.run_sync(
                lambda: find_or_404(list_folders, host, os.environ, path)
            )
        )
