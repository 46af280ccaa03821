"""Names that open doors: what is written there is run, believed or kept secret later.

One list for everybody: the rules ask before a file tool or a command touches such a
path, and the sandbox keeps commands from writing there. It knows names only, no disk;
links must have been followed before. Letters count the same large and small, because
on some disks they are.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

_GIT = "git runs programs that it names"
KEYS = "it holds keys or passwords"
_SHELL = "shells and desktops run it when they start"
_EDITOR = "editors run what it names"
_AGENT = "it says what agents may do and run"
_TOOL = "tools take orders from it"

_WORKSPACE = ".code-workspace"

_GIT_NAMES = ".gitconfig .gitmodules .git-credentials"
_KEY_NAMES = """
    .env .netrc _netrc .pypirc .pgpass .vault-token .htpasswd .ssh .gnupg .aws .azure .kube
    .docker .password-store id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk
"""
_SHELL_NAMES = """
    .profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .inputrc
    .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout
    .xprofile .xinitrc .xsession .xsessionrc .xserverrc .pam_environment .tmux.conf .screenrc
    .zsh .oh-my-zsh
"""
_EDITOR_NAMES = """
    .vscode .vscode-server .windsurf .idea .zed .fleet .devcontainer .vim .vimrc .gvimrc
    .exrc .nvimrc
    .nvim.lua .emacs .emacs.d .dir-locals.el
"""
_AGENT_NAMES = """
    .refold .agent .agents .claude .claude.json .mcp.json mcp.json .codex .cursor .gemini
    .qwen .opencode .aider.conf.yml
"""
_TOOL_NAMES = """
    .envrc .npmrc .yarnrc .yarnrc.yml .gemrc .condarc .ripgreprc .wgetrc .curlrc .gdbinit
    .lldbinit .pdbrc .pythonrc .pythonstartup .psqlrc
    .sqliterc .irbrc .rprofile .hgrc .lesskey
"""


class Guard(Struct, frozen=True):
    """Some parts of a path that follow each other. All that is below is meant, too.

    With `alone` it is not. `*` stands for any letters of one part. Small letters.
    """

    parts: tuple[str, ...]
    reason: str
    alone: bool = False


# One part, anywhere in a path.
NAMES = {
    name: reason
    for names, reason in (
        (_GIT_NAMES, _GIT),
        (_KEY_NAMES, KEYS),
        (_SHELL_NAMES, _SHELL),
        (_EDITOR_NAMES, _EDITOR),
        (_AGENT_NAMES, _AGENT),
        (_TOOL_NAMES, _TOOL),
    )
    for name in names.split()
}

# In the directory of a repository, `.git` or wherever a `.git` file points to.
IN_GIT = (
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "info/attributes",
    "modules/*/config",
    "modules/*/hooks",
    "worktrees/*/config.worktree",
    "worktrees/*/commondir",
)

GUARDS = (
    Guard((".git",), "git looks there for what to run", alone=True),
    *(Guard((".git", *below.split("/")), _GIT) for below in IN_GIT),
    Guard((".env.*",), KEYS),
    Guard((f"*{_WORKSPACE}",), _EDITOR),
    Guard((".config", "git"), _GIT),
    *(Guard((".config", name), KEYS) for name in ("gcloud", "gh", "op", "rclone")),
    *(
        Guard((".config", name), _SHELL)
        for name in ("fish", "autostart", "systemd", "environment.d", "direnv", "zsh")
    ),
    *(Guard((".config", name), _EDITOR) for name in ("nvim", "code", "zed")),
    *(Guard((".config", name), _AGENT) for name in ("refold", "claude", "opencode")),
    Guard((".local", "share", "systemd"), _SHELL),
    Guard((".local", "share", "keyrings"), KEYS),
    Guard((".local", "bin"), _SHELL),
)

# They look like keys, and are there to be read and filled in.
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults")


def guarded(parts: Sequence[str]) -> str:
    """Why the path with these parts is guarded; "" if it is not.

    Keys come before any other reason, for they must not be read either.
    """
    found = list(_reasons([_plain(part) for part in parts if part not in ("", ".", "/")]))
    return KEYS if KEYS in found else next(iter(found), "")


def _reasons(plain: Sequence[str]) -> Iterator[str]:
    for at, part in enumerate(plain):
        if reason := NAMES.get(part):
            yield reason
        elif part not in HARMLESS and (part.startswith(".") or part.endswith(_WORKSPACE)):
            yield from (g.reason for g in GUARDS if _matches(g, plain[at:]))


def _matches(guard: Guard, parts: Sequence[str]) -> bool:
    wanted = len(guard.parts)
    if len(parts) < wanted or (guard.alone and len(parts) > wanted):
        return False
    return all(map(fnmatchcase, parts, guard.parts))


def _plain(part: str) -> str:
    """As a disk that knows no large letters compares names."""
    if part.isascii():
        return part.lower()
    # Some disks leave out letters that cannot be seen.
    seen = (letter for letter in part if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", "".join(seen)).casefold()
