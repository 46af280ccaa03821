"""Downloads embedded models in the background, at most one download for each model.

`provider.local` downloads and verifies; `refold local install` does so in the foreground.
"""

from collections.abc import Callable, Mapping
from threading import Lock, Thread

from msgspec import Struct
from msgspec.structs import replace

from refold.errors import BadInput, RefoldError
from refold.provider.local.download import DownloadProgress, fetch
from refold.provider.local.hub import Hub, usual_sources
from refold.provider.local.models import (
    EMBEDDED_MODELS,
    HUB_MODELS,
    LocalModel,
    ModelDirectory,
    default_directory,
)
from refold.provider.local.own_model import add_to_directory, hub_model


class ModelDownload(Struct, frozen=True):
    """The state of a download: `done` of `total` bytes are saved.

    It runs until `ended` is set; `problem` says why it failed.
    """

    done: int
    total: int
    source: str = ""
    ended: bool = False
    problem: str = ""


class _Stopped(Exception):
    """Raised to end a download that the user stopped."""


class ModelDownloads:
    """The downloads of one process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._lock = Lock()
        self._downloads = dict[str, ModelDownload]()
        self._stopped = set[str]()

    @property
    def directory(self) -> ModelDirectory:
        return ModelDirectory(default_directory(self.environ))

    def state(self, name: str) -> ModelDownload | None:
        """Return the newest download of a model; None if this process has begun none."""
        return self._downloads.get(name)

    def start(self, name: str) -> None:
        """Download a model of the catalogue. Raises `BadInput` for an unknown name."""
        model = self.directory.find(name)
        with self._lock:
            running = self._downloads.get(model.name)
            if running is not None and not running.ended:
                return
            self._stopped.discard(model.name)
            partial_size = self.directory.partial_size(model)
            self._downloads[model.name] = ModelDownload(partial_size, model.size)
        Thread(target=self._run, args=(model,), daemon=True).start()

    def stop(self, name: str) -> bool:
        """Stop a download; the saved part remains. Return False if none runs."""
        with self._lock:
            running = self._downloads.get(name)
            if running is None or running.ended:
                return False
            self._stopped.add(name)
            return True

    def remove(self, name: str) -> int:
        """Delete a model and the unfinished downloads of it.

        Return the number of bytes freed.
        """
        model = self.directory.find(name)
        with self._lock:
            running = self._downloads.get(model.name)
            if running is not None and not running.ended:
                raise BadInput(f"{model.name} is being downloaded: stop that first")
            self._downloads.pop(model.name, None)
        return self.directory.remove(model)

    def _run(self, model: LocalModel) -> None:
        """Download the model, and record how the download ended."""

        def report(progress: DownloadProgress) -> None:
            """Record the progress. Raises `_Stopped` if the user has stopped the download."""
            if model.name in self._stopped:
                raise _Stopped
            self._downloads[model.name] = ModelDownload(
                progress.done, progress.total, progress.source, problem=progress.failed
            )

        try:
            _install(model, self.directory, self.environ, report)
        except _Stopped:
            self._end(model, problem="")
        except (RefoldError, OSError) as error:
            self._end(model, problem=str(error))
        else:
            self._end(model, problem="")

    def _end(self, model: LocalModel, problem: str) -> None:
        with self._lock:
            last = self._downloads[model.name]
            self._downloads[model.name] = replace(last, ended=True, problem=problem)


def _install(
    model: LocalModel,
    models: ModelDirectory,
    environ: Mapping[str, str],
    report: Callable[[DownloadProgress], None],
) -> None:
    """Download and install a model of the catalogue. Raises `RefoldError` if that fails."""
    hub = Hub.from_environ(environ)
    if model not in HUB_MODELS:
        fetch(model, usual_sources(model, models, hub), models, report)
        return
    # The hub knows the present file of this model, with its size and hash.
    file = hub.file(model.repository, model.quant)
    present_model = hub_model(model.repository, file)
    sources = hub.sources(model.repository, file)
    origin = fetch(present_model, sources, models, report)
    if present_model not in EMBEDDED_MODELS:
        add_to_directory(present_model, origin, models)
