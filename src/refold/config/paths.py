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
DEFAULT_TENANT = "default"


class Paths(Struct, frozen=True):
    config: Path  # config.toml, credentials.toml, folders.toml
    data: Path  # sessions/, models/
    state: Path  # logs, input history
    sessions: str = ""  # the URL of a database that has the sessions instead of `data`
    tenant: str = DEFAULT_TENANT  # whose sessions in that database are seen
    bucket: str = ""  # s3://BUCKET/PREFIX, which has the blobs of that database
    cluster_key: Path | None = None  # a file: seals the secrets of tenants in that database
    tenant_keys: Path | None = None  # a directory: keys of providers for each tenant

    @property
    def own(self) -> tuple[str, ...]:
        """What no command reads and every mode asks about, with links followed."""
        theirs = (self.config, self.data, self.state, self.cluster_key, self.tenant_keys)
        return tuple(dict.fromkeys(os.path.realpath(path) for path in theirs if path))

    @property
    def settings(self) -> Path:
        return self.config / "config.toml"

    @property
    def credentials(self) -> Path:
        return self.config / "credentials.toml"

    @property
    def server(self) -> Path:
        """The server's files; workspaces of conversations are in `workspaces`."""
        return self.state / "server"

    @property
    def measured_size(self) -> Path:
        """The size of refold's files, as `app.storage_quota` measured it last."""
        return self.state / "storage.json"

    @property
    def checkpoints(self) -> Path:
        """The snapshots of all workspaces."""
        return self.data / "checkpoints"

    @property
    def places(self) -> Path:
        """The directories that stand for workspaces elsewhere."""
        return self.data / "places"

    @property
    def clones(self) -> Path:
        """The clones of `--clone`, with their patches."""
        return self.data / "clones"

    @property
    def place_program(self) -> Path:
        """A cache: the program that is sent to workspaces elsewhere."""
        return self.data / "place-program"

    @property
    def folders(self) -> Path:
        return self.config / "folders.toml"


def paths(environ: Mapping[str, str]) -> Paths:
    """The directories of refold; creates none. Raises `BadInput` without HOME."""
    sessions = environ.get("REFOLD_SESSIONS", "")
    tenant = environ.get("REFOLD_TENANT") or DEFAULT_TENANT
    bucket = environ.get("REFOLD_BUCKET", "")
    key = environ.get("REFOLD_CLUSTER_KEY", "")
    cluster_key = Path(key).absolute() if key else None
    if home := environ.get("REFOLD_HOME"):
        try:
            whole = Path(home).expanduser().absolute()
        except RuntimeError as error:  # ~NAME of an unknown user
            raise BadInput(f"REFOLD_HOME is {home!r}: {error}") from error
        return Paths(whole, whole, whole, sessions, tenant, bucket, cluster_key)
    return Paths(
        _xdg(environ, "XDG_CONFIG_HOME", ".config"),
        _xdg(environ, "XDG_DATA_HOME", ".local/share"),
        _xdg(environ, "XDG_STATE_HOME", ".local/state"),
        sessions,
        tenant,
        bucket,
        cluster_key,
    )


def login_name() -> str:
    """The login name of this process's user; "" if there is none."""
    from pwd import getpwuid  # missing on some systems

    try:
        return getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def user_trees(paths: Paths, roots: Sequence[str]) -> tuple[str, ...]:
    """Directories of refold that contain the user's files, for a session with these `roots`.

    They are the worktrees, and the clone of this session or the workspace that the server created
    for it, but not those of others. Links are followed.
    """
    folders = [
        os.path.realpath(path) for path in (paths.server / "workspaces", paths.clones)
    ]
    own = (root for root in roots if os.path.dirname(root) in folders)
    return (os.path.realpath(paths.data / "worktrees"), *own)


def home(environ: Mapping[str, str]) -> str:
    """The user's home directory, links followed."""
    import pwd  # only needed without HOME

    try:
        path = environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        path = "/"
    return os.path.realpath(path)


def _xdg(environ: Mapping[str, str], name: str, below_home: str) -> Path:
    path = environ.get(name, "")
    if path.startswith("/"):
        return Path(path) / "refold"
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


def current_directory() -> Path:
    """The current directory. Raises `BadInput` if it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory does not exist any more: change to one that does"
        ) from error
