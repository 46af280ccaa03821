"""Files that are asked about in every mode, since they hold secrets or decide what runs.

Known by their names, in any case of letters, whether they exist or not. refold's own
directories are told by `Facts.own`. Whether a command names one is judged in `shell`.
"""

import re

from refold.permissions.facts import Facts, below

_SHELLS = (
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv "
    ".zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .inputrc .xprofile "
    ".xinitrc .xsession .pam_environment .envrc .pythonrc .pythonstartup .pdbrc .gdbinit "
    ".lldbinit .exrc .vimrc .nvimrc .emacs .psqlrc .sqliterc .irbrc .Rprofile .screenrc "
    ".tmux.conf .wgetrc .curlrc .npmrc .yarnrc .yarnrc.yml .gemrc .condarc .hgrc .gitconfig "
    ".gitmodules .mcp.json mcp.json .claude.json"
).casefold().split()  # fmt: skip
# Whole folders, wherever they lie.
_FOLDERS = (
    ".refold .vscode .idea .cursor .windsurf .zed .devcontainer .husky .ssh .gnupg .aws .azure "
    ".kube .docker .password-store .config/fish .config/git .config/autostart .config/gcloud "
    ".config/systemd .config/environment.d .config/direnv .config/gh .local/bin "
    ".local/share/keyrings .git/hooks .claude/hooks Library/LaunchAgents Library/Keychains"
).casefold().split()  # fmt: skip
_FILES = (
    ".git/config .git/config.worktree .git/info/attributes .claude/settings.json "
    ".claude/settings.local.json"
).casefold().split()  # fmt: skip
_SECRET_FOLDERS = (
    ".ssh .gnupg .aws .azure .kube .password-store .config/gcloud .config/gh "
    ".local/share/keyrings Library/Keychains"
).casefold().split()  # fmt: skip

_ENVIRONMENT = re.compile(r"\.env(?:\.(?!example$|sample$|template$|dist$|defaults?$).+)?")
_KEYS = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|.+\.(?:pem|key|p12|pfx|ppk|kdbx|keystore|jks)"
    r"|\.netrc|_netrc|\.pgpass|\.pypirc|\.git-credentials|\.htpasswd|\.vault-token"
)


def protected(path: str, facts: Facts, *, writes: bool) -> bool:
    """Is this file asked about in every mode? `path` is absolute."""
    small = path.casefold()
    name = small.rpartition("/")[2]
    if any(below(path, own) for own in facts.own):
        return True
    if _secret(small, name):
        return True
    return writes and _decides(small, name)


def _secret(small: str, name: str) -> bool:
    return bool(
        _ENVIRONMENT.fullmatch(name)
        or _KEYS.fullmatch(name)
        or any(f"/{folder}/" in small + "/" for folder in _SECRET_FOLDERS)
    )


def _decides(small: str, name: str) -> bool:
    return (
        name in _SHELLS
        or name == ".git"
        or name.endswith(".code-workspace")
        or any(f"/{folder}/" in small + "/" for folder in _FOLDERS)
        or any(small.endswith("/" + file) for file in _FILES)
        or _of_a_module(small)
    )


def _of_a_module(small: str) -> bool:
    """Submodules and worktrees keep hooks and settings deeper down."""
    inside = small.partition("/.git/")[2].split("/")
    return inside[0] in ("modules", "worktrees") and bool(
        {"hooks", "config", "config.worktree"} & set(inside[1:])
    )
