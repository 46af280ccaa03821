"""The known languages, with their suffixes, servers and grammars. Data, and pure.

`language_server` communicates with a server, and `tree_sitter` parses with a grammar.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct


class ServerSpec(Struct, frozen=True):
    """A language server: its command, its settings, and how to install it.

    `settings` answer the server's requests for configuration. `packages` are directories that
    the server reads, besides the workspace. Within `indexes` seconds after its start, the
    server reports that it is indexing the workspace; until the indexing ends, its answers are
    incomplete.
    """

    program: str
    arguments: tuple[str, ...] = ()
    install: str = ""
    settings: Mapping[str, Any] = {}
    environ: Mapping[str, str] = {}
    packages: tuple[str, ...] = ()
    indexes: float = 0.0


class Language(Struct, frozen=True):
    """A language. `suffixes` maps suffixes of files to names of languages in the protocol.

    `grammar` is a package of the extra `code`, or "" if there is none.
    """

    name: str
    suffixes: Mapping[str, str]
    servers: tuple[ServerSpec, ...] = ()
    grammar: str = ""


_PYRIGHT_SETTINGS = {
    "analysis": {"typeCheckingMode": "standard", "diagnosticMode": "openFilesOnly"}
}
# Packages cannot be loaded without the network, and build output goes to a /tmp of its own.
_CARGO_SETTINGS = {
    "CARGO_NET_OFFLINE": "true",
    "CARGO_TARGET_DIR": "/tmp/target",
}
_GO_ENVIRONMENT = {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOCACHE": "/tmp/go-build"}

KNOWN_LANGUAGES = (
    Language(
        "Python",
        {".py": "python", ".pyi": "python"},
        (
            ServerSpec(
                "basedpyright-langserver",
                ("--stdio",),
                "pipx install basedpyright",
                {"basedpyright": _PYRIGHT_SETTINGS, "python": _PYRIGHT_SETTINGS},
            ),
            ServerSpec(
                "pyright-langserver",
                ("--stdio",),
                "npm install -g pyright",
                {"python": _PYRIGHT_SETTINGS},
            ),
        ),
        "python",
    ),
    Language(
        "TypeScript",
        {
            **{".ts": "typescript", ".mts": "typescript", ".cts": "typescript"},
            **{".tsx": "typescriptreact", ".jsx": "javascriptreact"},
            **{".js": "javascript", ".mjs": "javascript", ".cjs": "javascript"},
        },
        (
            ServerSpec(
                "typescript-language-server",
                ("--stdio",),
                "npm install -g typescript-language-server typescript@5",
            ),
        ),
        "typescript",
    ),
    Language(
        "Go",
        {".go": "go"},
        (
            ServerSpec(
                "gopls",
                install="go install golang.org/x/tools/gopls@latest",
                environ=_GO_ENVIRONMENT,
                packages=("~/go/pkg/mod",),
                indexes=1.0,
            ),
        ),
        "go",
    ),
    Language(
        "Rust",
        {".rs": "rust"},
        (
            ServerSpec(
                "rust-analyzer",
                install="rustup component add rust-analyzer",
                environ=_CARGO_SETTINGS,
                packages=("~/.cargo/registry", "~/.cargo/git"),
                indexes=5.0,
            ),
        ),
        "rust",
    ),
    Language(
        "C and C++",
        {
            **{".c": "c", ".h": "c"},
            **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
        },
        (ServerSpec("clangd", install="install the package clangd", indexes=1.0),),
        "cpp",
    ),
    Language("Java", {".java": "java"}, grammar="java"),
)
_BY_SUFFIX = MappingProxyType(
    {suffix: language for language in KNOWN_LANGUAGES for suffix in language.suffixes}
)
LANGUAGE_SUFFIXES = frozenset(_BY_SUFFIX)


def language_of(path: str) -> Language | None:
    return _BY_SUFFIX.get(os.path.splitext(path)[1].lower())


def language_id(path: str) -> str:
    """Return the protocol's name for the language of a file with a known suffix."""
    suffix = os.path.splitext(path)[1].lower()
    return _BY_SUFFIX[suffix].suffixes[suffix]


# The kinds of symbols, by their numbers in the protocol.
SYMBOL_KINDS = (
    "", "file", "module", "namespace", "package", "class", "method", "property", "field",
    "constructor", "enum", "interface", "function", "variable", "constant", "string",
    "number", "boolean", "array", "object", "key", "null", "member", "struct", "event",
    "operator", "type",
)  # fmt: skip


def kind_name(number: int) -> str:
    return SYMBOL_KINDS[number] if 0 < number < len(SYMBOL_KINDS) else "symbol"
