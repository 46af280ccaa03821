"""`refold sessions requests ID [N]`: shows the model calls of a session exactly as sent."""

import time
from collections.abc import Sequence

from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, write, write_bytes
from refold.journal.store.logged_requests import WireCall
from refold.views.escape import escape_to_one_line
from refold.views.model_step import request_document

NO_REQUESTS = (
    "the session {id} has no saved model requests: run it with --log-requests, or set "
    "log_requests = true"
)


def show(
    session: str, calls: Sequence[WireCall], number: int | None, *, as_json: bool
) -> int:
    """Print a line for each model call, or the request and response of call `number`.

    Return the exit code.
    """
    if not calls:
        raise BadInput(NO_REQUESTS.format(id=session))
    if number is None:
        for index, call in enumerate(calls, start=1):
            if as_json:
                print_document(request_document(index, call))
            else:
                write(_row(index, call))
        return 0
    if not 1 <= number <= len(calls):
        raise BadInput(f"there is no model call {number}: they are 1 to {len(calls)}")
    call = calls[number - 1]
    if call.lost:
        print_error(f"the record of this call is incomplete: {call.lost}")
    if as_json:
        print_document(request_document(number, call))
    else:
        write_bytes(call.request + b"\n\n" + call.answer)
    return 1 if call.lost else 0


def _row(index: int, call: WireCall) -> str:
    """Return a line about a model call: its number, time, sizes, target and result."""
    when = time.strftime("%H:%M:%S", time.localtime(call.at))
    sizes = f"{len(call.request):>9,} bytes out {len(call.answer):>9,} in"
    result = "not whole" if call.lost else call.came_to
    return f"{index:>4}  {when}  {sizes}  {escape_to_one_line(call.to)}  {escape_to_one_line(result)}\n"
