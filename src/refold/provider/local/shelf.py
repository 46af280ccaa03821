"""Where models stand on this machine, and what is known of each.

Beside a model lies a small record of where it came from. A model is here when
its file has the whole length; that its hash was right was checked before it got
its name. Fetching is `fetch`'s business.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.own_files import opened
from refold.provider.local.models import MODELS, Model


class ModelSource(Struct, frozen=True):
    """Where a model came from. `at` is an ISO date and time, in UTC."""

    source: str
    at: str
    sha256: str


class Shelf(Struct, frozen=True):
    directory: Path

    def place(self, model: Model) -> Path:
        return self.directory / model.file

    def partial(self, model: Model) -> Path:
        return self.directory / f"{model.file}.partial"

    def holds(self, model: Model) -> bool:
        return _size(self.place(model)) == model.size

    def installed(self) -> list[Model]:
        return [model for model in MODELS if self.holds(model)]

    def fetched(self, model: Model) -> int:
        """How many bytes of an unfinished download there are."""
        return _size(self.partial(model))

    def origin(self, model: Model) -> ModelSource | None:
        try:
            return msgspec.json.decode(self._record(model).read_bytes(), type=ModelSource)
        except (OSError, msgspec.MsgspecError):
            return None

    def note(self, model: Model, origin: ModelSource) -> None:
        with open(self._record(model), "wb", opener=opened) as out:
            out.write(msgspec.json.encode(origin) + b"\n")

    def remove(self, model: Model) -> int:
        """Delete a model and what is left of its downloads. Returns the bytes freed."""
        freed = 0
        for path in (self.place(model), self.partial(model), self._record(model)):
            freed += _size(path)
            path.unlink(missing_ok=True)
        return freed

    def _record(self, model: Model) -> Path:
        return self.directory / f"{model.file}.origin.json"


def default_directory(environ: Mapping[str, str]) -> Path:
    """`REFOLD_MODELS`, else `models` below `REFOLD_HOME` or the person's own data."""
    if found := environ.get("REFOLD_MODELS"):
        return Path(found).expanduser().absolute()
    if home := environ.get("REFOLD_HOME"):
        return Path(home).expanduser().absolute() / "models"
    if (data := environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(data) / "refold" / "models"
    if (home := environ.get("HOME", "")).startswith("/"):
        return Path(home) / ".local" / "share" / "refold" / "models"
    raise BadInput("there is no HOME to keep models in: set REFOLD_HOME to a directory")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
