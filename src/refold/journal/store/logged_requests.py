"""Assembles model calls as they were sent, from the `RequestLogged` events."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import JournalError
from refold.journal.events.kinds import Entry, ModelAnswered, ModelFailed, RequestLogged


class WireCall(Struct, frozen=True):
    """A model call. `seq` is its event; `to` is its target, as in "POST https://…".

    `came_to` says how it ended. `lost` says why a part is missing; that part is then empty.
    """

    seq: int
    at: float  # seconds since 1970
    to: str
    request: bytes = b""
    answer: bytes = b""
    came_to: str = "asked again"  # the value of all calls of a step but the last
    lost: str = ""


def wire_calls(
    entries: Iterable[Entry], blob: Callable[[str], bytes]
) -> Iterator[WireCall]:
    """Yield all model calls in order.

    A request may share a prefix with an earlier request, so all events are read.
    """
    # The last request of each target; None if it is incomplete.
    last_requests: dict[str, bytes | None] = {}
    waiting: WireCall | None = None
    for entry in entries:
        match entry.event:
            case RequestLogged() as traced:
                if waiting:
                    yield waiting
                waiting = _assemble_call(entry, traced, last_requests, blob)
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
    last_requests: dict[str, bytes | None],
    blob: Callable[[str], bytes],
) -> WireCall:
    """Return the call with its bytes, or with the reason why some of them are missing.

    `last_requests` has the last request to each target. The request of this call is stored
    there, or None if the request is missing.
    """
    call = WireCall(entry.seq, entry.at, traced.target)
    last_request = last_requests.get(traced.target, b"")
    last_requests[traced.target] = None
    if traced.same_prefix and last_request is None:
        return replace(call, lost="it begins like the one before, which is not whole")
    shared_prefix = (last_request or b"")[: traced.same_prefix]
    try:
        request = shared_prefix + blob(traced.request)
    except JournalError as error:
        return replace(call, lost=str(error))
    last_requests[traced.target] = request
    try:
        answer = blob(traced.response) if traced.response else b""
    except JournalError as error:
        return replace(call, request=request, lost=str(error))
    return replace(call, request=request, answer=answer)
