"""/verify: check the claims of an answer against the journal and the files."""

from functools import partial

from anyio.from_thread import check_cancelled

from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.terminal.commands.history import number_in
from refold.terminal.terminal import Terminal
from refold.views.styled import Line


async def run(here: Terminal, rest: str) -> None:
    """The claims of the last answer, or of that of turn N."""
    turn = number_in(rest, "/verify")
    if here.around.files is None:
        raise BadInput("the files cannot be read here: use refold verify")
    entries = tuple(await here.session.record.entries())
    work = partial(_verdicts, here, entries, turn)
    here.printer.lines(await here.job.do(work, leaves_nothing=True) or ())


def _verdicts(here: Terminal, entries: tuple[Entry, ...], turn: int) -> list[Line]:
    from refold.claims.check import check, told_in
    from refold.claims.observed import Record, seen_in
    from refold.claims.sources import Today, records
    from refold.client.verify import VerifyReport
    from refold.client.verify import lines as reported
    from refold.values.claims import Checked

    files, id_ = here.around.files, here.session.view.session.id
    assert files is not None  # the caller has looked
    try:
        told = told_in(entries, turn)
    except LookupError as error:
        raise BadInput(
            f"there is no turn {turn} in this session; the first is 1"
        ) from error
    home = here.around.home
    journals = [Record(entries)] if home is None else records(home.path(id_), entries)
    seen, today = seen_in(journals), Today(files)
    checked = list[Checked]()
    for claim in told.claims:
        check_cancelled()
        checked += check((claim,), seen, today)
    return list(reported(VerifyReport(id_, told, tuple(checked))))
