"""Serves the changes of files in a conversation's workspace over REST, for a review.

The files are compared with their state at the start of the session, before another event,
or in a commit. The order `rewind` with `only` undoes the changes of single files. Files
that a rule hides are left out, as in `files`.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeVar

from anyio import to_thread
from fastapi import Query, Response
from msgspec import Struct

from refold.client.compare_files import Since
from refold.client.host import Conversation, Host
from refold.client.types import Commit, FileChange, Real
from refold.server.api import Api, NotThere, json_response
from refold.server.rest import open_conversation
from refold.values.display import Diff
from refold.values.path_names import relative_name

Changed = TypeVar("Changed", FileChange, Diff)
MAX_DIFF_CHARS = 500_000  # of one file
MAX_PATHS = 100  # in one request
_CONVERSATION_PATH = "/api/conversations/{id_}"
_Event = Annotated[int, Query(ge=1, le=2**53, description="compare with before this event")]
_Hash = Annotated[str, Query(max_length=64, description="compare with this commit instead")]
_Paths = Annotated[list[str], Query(max_length=MAX_PATHS, alias="path")]


class ChangedFile(Struct, frozen=True):
    """A changed file.

    `path` is relative to the workspace if the file is inside it. Binary files have no line
    counts: null.

    A rewind of this file to before `event` undoes the change. `event` is 0 if the file is
    compared with a commit.
    """

    path: str
    kind: Literal["created", "changed", "deleted"]
    added: int | None
    removed: int | None
    event: int


class ChangedLines(Struct, frozen=True):
    """A unified diff without its header lines; "" if only the mode or bytes differ."""

    path: str
    text: str
    cut: bool = False  # the end is missing


# pyright: reportUnusedFunction=false
# FastAPI calls each function below as a route.
def add_changes(api: Api, host: Host) -> None:
    @api.route("GET", f"{_CONVERSATION_PATH}/changes", list[ChangedFile])
    async def list_changes(id_: str, event: _Event = 1, commit: _Hash = "") -> Response:
        """List the files that have changed since the session began, an event, or a commit.

        Each file has counts of lines. A file that the user uploaded since is compared with
        the uploaded content. The order `rewind` with `only` restores single files.
        """
        chat = await open_conversation(host, id_)
        since = Since(event, commit)
        changes = await chat.session.workspace.changes(since)
        # A rewind of an uploaded file to its event restores the uploaded content.
        upload_events = chat.session.workspace.upload_points(since)
        event_of_others = 0 if commit else event
        readable = await to_thread.run_sync(_readable_changes, chat, changes)
        changed_files = [
            ChangedFile(
                path=name,
                kind=change.kind,
                added=change.added,
                removed=change.removed,
                event=upload_events.get(change.path, event_of_others),
            )
            for name, change in readable
        ]
        return json_response(changed_files)

    @api.route("GET", f"{_CONVERSATION_PATH}/changes/lines", list[ChangedLines])
    async def list_lines(
        id_: str, paths: _Paths, event: _Event = 1, commit: _Hash = ""
    ) -> Response:
        """Return the changed lines of up to 100 files, as a diff for each file."""
        chat = await open_conversation(host, id_)
        for path in paths:
            if "\0" in path:
                raise NotThere(f"there is no file {path!r} in this workspace")
        diffs = await chat.session.workspace.diff(Since(event, commit), paths)
        readable = await to_thread.run_sync(_readable_changes, chat, diffs)
        changed_lines = [
            ChangedLines(
                path=name,
                text=diff.text[:MAX_DIFF_CHARS],
                cut=len(diff.text) > MAX_DIFF_CHARS,
            )
            for name, diff in readable
        ]
        return json_response(changed_lines)

    @api.route("GET", f"{_CONVERSATION_PATH}/commits", list[Commit])
    async def list_commits(id_: str) -> Response:
        """Return the newest commits of the workspace's repository."""
        chat = await open_conversation(host, id_)
        return json_response(await chat.session.workspace.commits())


def _readable_changes(
    chat: Conversation, changes: Iterable[Changed]
) -> list[tuple[str, Changed]]:
    """Return the changes of files that may be read, each with the name of its file.

    The name is relative to the workspace if the file is inside it.
    """
    workspace = chat.session.workspace
    files, directory = workspace.files, workspace.root
    return [
        (_printable(relative_name(change.path, directory)), change)
        for change in changes
        if not files.why_unreadable(Real(change.path))
    ]


def _printable(name: str) -> str:
    """Return the name with `?` for each byte that is not a character, so that JSON can
    encode it.
    """
    return name.encode(errors="replace").decode()
