"""Asks clients whether changed instructions of the folder may be used, and records the answer.

This is for sessions that are open. Before a terminal opens a session, it asks by
`folder_trust`, which has the wording for every client. The question belongs to the folder.
So it is part of the status of a conversation, and not an event in the journal of one
session.
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
    return _question(offer) if offer.changes else None


def record_answer(app: App, order: InstructionsResponse) -> None:
    """Record the answer, which applies from the next turn on. It writes files: call it in a
    thread.

    Raises `AlreadyAnswered` if no instructions are changed any more, and `BadInput` if they
    have changed since the question.
    """
    offer = _offer(app)
    if not offer.changes:
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
    """Return the `TrustOffer` for changed instructions; its `changes` may be empty."""
    if app.options.trust:  # the user trusts the folder for this run, whatever changes
        changes = ()
    else:
        folders = TrustedFolders(app.paths.folders)
        changes = find_changed_texts(app.directory, app.paths, folders)
    # Only changed texts are asked about here, so the offer has no new settings or texts.
    no_new_texts = FolderTexts(root_of(app.directory))
    return TrustOffer(
        Project(app.directory), state="nothing", texts=no_new_texts, changes=changes
    )


def _question(offer: TrustOffer) -> ChangedInstructions:
    """Return the question about the changed instructions in this offer.

    Its hash changes with the texts, so that an answer is valid only for the texts that were
    shown.
    """
    changes = list[InstructionChange]()
    for change in offer.changes:
        file_change = FileChange(
            escape_name(change.path),
            kind="created" if change.trusted is None else "changed",
            text=change_text(change),
        )
        sentence = change_sentence(change, offer.project.folder)
        changes.append(InstructionChange(sentence, file_change))
    texts = [(change.path, change.trusted, change.now) for change in offer.changes]
    hash_ = digest(msgspec.json.encode(texts))
    return ChangedInstructions(hash_, offer.question, USE, KEEP, changes)
