"""Model calls as they were sent, assembled from the `RequestLogged` events."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import JournalError
from refold.journal.events.kinds import Entry, ModelAnswered, ModelFailed, RequestLogged


class WireCall(Struct, frozen=True):
    """A model call. `seq` is its event; `to` as in "POST https://…".

    `came_to` says how it ended; `lost` says why a part of it is missing, which is then empty.
    """

    seq: int
    at: float  # seconds since 1970
    to: str
    request: bytes = b""
    answer: bytes = b""
    came_to: str = "asked again"  # for all but the last of a step
    lost: str = ""


def wire_calls(
    entries: Iterable[Entry], blob: Callable[[str], bytes]
) -> Iterator[WireCall]:
    """All model calls in order. A request shares a prefix with an earlier one, so all are read."""
    before: dict[str, bytes | None] = {}  # by target; None: incomplete
    waiting: WireCall | None = None
    for entry in entries:
        match entry.event:
            case RequestLogged() as traced:
                if waiting:
                    yield waiting
                waiting = _assemble_call(entry, traced, before, blob)
            case ModelAnswered(stop=stop, partial=partial) if waiting:
                yield replace(
                    waiting, came_to="stopped" if partial else f"answered, {stop}"
                )
                waiting = None
            case ModelFailed(reason) if waiting:
                yield replace(waiting, came_to=f"failed: {reason}")
                waiting = None
            case _:
                continue
    if waiting:
        yield replace(waiting, came_to="stopped")


def _assemble_call(
    entry: Entry,
    traced: RequestLogged,
    before: dict[str, bytes | None],
    blob: Callable[[str], bytes],
) -> WireCall:
    call = WireCall(entry.seq, entry.at, traced.target)
    known = before.get(traced.target, b"")
    before[traced.target] = None
    if traced.same_prefix and known is None:
        lost = "it begins like the one before, which is not whole"
        return replace(call, lost=lost)
    try:
        whole = (known or b"")[: traced.same_prefix] + blob(traced.request)
        before[traced.target] = whole
        answer = blob(traced.response) if traced.response else b""
    except JournalError as error:
        return replace(call, request=before[traced.target] or b"", lost=str(error))
    return replace(call, request=whole, answer=answer)
