"""Directories as descriptors: found below the roots, or made there one by one.

Who holds a directory's descriptor works in that directory, whatever its name leads
to by now. What is done in it is the business of `files` and `replacing`.
"""

import errno
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress

from refold.place.beneath import FOLDER, LONGEST, Opening, step
from refold.place.port import Real
from refold.values.below import below


class Folders:
    """Below `roots` a way begins at the root, which is never made; elsewhere at "/"."""

    def __init__(self, roots: Sequence[str], opening: Opening) -> None:
        self.roots, self._opening = tuple(roots), opening

    def opened(self, real: Real, flags: int) -> int:
        """A descriptor of `real` itself, for who closes it."""
        with self._top(real) as (top, way):
            return self._opening(top, way, flags)

    @contextmanager
    def of(self, real: Real) -> Generator[tuple[int, str]]:
        """The directory that `real` lies in, and the last part of its name."""
        check_length(real)
        folder, last = os.path.split(real)
        with _closing(self.opened(Real(folder), FOLDER)) as number:
            yield number, last or "."

    def make(self, folder: Real, made: list[Real]) -> None:
        """Make `folder` if it is missing. `made` gets what was made, the outermost first."""
        try:
            os.close(self.opened(folder, FOLDER))
        except FileNotFoundError:
            with self._top(folder) as (top, way):
                above = folder.removesuffix(way)
                for each in _made(top, above, way.split("/")):
                    made.append(each)

    def unmake(self, made: Iterable[Real]) -> None:
        """Take away directories that were made, the innermost last, where they are empty."""
        for folder in reversed(list(made)):
            with suppress(OSError), self.of(folder) as (above, last):
                os.rmdir(last, dir_fd=above)

    def root_of(self, real: str) -> str | None:
        """The root that `real` lies below."""
        return next((root for root in self.roots if below(real, root)), None)

    @contextmanager
    def _top(self, real: Real) -> Generator[tuple[int, str]]:
        """Where the way to `real` begins, and the rest of it."""
        root = self.root_of(real) or "/"
        with (
            _closing(os.open("/", FOLDER)) as slash,
            _closing(self._opening(slash, root.strip("/") or ".", FOLDER)) as top,
        ):
            yield top, real.removeprefix(root).strip("/") or "."


def check_length(real: str) -> None:
    """Raise where no program could name it."""
    if len(os.fsencode(real)) > LONGEST:
        raise OSError(errno.ENAMETOOLONG, "path too long")


def _made(top: int, above: str, way: Sequence[str]) -> Generator[Real]:
    here = os.dup(top)
    try:
        for part in way:
            above = os.path.join(above, part)
            try:
                inner = step(here, part, FOLDER)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o777, dir_fd=here)
                    yield Real(above)
                inner = step(here, part, FOLDER)
            os.close(here)
            here = inner
    finally:
        os.close(here)


@contextmanager
def _closing(number: int) -> Generator[int]:
    try:
        yield number
    finally:
        os.close(number)
