"""A cassette for a test: recorded if the file does not exist, replayed from then on.

    with cassette(DATA / "rain.jsonl", make=real_provider) as provider:
        ... ask provider ...

Keep the file next to the test. To record it again, delete it.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from refold.provider.cassette import CassetteWriter, Recording, Replaying
from refold.provider.cassette_format import Mask, unmasked
from refold.provider.port import Provider


@contextmanager
def cassette(
    file: Path,
    make: Callable[[], Provider],
    *,
    ignoring: frozenset[str] = frozenset(),
    mask: Mask = unmasked,
) -> Generator[Provider]:
    """What `file` holds, or what `make` gives, recorded to it.

    Recorded calls that were not requested are a failure: the test has changed.
    """
    if not file.exists():
        yield Recording(make(), CassetteWriter(file, mask))
        return
    replaying = Replaying(file, ignoring, mask)
    yield replaying
    if replaying.left:
        raise AssertionError(
            f"{file} holds {replaying.left} calls more than were asked: record it anew"
        )
