"""Warns at the start of a session when refold's files take more than `storage.quota_gb`.

Measuring takes longer the more files exist, so no start waits for it. `refold storage` measures
the files; so does a background process, which starts at most once a day when a session is left.
The result is in a file of the state directory. `config.storage` lists the files that count.
"""

import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from refold import programs
from refold.app.model_connections import NO_BACKGROUND
from refold.config.paths import Paths
from refold.config.storage import DAY_SECONDS, KindSize
from refold.place.private_files import write
from refold.safe_open import read_regular

_GB_BYTES = 1_000_000_000
_MAX_FILE_BYTES = 1_000  # of the file with the result


class MeasuredSize(Struct, frozen=True):
    """The number of bytes that count for the quota, and when they were measured."""

    bytes: int
    at: float


def remember_size(paths: Paths, sizes: list[KindSize], now: float) -> MeasuredSize:
    """Store and return the measurement for later starts. A failure to store it is ignored."""
    counted = sum(size.bytes for size in sizes if size.kind.is_counted)
    measured = MeasuredSize(counted, now)
    with suppress(OSError):
        write(paths.measured_size, msgspec.json.encode(measured).decode())
    return measured


def quota_notice(paths: Paths, quota_gb: float) -> str:
    """Return a notice if the last measurement exceeds the quota, otherwise ""."""
    measured = _last_measured(paths) if quota_gb else None
    if measured is None or measured.bytes <= quota_gb * _GB_BYTES:
        return ""
    return (
        f"refold's files take {measured.bytes / _GB_BYTES:.1f} GB, more than "
        f"storage.quota_gb ({quota_gb:g}): `refold storage` shows what they are, and "
        "`refold storage clean --older-than 90d` deletes old sessions"
    )


def start_measuring(paths: Paths, quota_gb: float, environ: Mapping[str, str]) -> None:
    """Start a process that measures, if the last measurement is more than a day old."""
    if environ.get(NO_BACKGROUND) or not quota_gb:
        return
    measured = _last_measured(paths)
    if measured is None or abs(time.time() - measured.at) > DAY_SECONDS:
        programs.start_detached(("storage", "--json"), {**environ, NO_BACKGROUND: "1"})


def _last_measured(paths: Paths) -> MeasuredSize | None:
    """Return the last measurement; None if there is none or its file is damaged."""
    try:
        content, _ = read_regular(paths.measured_size, _MAX_FILE_BYTES)
        return msgspec.json.decode(content, type=MeasuredSize)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
