"""What a call came to: its tool is run, and what it says made fit to be recorded.

A result is what the model will read, so its length is bounded; the whole of a
longer one is kept as a blob, and the model is told its name.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from refold.engine.world import Record, World
from refold.errors import JournalError, ToolFailed
from refold.journal.events import Ended
from refold.tools.contract import Picture, Reply, Tool
from refold.values.clean import clean
from refold.values.live import Progress
from refold.values.messages import Image, ToolCall
from refold.values.shown import Note, Shown
from refold.values.unseen import marked

STOPPED = "Stopped on the way. Look how far it came."


class Running:
    """A call under way, as its tool sees it: what it says goes to the watchers."""

    def __init__(self, call_id: str, record: Record) -> None:
        self.id, self.record, self._tail = call_id, record, ""

    def progress(self, text: str) -> None:
        self._tail = (self._tail + text)[-2_000:]
        self.record.tell(Progress(self.id, clean(text)))

    def stopped(self) -> Ended:
        so_far = f"\nThe last it printed:\n{self._tail}" if self._tail.strip() else ""
        return Ended(self.id, "stopped", STOPPED + so_far)


async def ended(
    call: ToolCall,
    tool: Tool,
    world: World,
    running: Running,
    own: Mapping[str, object],
) -> Ended:
    """Do the call. Whatever goes wrong in the tool is an answer for the model.

    `own` is what the house has for this call alone.
    """
    house = {
        **world.house,
        **own,
        "known": running.record.view.known.files,
        "progress": running.progress,
    }
    try:
        arguments = world.prepared.of(call, tool).arguments
        supplied = {name: house[name] for name in tool.needs}
        reply = await tool.run(**arguments, **supplied)
        return await _recordable(call.id, reply, world, running.record)
    except ToolFailed as error:
        return await _failed(call.id, str(error), world, running.record)
    except Exception as error:  # a tool's bug must not take the session with it
        words = f"{type(error).__name__}: {error}"
        return await _failed(call.id, words, world, running.record)


async def _failed(id_: str, words: str, world: World, record: Record) -> Ended:
    words, unseen = marked(words)
    text, whole = await _fitted(words, world, record)
    return Ended(id_, "failed", text, _told(unseen), whole=whole)


async def _recordable(id_: str, reply: Reply, world: World, record: Record) -> Ended:
    words, unseen = marked(reply.text)
    text, whole = await _fitted(words, world, record, all_of_it=reply.whole)
    seen = tuple((seen.path, seen.sha256) for seen in reply.seen)
    shown = tuple(_short(part, world.longest_result) for part in reply.shown)
    shown += _told(unseen)
    try:
        pictures = tuple([await _kept(picture, record) for picture in reply.pictures])
    except JournalError as error:  # what was done is done: it must not look undone
        pictures, text = (), f"{text}\n(The picture could not be kept: {error})"
    return Ended(id_, "done", text, shown, seen, whole, reply.control, pictures)


def _told(unseen: int) -> tuple[Shown, ...]:
    """For the person: letters that nobody can see may be there for the model only."""
    if not unseen:
        return ()
    many = "1 character" if unseen == 1 else f"{unseen:,} characters"
    return (Note(f"{many} that nobody can see, written out for the model"),)


async def _kept(picture: Picture, record: Record) -> Image:
    return Image(await record.put_bytes(picture.content), picture.kind, picture.name)


def _short(shown: Shown, limit: int) -> Shown:
    """What a person is shown stands in the journal too: it is bounded alike."""
    if len(shown.text) <= limit:
        return shown
    left_out = f"\n[… {len(shown.text) - limit} characters are left out here …]\n"
    text = shown.text[: limit // 2] + left_out + shown.text[-limit // 2 :]
    return replace(shown, text=text)


async def _fitted(
    text: str, world: World, record: Record, *, all_of_it: bool = True
) -> tuple[str, str]:
    """`text` cut in the middle if it is too long, and the blob that holds it whole.

    `all_of_it` false: that is not the whole of what there was.
    """
    limit = world.longest_result
    if len(text) <= limit:
        return text, ""
    try:
        name = await record.put(clean(text).encode())
        what = "the whole" if all_of_it else "what was kept of it"
        where = f'read_file with path "blob:{name}" reads {what}'
    except JournalError as error:  # what was done is done: it must not look undone
        name, where = "", f"The whole could not be kept: {error}"
    of_it = "" if all_of_it else " that were kept"
    left_out = f"{len(text) - limit} of {len(text)} characters{of_it} are left out here"
    half = limit // 2
    return f"{text[:half]}\n[… {left_out}. {where} …]\n{text[-half:]}", name
