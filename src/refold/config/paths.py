"""The directories of refold's own files: settings, sessions, models, logs.

No directory is in a workspace.

If `REFOLD_HOME` is set, they are in the directory that it names. Otherwise they are where the
XDG base directory specification says.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput

# In the directory of a project: the file of its MCP servers.
MCP_FILES = (".mcp.json", "mcp_servers.json")
# In the directory of a project: the file of its hooks.
HOOK_FILES = (".refold/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
DEFAULT_TENANT = "default"


class Paths(Struct, frozen=True):
    config: Path  # config.toml, credentials.toml, folders.toml
    data: Path  # sessions/, models/
    state: Path  # logs, input history
    sessions: str = ""  # the URL of a database that has the sessions instead of `data`
    tenant: str = DEFAULT_TENANT  # the tenant whose sessions in that database are used
    bucket: str = ""  # s3://BUCKET/PREFIX, which has the blobs of that database
    # A file with the key for the secrets of tenants in that database.
    cluster_key: Path | None = None
    # A directory with the keys of providers for each tenant.
    tenant_keys: Path | None = None

    @property
    def own(self) -> tuple[str, ...]:
        """The real paths of refold's private files.

        No command of an agent can read them, and other access needs a question in every mode.
        """
        private = (self.config, self.data, self.state, self.cluster_key, self.tenant_keys)
        return tuple(dict.fromkeys(os.path.realpath(path) for path in private if path))

    @property
    def settings(self) -> Path:
        return self.config / "config.toml"

    @property
    def credentials(self) -> Path:
        return self.config / "credentials.toml"

    @property
    def server(self) -> Path:
        """The directory of the server's files; its `workspaces` are those of conversations."""
        return self.state / "server"

    @property
    def measured_size(self) -> Path:
        """The file in which `app.storage_quota` stores the size of refold's files."""
        return self.state / "storage.json"

    @property
    def checkpoints(self) -> Path:
        """The directory with the snapshots of all workspaces."""
        return self.data / "checkpoints"

    @property
    def places(self) -> Path:
        """The directory with a subdirectory for each workspace on another machine."""
        return self.data / "places"

    @property
    def clones(self) -> Path:
        """The directory with the clones that `--clone` makes, and with their patches."""
        return self.data / "clones"

    @property
    def place_program(self) -> Path:
        """The directory that caches the program to run on the machines of remote workspaces."""
        return self.data / "place-program"

    @property
    def folders(self) -> Path:
        return self.config / "folders.toml"


def paths(environ: Mapping[str, str]) -> Paths:
    """Return the paths of refold's directories, without creating any.

    Raises `BadInput` if a directory depends on HOME and HOME is not usable.
    """
    sessions = environ.get("REFOLD_SESSIONS", "")
    tenant = environ.get("REFOLD_TENANT") or DEFAULT_TENANT
    bucket = environ.get("REFOLD_BUCKET", "")
    key = environ.get("REFOLD_CLUSTER_KEY", "")
    cluster_key = Path(key).absolute() if key else None
    if home := environ.get("REFOLD_HOME"):
        try:
            config = data = state = Path(home).expanduser().absolute()
        except RuntimeError as error:  # ~NAME of an unknown user
            raise BadInput(f"REFOLD_HOME is {home!r}: {error}") from error
    else:
        config = _xdg(environ, "XDG_CONFIG_HOME", ".config")
        data = _xdg(environ, "XDG_DATA_HOME", ".local/share")
        state = _xdg(environ, "XDG_STATE_HOME", ".local/state")
    return Paths(config, data, state, sessions, tenant, bucket, cluster_key)


def login_name() -> str:
    """Return the login name of this process's user; "" if it is unknown."""
    from pwd import getpwuid  # missing on some systems

    try:
        return getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def user_trees(paths: Paths, roots: Sequence[str]) -> tuple[str, ...]:
    """Return the real paths of directories of refold that contain files of the user.

    `roots` are the directories of a session. The result has the directory of all worktrees, and
    the clone or server workspace of this session, but not those of other sessions.
    """
    folders = [
        os.path.realpath(path) for path in (paths.server / "workspaces", paths.clones)
    ]
    own = (root for root in roots if os.path.dirname(root) in folders)
    return (os.path.realpath(paths.data / "worktrees"), *own)


def home(environ: Mapping[str, str]) -> str:
    """Return the real path of the user's home directory."""
    import pwd  # only needed without HOME

    try:
        path = environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        path = "/"
    return os.path.realpath(path)


def _xdg(environ: Mapping[str, str], name: str, below_home: str) -> Path:
    """Return refold's directory in the base directory that the variable `name` sets.

    If the variable is not an absolute path, the base directory is `below_home`, such as
    ".config", in the user's home.
    """
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
    """Return the current directory. Raises `BadInput` if it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise BadInput(
            "the current directory does not exist any more: change to one that does"
        ) from error
