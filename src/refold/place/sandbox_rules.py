"""Decides what each command of a session may see and change.

The rules follow from the session's settings, from the workspace and from how the command is
confined. Keys and sockets of other programs are masked; from read-only commands, everything is
hidden that programs do not need to run. `bubblewrap`, `landlock` and `seatbelt` enforce the
rules.

A read-only command starts with an empty file system, because a list of paths to hide always
lacks one. It cannot write to the shared /tmp, where it could leave a manipulated cache for a
later command. Its git sees copies of the repository's settings without the lines that name
programs (`gitconfig`). Options on a command line would not reach a git that a script starts.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.place.gitconfig import without_programs
from refold.place.guarded_paths import GuardedPaths, worktree_of
from refold.place.port import NetworkFilter
from refold.values.path_names import below
from refold.values.tools import Confinement

if TYPE_CHECKING:
    from refold.values.hosts import ReachableHosts

Profile: TypeAlias = Literal["read-only", "workspace", "off"]
SOCKET_PATH = "/run/refold-ssh-agent"  # where commands see the socket of `signing_agent`
# in a sandbox these are not the machine's own
REPLACED_DIRECTORIES = ("/tmp", "/var/tmp", "/run")
_PROVIDED_DIRECTORIES = frozenset(("/", "/dev", "/proc", *REPLACED_DIRECTORIES))
# Below the home directory. A command that may use the network sees these, because git, ssh
# and cloud programs need them.
_KEY_PATHS = """
    .ssh .gnupg .aws .azure .config/gcloud .config/gh .config/hub .config/op .config/rclone
    .config/containers .kube .docker .netrc .npmrc .yarnrc.yml .pypirc .git-credentials
    .config/git/credentials .cargo/credentials .cargo/credentials.toml .gem/credentials
    .terraform.d/credentials.tfrc.json
    .vault-token .pgpass .my.cnf .password-store .config/refold .config/anthropic
    .config/openai .local/share/keyrings .mozilla .config/google-chrome .config/chromium
    .config/BraveSoftware .config/microsoft-edge .config/vivaldi .config/opera .config/Slack
    .config/discord .config/Signal .config/github-copilot .config/composer/auth.json
    .composer/auth.json .config/NuGet .nuget/NuGet/NuGet.Config .config/doctl .config/fly
    .config/heroku .config/netlify .config/configstore .config/sops .config/age .config/glab-cli
    .cache/huggingface/token .cache/huggingface/stored_tokens .huggingface/token .kaggle
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .bundle/config
    .wrangler .oci .bluemix .databrickscfg .snowflake .dbt/profiles.yml .boto .s3cfg .fly
    .bitcoin .ethereum .electrum .config/solana .local/share/kwalletd .config/Bitwarden
    .thunderbird .bash_history .zsh_history .python_history
"""
# Other agents store keys and conversations here, and no command of ours needs them.
_AGENT_KEY_PATHS = """
    .claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json
    .local/share/opencode/auth.json .config/goose/secrets.yaml .continue/config.yaml
    .aider.conf.yml .qwen/oauth_creds.json .config/io.datasette.llm/keys.json
"""
# Programs, their settings and libraries, and the lists of installed packages.
_SYSTEM_DIRECTORIES = """
    /bin /etc /gnu /lib /lib32 /lib64 /libx32 /nix /opt /sbin /snap /sys/devices/system /usr
    /var/guix/profiles /var/lib/dpkg /var/lib/pacman /var/lib/rpm
"""
_SYSTEM_SECRETS = """
    /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d
    /etc/ssl/private /etc/krb5.keytab /etc/wireguard /etc/NetworkManager/system-connections
    /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key
"""
_TOOL_DIRECTORIES = """
    .pyenv .rbenv .nvm .volta .asdf .rustup .cargo/bin .deno/bin .bun/bin go/bin .sdkman
    .local/bin .local/lib .local/share/uv .local/share/pipx .local/share/mise
    .local/share/pnpm miniconda3 anaconda3 miniforge3 .nix-profile .ghcup/bin .juliaup
"""
# Below the home directory: packages that builds read. They hold no secrets.
_PACKAGE_CACHES = """
    .cargo/registry .cargo/git .rustup go/pkg .cache/go-build .m2/repository .gradle/caches
    .gradle/wrapper .npm .cache/npm .cache/yarn .yarn/berry .cache/pnpm .local/share/pnpm/store
    .cache/pip .cache/uv .cache/pypoetry .cache/pre-commit .gem .bundle/cache .nuget/packages
    .ivy2/cache .cache/coursier .pub-cache .hex .mix .cabal/packages .stack .opam
    .cache/ms-playwright .cache/Cypress .cache/ccache .cache/electron
"""
_SOCKET_LIST = "/proc/net/unix"
# Below /run, and needed by all programs: host lookup, and on some systems programs
# themselves.
_SYSTEM_IN_RUN = (
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
    "/run/wrappers",
)


def no_paths() -> Sequence[str]:
    return ()


class SandboxConfig(Struct, frozen=True, kw_only=True):
    """What a session and its settings require of the sandbox.

    `roots` are real paths. With `user_namespaces` commands may make user namespaces, and mount
    in them. Commands may also write the directories `writable`, and read the directories
    `readable` if the home is hidden; both may begin with `~`. `own` are directories of refold,
    which commands do not see, except for those in `shared`. Two of these directories are
    `quarantine`, for files that commands created at guarded paths, and `states`, for the
    earlier state of guarded paths. `unread` returns the paths that no command may read.
    `filter` connects commands to named hosts; `denied_hosts` are patterns of hosts that none
    may reach. `ssh_agent` is the socket of the agent that signs commits; "": commands cannot
    sign.
    """

    roots: tuple[str, ...]
    profile: Profile = "workspace"
    network: bool = False
    user_namespaces: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    unread: Callable[[], Sequence[str]] = no_paths
    quarantine: str = ""
    states: str = ""
    filter: NetworkFilter | None = None
    denied_hosts: Callable[[], Sequence[str]] = no_paths
    ssh_agent: str = ""


class SandboxRules(Struct, frozen=True, kw_only=True):
    """What one command sees and may write.

    All paths are real and exist. `private` is the session's private directory. Parts of it are
    shown as /tmp and /var/tmp and in place of covered paths (see
    `bubblewrap.fill_private_directory`).

    `covered` directories and `hidden` files look empty. `unread` files show a note instead of
    their content. `denied` paths cannot be opened; a directory that contains one cannot be
    renamed, because the path could be opened by its new name. `open` directories are writable,
    except for the `shut` paths in them. `seen` paths are visible even in covered directories.
    `instead` pairs files with files of refold that are shown in their place; `settings` does so
    for paths in covered directories. `links` pairs symbolic links with their targets, for a
    command from which "/" is covered.

    A read-only command (`looking`) can only read the /tmp of the session, or has an empty one
    (`own_tmp`). Its /var/tmp is deleted with it. With `hosts` a command reaches only these,
    through a filter, and `network` is false.
    """

    private: str
    cwd: str
    covered: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    instead: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    roots: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    shut: tuple[str, ...] = ()
    network: bool = False
    hosts: "ReachableHosts | None" = None
    looking: bool = False
    own_tmp: bool = False
    root: bool = False  # we are root, without a user namespace


class CommandContext(Struct, frozen=True):
    """Where and how a command runs. `private` is as in `SandboxRules`."""

    private: str
    cwd: str
    # it can connect only to sockets that it could have created itself
    guards_sockets: bool = False
    own_tmp: bool = False


class SandboxRuleBuilder:
    """Builds the sandbox rules of a session's commands.

    `path` returns the directories in which programs are searched.
    """

    def __init__(
        self, config: SandboxConfig, home: str, path: Callable[[], Sequence[str]]
    ) -> None:
        self._config, self._home, self._path = config, home, path
        self.writable = [_expand_home(path, home) for path in config.writable]
        self._readable = [_expand_home(path, home) for path in config.readable]
        self.repositories = [path for path in map(worktree_of, config.roots) if path]

    def rules(
        self,
        context: CommandContext,
        confines: Confinement,
        guarded: GuardedPaths,
        visible: Sequence[str],
    ) -> SandboxRules:
        """Return the rules for one command, which must see the paths in `visible`.

        `guarded` are the guarded paths of the workspace. `confines` must already be limited to
        the session's settings.
        """
        config = self._config
        writes = confines.writes
        # the command can read the disk except keys
        reads_disk = writes and not confines.narrow
        network = confines.network and confines.hosts is None
        extra_directories = [
            p for p in (*self.writable, *self.repositories) if os.path.isdir(p)
        ]
        covered = self._covered_paths(network=confines.network, reads_disk=reads_disk)
        opened = (*confines.opened, *confines.of_git)
        # A read-only search would show the content of keys.
        keys = () if reads_disk else _paths_to_shut(guarded.keys, confines.opened)
        sockets = socket_paths(
            among=(*config.roots, *self.writable) if context.guards_sockets else ("/",),
            save=config.roots if network else (),
        )
        open_directories = (*config.roots, *extra_directories)
        read_only, instead = (), ()
        if writes:
            to_protect = _paths_to_shut(guarded.paths, opened, guarded.links)
            read_only = tuple(
                path
                for path in guarded.oldest_first(to_protect)
                if any(below(path, directory) for directory in open_directories)
            )
        else:
            instead = tuple(self._without_programs(guarded, context.private))
        system_links: tuple[tuple[str, str], ...] = ()
        if not reads_disk:
            _, system_links = self._system
        return SandboxRules(
            private=context.private,
            cwd=context.cwd,
            covered=tuple(path for path in covered if os.path.isdir(path)),
            hidden=tuple(path for path in covered if not os.path.isdir(path)),
            unread=(*keys, *sockets),
            seen=tuple(self._seen_paths(confines, visible, reads_disk=reads_disk)),
            links=system_links,
            instead=instead,
            roots=config.roots,
            open=open_directories if writes else (),
            shut=read_only,
            network=network,
            hosts=confines.hosts if confines.network else None,
            looking=not writes,
            own_tmp=context.own_tmp,
            root=os.geteuid() == 0,
        )

    def _seen_paths(
        self, confines: Confinement, visible: Sequence[str], *, reads_disk: bool
    ) -> Iterator[str]:
        """Yield the paths that stay visible in covered directories, including `visible`."""
        yield from paths_needed_in_run()
        if reads_disk:
            yield from self._home_elsewhere()
        else:
            yield from self._tools
            if confines.writes:
                yield from _existing_paths(_paths_in(self._home, _PACKAGE_CACHES))
        yield from self._shared_directories()
        yield from visible
        yield from filter(os.path.isdir, self.repositories)
        yield from filter(os.path.exists, confines.seen)

    def can_write(self, path: str) -> bool:
        """Whether the settings make `path`, relative to the home, writable."""
        return any(below(os.path.join(self._home, path), root) for root in self.writable)

    def _covered_paths(self, *, network: bool, reads_disk: bool) -> list[str]:
        """Return the paths that look empty to a command, except for workspace roots."""
        covered = [
            os.path.realpath(path) for path in self._config.own if os.path.exists(path)
        ]
        covered += _existing_paths(_paths_in(self._home, _AGENT_KEY_PATHS))
        if not network:
            covered += key_paths(self._home)
        if not reads_disk:  # commands that run without asking see only what is listed
            covered += ["/", *system_secrets()]
        return [path for path in covered if path not in self._config.roots]

    def _without_programs(
        self, guarded: GuardedPaths, private: str
    ) -> Iterator[tuple[str, str]]:
        """Yield each git settings file that names programs, with a copy that names none.

        The copies are written to the directory `private`.
        """
        directories = (*self._config.roots, *self.repositories)
        for path in sorted(guarded.repositories):
            if not os.path.basename(path).startswith("config"):
                continue
            real = os.path.realpath(path)
            if not any(below(real, directory) for directory in directories):
                continue
            text = without_programs(real)
            if text is None:
                continue
            data = text.encode(errors="surrogateescape")
            copy = os.path.join(private, f"config-{sha256(data).hexdigest()}")
            with suppress(FileExistsError), open(copy, "xb") as file:
                file.write(data)
            yield real, copy

    @cached_property
    def _system(self) -> tuple[list[str], tuple[tuple[str, str], ...]]:
        directories, links = system_directories()
        return directories, tuple(links)

    @cached_property
    def _tools(self) -> list[str]:
        """The directories with programs of the system and of the user, and what these need."""
        directories = (*tool_directories(self._home, self._path()), *self._readable)
        system_paths, _ = self._system
        shown = system_paths.copy()
        for path in sorted({*map(os.path.realpath, directories)} - {"/"}):
            if not any(below(path, outer) for outer in shown):
                shown.append(path)
        return shown

    def _home_elsewhere(self) -> list[str]:
        """Return [the home] if the sandbox replaces a directory above it; otherwise [].

        That is the case for /tmp. The home is mounted there again: settings in it must stay
        readable.
        """
        elsewhere = any(below(self._home, path) for path in REPLACED_DIRECTORIES)
        return [self._home] if elsewhere and os.path.isdir(self._home) else []

    def _shared_directories(self) -> list[str]:
        """Return the existing directories in `shared`, but no links.

        A link could lead to hidden files.
        """
        shared = self._config.shared
        return [p for p in shared if os.path.isdir(p) and os.path.realpath(p) == p]


def _paths_to_shut(
    paths: Set[str],
    open_paths: Sequence[str],
    links: Mapping[str, str] = MappingProxyType({}),
) -> set[str]:
    """Return `paths` without those that are at, above or below one of `open_paths`.

    The returned paths will be protected. For a path in `links`, the path that the link leads to
    is returned. Missing paths are left out.
    """
    link_targets = {os.path.realpath(path) for path in links}
    candidates = (paths - links.keys()) | link_targets
    return {
        path
        for path in candidates
        if not any(
            below(open_path, path) or below(path, open_path) for open_path in open_paths
        )
        and os.path.exists(path)
    }


def with_denied(denied_paths: Sequence[str], rules: SandboxRules) -> SandboxRules:
    """Return `rules` with more paths that the command may not read.

    Directories outside the roots are covered; visible paths in them stay visible. /tmp and
    /proc are not covered, because a command has its own.
    """
    directories_outside = [
        path
        for path in denied_paths
        if os.path.isdir(path) and not any(below(path, root) for root in rules.roots)
    ]
    to_cover = [path for path in directories_outside if path not in _PROVIDED_DIRECTORIES]
    return replace(
        rules,
        covered=tuple(dict.fromkeys((*rules.covered, *to_cover))),
        denied=tuple(path for path in denied_paths if path not in directories_outside),
    )


def _expand_home(path: str, home: str) -> str:
    return os.path.realpath(home + path[1:] if path.split("/")[0] == "~" else path)


def key_paths(home: str) -> list[str]:
    """Return the real paths of existing files and directories with keys, below `home`."""
    return _existing_paths(_paths_in(home, _KEY_PATHS))


def system_directories() -> tuple[list[str], list[tuple[str, str]]]:
    """Return the directories that programs need on any machine, and links to directories.

    The directories contain no data of a user. Each link comes with its target.
    """
    directories, links = list[str](), list[tuple[str, str]]()
    for path in _SYSTEM_DIRECTORIES.split():
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            directories.append(path)
    return directories, links


def system_secrets() -> list[str]:
    """Return the system's secret files that this user can read, for example as root."""
    names = _SYSTEM_SECRETS.split()
    return _existing_paths(path for path in names if os.access(path, os.R_OK))


def tool_directories(home: str, path: Sequence[str]) -> list[str]:
    """Return directories in which users install programs, and what these programs need.

    `path` are the directories of the PATH. For a `bin` in `.pyenv` or a virtual environment,
    the directory above is returned, too, because its programs need the rest. The directory
    above `~/bin` is not returned: it is the home.
    """
    prefixes = filter(_is_prefix, map(os.path.dirname, path))
    return _existing_paths([*_paths_in(home, _TOOL_DIRECTORIES), *path, *prefixes])


def _is_prefix(folder: str) -> bool:
    """Whether `folder` is the top of an installation, such as a virtual environment.

    Programs in a folder below then need the rest of it.
    """
    if any(os.path.exists(os.path.join(folder, n)) for n in ("pyvenv.cfg", "conda-meta")):
        return True
    name = os.path.basename(folder)
    return name.startswith(".") and name not in (".local", ".config", ".cache")


def paths_needed_in_run() -> list[str]:
    """Return the paths below /run that programs need."""
    names = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/hostname")
    targets = map(os.path.realpath, names)  # some systems keep these files below /run
    in_run = [path for path in targets if path.startswith("/run/") and os.path.exists(path)]
    return [*_existing_paths(_SYSTEM_IN_RUN), *in_run]


def socket_paths(*, among: Sequence[str], save: Sequence[str]) -> list[str]:
    """Return the paths below `among`, but not below `save`, on which a program listens."""
    return sorted({
        path
        for path in _listening_sockets()
        if any(below(path, root) for root in among)
        and not any(below(path, root) for root in save)
    })  # fmt: skip


def _listening_sockets() -> Iterator[str]:
    """Yield the paths of all sockets of the machine on which a program listens."""
    try:
        with open(_SOCKET_LIST, "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # not Linux
        return
    # many sockets are in the same folder, so its links are followed once
    folders = dict[str, str]()
    for line in lines:
        # Seven numbers and words, then the path, if there is one.
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[7].startswith(b"/"):
            folder, name = os.path.split(os.fsdecode(fields[7]))
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            yield from _socket(os.path.join(folders[folder], name))


def _socket(path: str) -> Iterator[str]:
    """Yield `path`, with links resolved, if it is a socket."""
    with suppress(OSError):  # deleted
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            path = os.path.realpath(path)
            mode = os.lstat(path).st_mode
        if stat.S_ISSOCK(mode):
            yield path


@lru_cache
def _paths_in(home: str, names: str) -> tuple[str, ...]:
    return tuple(os.path.join(home, name) for name in names.split()) if home else ()


def _existing_paths(paths: Iterable[str]) -> list[str]:
    """Return the real paths of those of `paths` that exist, each once."""
    # Each command checks a hundred paths, most of which do not exist. `access` finds that
    # out much faster than following links, and faster than a failing `stat`.
    existing = (path for path in paths if os.access(path, os.F_OK))
    return list(dict.fromkeys(map(os.path.realpath, existing)))
