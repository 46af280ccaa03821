"""Downloads of embedded models in the background, one for each model, with their progress.

`provider.local` downloads and verifies; `refold local install` does the same in the foreground.
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
    """`done` of `total` bytes are saved. It runs until it is `ended`; `problem`: why it failed."""

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
        self._running = dict[str, ModelDownload]()
        self._stopped = set[str]()

    @property
    def directory(self) -> ModelDirectory:
        return ModelDirectory(default_directory(self.environ))

    def state(self, name: str) -> ModelDownload | None:
        """The running or last download of a model, or None."""
        return self._running.get(name)

    def start(self, name: str) -> None:
        """Download a model of the catalogue. Raises `BadInput` for an unknown one."""
        model = self.directory.find(name)
        with self._lock:
            running = self._running.get(model.name)
            if running is not None and not running.ended:
                return
            self._stopped.discard(model.name)
            partial_size = self.directory.partial_size(model)
            self._running[model.name] = ModelDownload(partial_size, model.size)
        Thread(target=self._run, args=(model,), daemon=True).start()

    def stop(self, name: str) -> bool:
        """Stop a download; what was saved stays. False if none runs."""
        with self._lock:
            running = self._running.get(name)
            if running is None or running.ended:
                return False
            self._stopped.add(name)
            return True

    def remove(self, name: str) -> int:
        """Delete a model and what is left of its downloads. Returns the bytes freed."""
        model = self.directory.find(name)
        with self._lock:
            running = self._running.get(model.name)
            if running is not None and not running.ended:
                raise BadInput(f"{model.name} is being downloaded: stop that first")
            self._running.pop(model.name, None)
        return self.directory.remove(model)

    def _run(self, model: LocalModel) -> None:
        def report(progress: DownloadProgress) -> None:
            if model.name in self._stopped:
                raise _Stopped
            self._running[model.name] = ModelDownload(
                progress.done, progress.total, progress.source, problem=progress.failed
            )

        try:
            _install(model, self.directory, self.environ, report)
        except _Stopped:
            self._end(model, "")
        except (RefoldError, OSError) as error:
            self._end(model, str(error))
        else:
            self._end(model, "")

    def _end(self, model: LocalModel, problem: str) -> None:
        with self._lock:
            last = self._running[model.name]
            self._running[model.name] = replace(last, ended=True, problem=problem)


def _install(
    model: LocalModel,
    models: ModelDirectory,
    environ: Mapping[str, str],
    report: Callable[[DownloadProgress], None],
) -> None:
    """Install a model of the catalogue from where it usually comes. Raises `RefoldError`."""
    hub = Hub.from_environ(environ)
    if model in HUB_MODELS:
        file = hub.file(model.repository, model.quant)
        model = hub_model(model.repository, file)
        sources = hub.sources(model.repository, file)
        origin = fetch(model, sources, models, report)
        if model not in EMBEDDED_MODELS:
            add_to_directory(model, origin, models)
    else:
        fetch(model, usual_sources(model, models, hub), models, report)
