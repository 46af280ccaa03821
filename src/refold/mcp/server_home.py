"""The data directory of one MCP server: its home, and its packages.

A server may write here but not elsewhere, and no command of an agent can see it.
`installed.json` beside both has what is installed; the server cannot write that. `packages`
reads it, and `package_install` fills the directory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree

from msgspec import Struct

from refold.mcp.servers import ServerConfig
from refold.place.private_files import make_directories

HOMES_DIRECTORY = "mcp-servers"  # below refold's data directory
_BELOW_HOME = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
_NO_STATE = frozenset((".cache", ".npm", "node_modules", "__pycache__"))
_CACHE_VARIABLES = {
    "npm_config_cache": ".npm",
    "UV_CACHE_DIR": ".cache/uv",
    "UV_TOOL_DIR": ".local/share/uv/tools",
    "UV_TOOL_BIN_DIR": ".local/bin",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv/python",
    "PIP_CACHE_DIR": ".cache/pip",
    "PIPX_HOME": ".local/share/pipx",
    "PIPX_BIN_DIR": ".local/bin",
    "BUN_INSTALL_CACHE_DIR": ".bun/install/cache",
    "DENO_DIR": ".cache/deno",
}
# What programs expect in the home directory, because the user installed it there.
_TOOL_VARIABLES = {
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "MISE_CONFIG_DIR": ".config/mise",
    "RUSTUP_HOME": ".rustup",
    "PLAYWRIGHT_BROWSERS_PATH": ".cache/ms-playwright",
    "PUPPETEER_CACHE_DIR": ".cache/puppeteer",
    "GIT_CONFIG_GLOBAL": ".gitconfig",
}


class ServerHome(Struct, frozen=True):
    """The directories of one server. `directory` is absolute, links resolved."""

    directory: Path

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def packages(self) -> Path:
        return self.directory / "packages"

    @property
    def record(self) -> Path:
        return self.directory / "installed.json"

    def create(self) -> None:
        """Create the directories. Raises `OSError`."""
        for path in (self.home, self.packages):
            make_directories(path)

    def remove(self, *, data: bool, beside_code: str = "", since: float = 0.0) -> bool:
        """Remove the packages, and with `data` all files. Return True if some remain.

        Without `data`, what the server has stored remains: its home, and the packages, too,
        if a file in `beside_code`, the directory of its package, is newer than `since`.
        """
        stored = [self.home] if any(_change_times(self.home)) else []
        stored += [self.packages] * any(
            t > since for t in _change_times(Path(beside_code or "/-"))
        )
        if data or not stored:
            rmtree(self.directory, ignore_errors=True)
        elif self.packages not in stored:
            rmtree(self.packages, ignore_errors=True)
            self.record.unlink(missing_ok=True)
        return self.directory.exists()

    def variables(
        self, config: ServerConfig, user_home: str, environ: Mapping[str, str]
    ) -> dict[str, str]:
        """Return variables that lead a program here; those of its entry take precedence."""
        own = dict(config.environment)
        home = str(self.home)
        leads = {name: f"{home}/{path}" for name, path in _CACHE_VARIABLES.items()}
        # Some Python servers print a set in a description, which is pinned.
        seed = sha256(os.fsencode(self.directory)).digest()[:4]
        leads |= {"PYTHONHASHSEED": str(int.from_bytes(seed))}
        if "HOME" not in own:  # otherwise the entry decides where its home is
            leads |= {"HOME": home}
            leads |= {name: f"{home}/{path}" for name, path in _BELOW_HOME.items()}
            leads |= dict(_tool_variables(user_home, environ))
        return leads | {name: _from_home(value, user_home) for name, value in own.items()}


def server_home(data: Path, name: str, source: str) -> ServerHome:
    """Return the home. A project's server never shares that of another of the same name."""
    mark = sha256(source.encode(errors="surrogateescape")).hexdigest()[:12]
    return ServerHome(Path(os.path.realpath(data), HOMES_DIRECTORY, f"{name}-{mark}"))


def from_home(words: tuple[str, ...], user_home: str) -> tuple[str, ...]:
    """Replace a `~` of an entry by the user's home: the server has another one."""
    return tuple(_from_home(word, user_home) for word in words)


def _change_times(directory: Path) -> Iterator[float]:
    """Yield the time of change of each file of a server, except of caches."""
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if name not in _NO_STATE]
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(folder, name)).st_mtime


def _from_home(text: str, user_home: str) -> str:
    return user_home + text[1:] if text == "~" or text.startswith("~/") else text


def _tool_variables(
    user_home: str, environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name, path in _TOOL_VARIABLES.items():
        place = os.path.join(user_home, path)
        if not environ.get(name) and os.path.exists(place):
            yield name, place
