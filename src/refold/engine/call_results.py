"""Turns what a tool returned into the result of its call.

The model reads the result, so its length is limited; a longer result is stored as a blob, and
the model gets the name of the blob.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from refold.engine.world import Record, World
from refold.errors import BadInput, JournalError
from refold.journal.events.kinds import Ended
from refold.tools.contract import ImageData, Reply
from refold.values.display import Checklist, Note, Shown
from refold.values.messages import Image
from refold.values.text import clean, escape_tool_text


async def end_as_failed(id_: str, words: str, world: World, record: Record) -> Ended:
    """Return the end of a failed call. `words`, the text for the model, are escaped and cut."""
    escaped, unseen = escape_tool_text(words)
    text, full_blob = await _shorten(escaped, world, record)
    note = _invisible_characters_note(unseen)
    return Ended(id_, "failed", text, shown=note, full_blob=full_blob)


async def end_as_done(id_: str, reply: Reply, world: World, record: Record) -> Ended:
    """Return the end of a call with the tool's reply. Long text is shortened."""
    escaped, unseen = escape_tool_text(reply.text)
    text, full_blob = await _shorten(escaped, world, record, is_complete=reply.whole)
    versions = tuple((version.path, version.sha256) for version in reply.seen)
    shown = tuple(_limit_shown(part, world.longest_result) for part in reply.shown)
    shown += _invisible_characters_note(unseen)
    try:
        images, notes = await _store_images(reply.images, record)
    except JournalError as error:  # the call was executed, and must be recorded
        images, notes = (), (f"The image could not be kept: {error}",)
    text = "\n".join((text, *(f"({note})" for note in notes)))
    end = Ended(
        id_,
        "done",
        text,
        shown,
        file_hashes=versions,
        full_blob=full_blob,
        control=reply.control,
        images=images,
    )
    return replace(end, outside=True) if reply.outside else end


def _invisible_characters_note(unseen: int) -> tuple[Shown, ...]:
    """Return a note for the user about `unseen` invisible characters; () if there are none.

    They may hide a message to the model.
    """
    if not unseen:
        return ()
    if unseen == 1:
        characters = "1 invisible character is"
    else:
        characters = f"{unseen:,} invisible characters are"
    return (Note(f"{characters} written out for the model"),)


async def _store_images(
    images: Sequence[ImageData], record: Record
) -> tuple[tuple[Image, ...], tuple[str, ...]]:
    """Store the images as they are sent to the model. Return them, and notes on their
    conversion.
    """
    stored, notes = list[Image](), list[str]()
    for image in images:
        try:
            stored_image, note = await record.put_image(image)
        except BadInput as error:
            notes.append(f"The image cannot be shown: {error}")
            continue
        stored.append(stored_image)
        if note:
            notes.append(f"The image was {note}")
    return tuple(stored), tuple(notes)


def _limit_shown(shown: Shown, limit: int) -> Shown:
    """Return `shown`, cut to `limit`, because the journal stores it, too."""
    if isinstance(shown, Checklist) or len(shown.text) <= limit:
        return shown  # the journal has all todos of a checklist anyway
    left_out = f"\n[… {len(shown.text) - limit} characters are left out here …]\n"
    head_chars = limit // 2
    tail_chars = limit - head_chars
    text = shown.text[:head_chars] + left_out + shown.text[-tail_chars:]
    return replace(shown, text=text)


async def _shorten(
    text: str, world: World, record: Record, *, is_complete: bool = True
) -> tuple[str, str]:
    """Return `text`, shortened if necessary, and the name of the blob with the whole text.

    The name is "" if nothing was cut, or if the text could not be stored. `is_complete` is
    False if the tool itself left something out.
    """
    limit = world.longest_result
    if len(text) <= limit:
        return text, ""
    if is_complete:
        blob_content, characters = "the whole", "characters"
    else:
        blob_content, characters = "what was kept of it", "characters that were kept"
    try:
        name = await record.put(clean(text).encode())
        hint = f'read_file with path "blob:{name}" reads {blob_content}'
    except JournalError as error:  # the call was executed, and must be recorded
        name, hint = "", f"The full text could not be stored: {error}"
    left_out = f"{len(text) - limit} of {len(text)} {characters} are left out here"
    half = limit // 2
    return f"{text[:half]}\n[… {left_out}. {hint} …]\n{text[-half:]}", name
