"""Asks a client whether changed instructions of the folder count, and records the answer.

For sessions that are open: a terminal asks before it opens one, through `folder_trust`, which
has the wording and records the answer.

The question belongs to the folder, so it is in the status of a conversation and not in the
journal of one session. It has the wording of `folder_trust` on every client.
"""

import msgspec

from refold.app.app import App
from refold.client.folder_trust import (
    KEEP,
    USE,
    TrustOffer,
    change_sentence,
    change_text,
    find_changed_texts,
)
from refold.client.order_sink import AlreadyAnswered
from refold.client.protocol import InstructionsResponse
from refold.config.project import FolderTexts, Project
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.prompts.repository import root_of
from refold.tools.file_versions import digest
from refold.values.printable_names import escape_name
from refold.views.stream_json.documents import FileChange
from refold.views.stream_json.snapshot import ChangedInstructions, InstructionChange

_ALREADY_ANSWERED = "no change of instructions waits for an answer any more"
_CHANGED_AGAIN = "the instructions changed again: read the newest change, and answer that"


def pending_question(app: App) -> ChangedInstructions | None:
    """Return the question about the folder's changed instructions; None if none changed.

    It reads files: call it in a thread. Raises `BadInput` for a damaged record.
    """
    offer = _offer(app)
    return _question(offer) if offer else None


def record_answer(app: App, order: InstructionsResponse) -> None:
    """Record the answer, which applies from the next turn on. Call it in a thread."""
    offer = _offer(app)
    if not offer:
        raise AlreadyAnswered(_ALREADY_ANSWERED)
    if _question(offer).hash != order.hash:
        raise BadInput(_CHANGED_AGAIN)
    folders = TrustedFolders(app.paths.folders)
    if not order.use:
        offer.decline(folders, app.paths.data)
        return
    offer.accept(folders, app.paths.data)
    app.reread_instructions()


def _offer(app: App) -> TrustOffer:
    root = FolderTexts(root_of(app.directory))
    changes = (
        find_changed_texts(app.directory, app.paths, TrustedFolders(app.paths.folders))
        if not app.options.trust
        else ()
    )
    return TrustOffer(Project(app.directory), "nothing", root, changes)


def _question(offer: TrustOffer) -> ChangedInstructions:
    texts = [(change.path, change.trusted, change.now) for change in offer.changes]
    changes = [
        InstructionChange(
            change_sentence(change, offer.project.folder),
            FileChange(
                escape_name(change.path),
                "created" if change.trusted is None else "changed",
                change_text(change),
            ),
        )
        for change in offer.changes
    ]
    hash_ = digest(msgspec.json.encode(texts))
    return ChangedInstructions(hash_, offer.question, USE, KEEP, changes)
