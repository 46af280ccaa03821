"""The data directory of one MCP server: its home directory, and its packages.

A server may write only to this directory, and no command of an agent can see it. Its file
`installed.json` lists what is installed; the server cannot write that file. `package_install`
installs into the directory, and `packages` reads it.
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

HOMES_DIRECTORY = "mcp-servers"  # a directory in refold's data directory
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
# Paths that programs expect in the home directory, because the user installed them there.
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
    """The data directory of one server, and the paths in it.

    `directory` is absolute, with links resolved.
    """

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
        """Create the home and the packages directory. Raises `OSError`."""
        for path in (self.home, self.packages):
            make_directories(path)

    def remove(self, *, data: bool, beside_code: str = "", since: float = 0.0) -> bool:
        """Remove the packages, or with `data` everything. Return whether the directory remains.

        Without `data`, the home remains if it has files. `beside_code` is the directory of the
        package's code. If a file there is newer than `since`, the server has written that file,
        and nothing is removed.
        """
        has_home_files = any(True for _ in _change_times(self.home))
        has_files_beside_code = bool(beside_code) and any(
            changed > since for changed in _change_times(Path(beside_code))
        )
        if data or not (has_home_files or has_files_beside_code):
            rmtree(self.directory, ignore_errors=True)
        elif not has_files_beside_code:
            rmtree(self.packages, ignore_errors=True)
            self.record.unlink(missing_ok=True)
        return self.directory.exists()

    def variables(
        self, config: ServerConfig, user_home: str, environ: Mapping[str, str]
    ) -> dict[str, str]:
        """Return environment variables that make the server use these directories.

        A variable in the server's entry has precedence.
        """
        own = dict(config.environment)
        home = str(self.home)
        variables = {name: f"{home}/{path}" for name, path in _CACHE_VARIABLES.items()}
        # Some Python servers print a set in a description, and a description is pinned.
        seed = sha256(os.fsencode(self.directory)).digest()[:4]
        variables["PYTHONHASHSEED"] = str(int.from_bytes(seed))
        if "HOME" not in own:  # otherwise the entry decides where the server's home is
            variables["HOME"] = home
            variables |= {name: f"{home}/{path}" for name, path in _BELOW_HOME.items()}
            variables |= dict(_tool_variables(user_home, environ))
        return variables | {
            name: _from_home(value, user_home) for name, value in own.items()
        }


def server_home(data: Path, name: str, source: str) -> ServerHome:
    """Return the data directory of the server `name` that the file `source` configures.

    Servers of the same name in different files have different directories.
    """
    digest = sha256(source.encode(errors="surrogateescape")).hexdigest()[:12]
    return ServerHome(Path(os.path.realpath(data), HOMES_DIRECTORY, f"{name}-{digest}"))


def from_home(words: tuple[str, ...], user_home: str) -> tuple[str, ...]:
    """Return the words with `~` replaced by the user's home: the server has its own home."""
    return tuple(_from_home(word, user_home) for word in words)


def _change_times(directory: Path) -> Iterator[float]:
    """Yield the change time of each file below a directory, except in caches."""
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
    """Yield variables for tools such as rustup, with the user's installation if it exists."""
    for name, path in _TOOL_VARIABLES.items():
        place = os.path.join(user_home, path)
        if not environ.get(name) and os.path.exists(place):
            yield name, place
