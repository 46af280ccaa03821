"""The changes of a conversation's workspace over REST, for a review.

They are compared with the start of the session, another event, or a commit. Files are undone by the
order `rewind` with `only`. What a rule keeps from being read is left out, as in `files`.
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
    """`path` is relative to the workspace if it is inside it. Binary files have no lines: null.

    A rewind of this file to before `event` undoes the change; 0: it is compared with a commit.
    """

    path: str
    kind: Literal["created", "changed", "deleted"]
    added: int | None
    removed: int | None
    event: int


class ChangedLines(Struct, frozen=True):
    """A unified diff without its header lines; "" where only the mode or bytes differ."""

    path: str
    text: str
    cut: bool = False  # the end is missing


# pyright: reportUnusedFunction=false
# Each function below is a route: it is called by FastAPI.
def add_changes(api: Api, host: Host) -> None:
    @api.route("GET", f"{_CONVERSATION_PATH}/changes", list[ChangedFile])
    async def list_changes(id_: str, event: _Event = 1, commit: _Hash = "") -> Response:
        """The files that have changed since the session began, an event, or a commit.

        Each has counts of lines. A file that the user uploaded since is compared with what was
        uploaded. The order `rewind` with `only` restores single files.
        """
        chat = await open_conversation(host, id_)
        since = Since(event, commit)
        changes = await chat.session.workspace.changes(since)
        points = chat.session.workspace.upload_points(since)
        start = 0 if commit else event
        return json_response(
            await to_thread.run_sync(
                lambda: [
                    ChangedFile(
                        name,
                        change.kind,
                        change.added,
                        change.removed,
                        points.get(change.path, start),
                    )
                    for name, change in _readable_changes(chat, changes)
                ]
            )
        )

    @api.route("GET", f"{_CONVERSATION_PATH}/changes/lines", list[ChangedLines])
    async def list_lines(
        id_: str, paths: _Paths, event: _Event = 1, commit: _Hash = ""
    ) -> Response:
        """The changed lines of these files, up to 100, each as a diff."""
        chat = await open_conversation(host, id_)
        if strange := next((path for path in paths if "\0" in path), None):
            raise NotThere(f"there is no file {strange!r} in this workspace")
        diffs = await chat.session.workspace.diff(Since(event, commit), paths)
        return json_response(
            await to_thread.run_sync(
                lambda: [
                    ChangedLines(
                        name, diff.text[:MAX_DIFF_CHARS], len(diff.text) > MAX_DIFF_CHARS
                    )
                    for name, diff in _readable_changes(chat, diffs)
                ]
            )
        )

    @api.route("GET", f"{_CONVERSATION_PATH}/commits", list[Commit])
    async def list_commits(id_: str) -> Response:
        """The newest commits of the workspace's repository."""
        chat = await open_conversation(host, id_)
        return json_response(await chat.session.workspace.commits())


def _readable_changes(
    chat: Conversation, changes: Iterable[Changed]
) -> list[tuple[str, Changed]]:
    """Return the changes of files that may be read, each with the name of its file."""
    workspace = chat.session.workspace
    files, directory = workspace.files, workspace.root
    return [
        (_printable(relative_name(change.path, directory)), change)
        for change in changes
        if not files.why_unreadable(Real(change.path))
    ]


def _printable(name: str) -> str:
    return name.encode(errors="replace").decode()
