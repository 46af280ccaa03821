"""What the tool `claim` asks: the check of `claims`, over the journal as it is by now."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread

from refold.journal.events.kinds import Entry
from refold.place.port import Files
from refold.session.recorder import Recorder
from refold.values.claims import Checked, Claim


class Checking:
    """Implements `tools.claims.Checks`. `path` is where the journal lies, if it is kept."""

    def __init__(self, record: Recorder, files: Files, path: Path | None = None) -> None:
        self._record, self._files, self._path = record, files, path

    async def check(self, claims: Sequence[Claim]) -> Sequence[Checked]:
        entries = await self._record.entries()
        return await to_thread.run_sync(partial(self._check, claims, entries))

    def _check(
        self, claims: Sequence[Claim], entries: Sequence[Entry]
    ) -> Sequence[Checked]:
        # Every start makes one of these, and few ever ask it.
        from refold.claims.check import check
        from refold.claims.current_files import Today
        from refold.claims.journals import records
        from refold.claims.observed import Record, seen_in

        told = records(self._path, entries) if self._path else [Record(entries)]
        return check(claims, seen_in(told), Today(self._files))
