"""Where refold's own files are: settings, sessions, models, logs. Never in a workspace.

`REFOLD_HOME` moves all of them into one directory. Without it they are where the XDG base
directory specification puts them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput

# In the directory of a project: its MCP servers.
MCP_FILES = (".mcp.json", "mcp_servers.json")
# And its hooks.
HOOK_FILES = (".refold/hooks.json", ".claude/settings.json", ".claude/settings.local.json")


class Paths(Struct, frozen=True):
    config: Path  # config.toml, credentials.toml, folders.toml
    data: Path  # sessions/, models/
    state: Path  # logs, input history

    @property
    def settings(self) -> Path:
        return self.config / "config.toml"

    @property
    def credentials(self) -> Path:
        return self.config / "credentials.toml"

    @property
    def server(self) -> Path:
        """Of the server. Conversations with a workspace of their own have it in `workspaces`."""
        return self.state / "server"

    @property
    def folders(self) -> Path:
        return self.config / "folders.toml"


def paths(environ: Mapping[str, str]) -> Paths:
    """The directories of refold; creates none. Raises `BadInput` without HOME."""
    if home := environ.get("REFOLD_HOME"):
        try:
            whole = Path(home).expanduser().absolute()
        except RuntimeError as error:  # ~somebody who is not there
            raise BadInput(f"REFOLD_HOME is {home!r}: {error}") from error
        return Paths(whole, whole, whole)
    return Paths(
        _xdg(environ, "XDG_CONFIG_HOME", ".config"),
        _xdg(environ, "XDG_DATA_HOME", ".local/share"),
        _xdg(environ, "XDG_STATE_HOME", ".local/state"),
    )


def login_name() -> str:
    """The user of this process, as the system calls it; "" for one without a name."""
    from pwd import getpwuid  # few systems are without it

    try:
        return getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def user_trees(paths: Paths, roots: Sequence[str]) -> tuple[str, ...]:
    """Directories in ours with files of the user, for a session that works in these `roots`.

    They are worktrees, and the workspace that the server made for this conversation; those
    of other conversations are none. Links are followed.
    """
    made = os.path.realpath(paths.server / "workspaces")
    own = (root for root in roots if os.path.dirname(root) == made)
    return (os.path.realpath(paths.data / "worktrees"), *own)


def home(environ: Mapping[str, str]) -> str:
    """The person's home directory, links followed."""
    import pwd  # only who has no HOME needs it

    try:
        found = environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        found = "/"
    return os.path.realpath(found)


def _xdg(environ: Mapping[str, str], name: str, below_home: str) -> Path:
    found = environ.get(name, "")
    if found.startswith("/"):
        return Path(found) / "refold"
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        missing = (
            f"HOME is {home!r}, which is not an absolute path"
            if home
            else "neither HOME nor REFOLD_HOME is set"
        )
        raise BadInput(
            f"{missing}, so there is no place for sessions and settings: set REFOLD_HOME to a "
            "directory of yours"
        )
    return Path(home) / below_home / "refold"


def here() -> Path:
    """The current directory. Raises `BadInput` if it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory does not exist any more: change to one that does"
        ) from error
