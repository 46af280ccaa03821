"""Paths of this machine that commands are not shown: keys, and sockets of other programs.

Only which paths these are: `sandbox_rules` and `bubblewrap` mask them.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from refold.values.path_names import below

# Below the home directory. A command that may reach the network gets these: git, ssh and
# the programs of the clouds cannot do without.
_KEYS = """
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
# Other agents keep keys and talks here: no command of ours needs them.
_AGENTS = """
    .claude/.credentials.json .claude.json .codex/auth.json .gemini/oauth_creds.json
    .local/share/opencode/auth.json .config/goose/secrets.yaml .continue/config.yaml
    .aider.conf.yml .qwen/oauth_creds.json .config/io.datasette.llm/keys.json
"""
# Programs, their settings and libraries, and what packages are installed.
_SYSTEM = """
    /bin /etc /gnu /lib /lib32 /lib64 /libx32 /nix /opt /sbin /snap /sys/devices/system /usr
    /var/guix/profiles /var/lib/dpkg /var/lib/pacman /var/lib/rpm
"""
_SECRETS = """
    /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d
    /etc/ssl/private /etc/krb5.keytab /etc/wireguard /etc/NetworkManager/system-connections
    /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key
"""
_TOOLS = """
    .pyenv .rbenv .nvm .volta .asdf .rustup .cargo/bin .deno/bin .bun/bin go/bin .sdkman
    .local/bin .local/lib .local/share/uv .local/share/pipx .local/share/mise
    .local/share/pnpm miniconda3 anaconda3 miniforge3 .nix-profile .ghcup/bin .juliaup
"""
_SOCKETS = "/proc/net/unix"
# Below /run, and needed by everybody: names to addresses, and where some keep programs.
_SEEN = ("/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/wrappers")


def keys(home: str) -> list[str]:
    """Files and directories with keys that exist, links followed."""
    return _existing(_at(home, _KEYS))


def agents(home: str) -> list[str]:
    return _existing(_at(home, _AGENTS))


def system() -> tuple[list[str], list[tuple[str, str]]]:
    """What programs need of a machine, which holds nothing of a person: directories, links."""
    links = [(path, os.readlink(path)) for path in _SYSTEM.split() if os.path.islink(path)]
    linked = {path for path, _ in links}
    return [p for p in _SYSTEM.split() if p not in linked and os.path.isdir(p)], links


def of_the_system() -> list[str]:
    """What only its owner should see, where that is us."""
    return [path for path in _existing(_SECRETS.split()) if os.access(path, os.R_OK)]


def tools(home: str, path: Sequence[str]) -> list[str]:
    """Where people keep programs of their own, and what these need to run.

    `path` are the directories of the PATH. One in `.pyenv` or a virtual environment needs
    the rest of that, but one in a home or among projects does not need what is beside it.
    """
    around = [os.path.dirname(folder) for folder in path]
    return _existing([*_at(home, _TOOLS), *path, *filter(_is_prefix, around)])


def _is_prefix(folder: str) -> bool:
    if any(os.path.exists(os.path.join(folder, n)) for n in ("pyvenv.cfg", "conda-meta")):
        return True
    name = os.path.basename(folder)
    return name.startswith(".") and name not in (".local", ".config", ".cache")


def needed() -> list[str]:
    """What lies below /run and must be seen all the same."""
    names = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/hostname")
    real = (os.path.realpath(name) for name in names)
    running = [path for path in real if path.startswith("/run/") and os.path.exists(path)]
    return [*_existing(_SEEN), *running]


def sockets(*, among: Sequence[str], save: Sequence[str]) -> list[str]:
    """Doors of running programs that lie openly below `among`, but not below `save`."""
    return sorted({
        path
        for path in _listening()
        if any(below(path, root) for root in among)
        and not any(below(path, root) for root in save)
    })  # fmt: skip


def _listening() -> Iterator[str]:
    try:
        with open(_SOCKETS, "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # no Linux
        return
    for line in lines:
        # Seven numbers and words, then the path, if there is one.
        named = line.split(maxsplit=7)[7:]
        if named and named[0].startswith(b"/"):
            path = os.path.realpath(os.fsdecode(named[0]))
            if _is_socket(path):
                yield path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


@lru_cache
def _at(home: str, names: str) -> tuple[str, ...]:
    return tuple(os.path.join(home, name) for name in names.split()) if home else ()


def _existing(paths: Iterable[str]) -> list[str]:
    # To follow links costs much more than to see that nothing is there.
    return list(dict.fromkeys(os.path.realpath(p) for p in paths if os.path.exists(p)))
