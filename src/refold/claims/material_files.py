"""The files that a session was handed as material, as its journal has them. Pure.

They were read by whoever handed them in, whole; so they count as read, with their hashes.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import msgspec

from refold.claims.passages import Passage, later, passage
from refold.journal.events.child_events import VariableInjected
from refold.rlm.initial_variables import Files, files_in


def handed(
    event: VariableInjected, blob: Callable[[str], bytes | None]
) -> Iterator[tuple[str, str, Passage, bool]]:
    """Each file with its hash and its text, and whether that text is there."""
    files = event.files or _listed(event.files_blob, blob)
    texts = _texts(event.blob, blob) if files else []
    there = len(texts) == len(files)
    for n, (path, sha256) in enumerate(files):
        shown = later(partial(texts.__getitem__, n)) if there else passage("")
        yield path, sha256, shown, there


def _listed(name: str, blob: Callable[[str], bytes | None]) -> Files:
    kept = blob(name) if name else None
    try:
        return files_in(kept) if kept else ()
    except msgspec.DecodeError:
        return ()


def _texts(name: str, blob: Callable[[str], bytes | None]) -> list[str]:
    """Of one file, or of several by their names."""
    kept = blob(name)
    try:
        value: object = msgspec.json.decode(kept) if kept else None
    except msgspec.DecodeError:
        return []
    match value:
        case str():
            return [value]
        case dict():
            texts = list(cast("dict[str, object]", value).values())
            return [text for text in texts if isinstance(text, str)]
        case _:
            return []
