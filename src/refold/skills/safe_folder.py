"""Look into a folder that may be anybody's, and at the files in it.

Nothing leads out of it, no pipe is waited for, nothing large is taken in, and no
number of names makes a start slow. What the files mean is for others to say.
"""

import os
from itertools import islice

from refold.errors import ToolFailed
from refold.place.files import DiskFiles
from refold.place.openat import by_walking
from refold.place.port import Real
from refold.place.printable_names import escaped
from refold.skills.directories import SkillFolder
from refold.values.path_names import below

_MOST = 2_000  # names that are looked at in one folder


def listed(
    real: str, place: SkillFolder, what: str, problems: list[str]
) -> list[os.DirEntry[str]]:
    """What lies there and is not hidden, by name. `real` is the path of the place, resolved.

    Why nothing comes, a sentence in `problems` says: `what` are meant to lie there.
    """
    called = escaped(place.called)
    try:
        with os.scandir(real) as entries:
            if place.bound and not below(real, place.bound):
                problems.append(
                    f"the {what} in {called} do not count: it is a link that leads out of "
                    f"the project, to {escaped(real)}"
                )
                return []
            there = [each for each in islice(entries, _MOST) if each.name[:1] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(f"{called} cannot be listed: {error.strerror}")
        return []
    return sorted(there, key=lambda each: each.name)


def content_of(path: str, bound: str, at_most: int) -> bytes:
    """A regular file, read as `DiskFiles` reads. Its links may not lead out of `bound`.

    Raises `FileNotFoundError`, and `ToolFailed` for what cannot be read.
    """
    real = os.path.realpath(path)
    if not os.path.lexists(real):
        raise FileNotFoundError(path)
    if bound and not below(real, bound):
        raise ToolFailed(f"it is a link that leads out, to {escaped(real)}")
    # It is one step from its folder, and every start takes it: the kernel's own way in
    # one call costs an import.
    files = DiskFiles(os.path.dirname(real), opening=by_walking)
    try:
        if os.stat(real, follow_symlinks=False).st_size > at_most:
            raise ToolFailed(f"it is larger than {at_most // 1024} KiB")
    except OSError as error:
        raise ToolFailed(f"it cannot be read: {error.strerror}") from error
    return files.read(Real(real), at_most)
