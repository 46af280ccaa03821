"""Rules about paths that depend only on their names: containment, and protected names.

Files with a protected name are executed, trusted or secret. The permission rules ask before a
call touches one, and the sandbox prevents commands from writing it: both use this list. The
functions read no disk, so the caller must have resolved links. Case is ignored, as on some
disks.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct

_GIT_REASON = "git runs programs that it names"
KEYS_REASON = "it holds keys or passwords"
_VERSIONS_REASON = "version control runs programs that it names"
_SHELL_REASON = "shells and desktops run it when they start"
_EDITOR_REASON = "editors run what it names"
_AGENT_REASON = "it says what agents may do and run"
_TOOL_REASON = "tools read instructions from it"

_WORKSPACE_SUFFIXES = (".code-workspace", ".sublime-project", ".sublime-workspace")

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
    .exrc .nvimrc .devcontainer.json .lapce .helix .kakrc .nova .vs .lvimrc .vimrc.local
    .nvim.lua .emacs .emacs.d .dir-locals.el .dir-locals-2.el .lazy.lua .editrc
"""
_AGENT_NAMES = """
    .refold .agent .agents .claude .claude.json .mcp.json mcp.json .codex .cursor .gemini
    .qwen .opencode .aider.conf.yml .aider.conf.yaml .aider.model.settings.yml
    mcp_servers.json mcp_config.json mcp-config.json mcp.jsonc .mcp.jsonc mcp_settings.json
    opencode.json opencode.jsonc .opencode.json .opencode.jsonc .crush.json crush.json .crush
    .continue .continuerc.json .cline .clinerules .roo .roorules .roomodes .kilocode .kilocodemodes
    .cursorrules .windsurfrules .windsurf .codeium .goose .goosehints .kiro .junie .augment .trae
    .amp .amazonq .zencoder .factory .copilot .cody .tabnine .plandex .openhands .firebender
    .iflow .rovodev .vibe .pi .warp .codebuddy .qoder .forge.yaml forge.yaml
"""
_TOOL_NAMES = """
    .envrc .envrc.local .envrc.private .npmrc .pnpmfile.cjs .pnpmfile.mjs .mise .mise.toml mise.toml
    .mise.local.toml mise.local.toml .rtx.toml .rtx .direnvrc .yarnrc .yarnrc.yml .gemrc .condarc .ripgreprc .wgetrc .curlrc .gdbinit
    .lldbinit .pdbrc .pythonrc .pythonstartup .psqlrc
    .sqliterc .irbrc .rprofile .hgrc .lesskey
"""


class Guard(Struct, frozen=True):
    """A protected name: consecutive parts of a path, in lower case, and everything below that
    path.

    If `alone`, what is below is not protected. `*` matches any characters of one part.
    """

    parts: tuple[str, ...]
    reason: str
    alone: bool = False


# Why a name is protected, wherever it is a part of a path.
REASON_BY_NAME = {
    name: reason
    for names, reason in (
        (_GIT_NAMES, _GIT_REASON),
        (_KEY_NAMES, KEYS_REASON),
        (_SHELL_NAMES, _SHELL_REASON),
        (_EDITOR_NAMES, _EDITOR_REASON),
        (_AGENT_NAMES, _AGENT_REASON),
        (_TOOL_NAMES, _TOOL_REASON),
    )
    for name in names.split()
}

# Protected paths in the directory of a repository: in `.git`, or in the directory that a
# `.git` file names.
IN_GIT = (
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "info/attributes",
    "rebase-merge/git-rebase-todo",
    "rebase-merge/strategy",
    "rebase-apply/strategy",
    "sequencer/todo",
    "sequencer/opts",
    "modules/*/config",
    "modules/*/hooks",
    "worktrees/*/config.worktree",
    "worktrees/*/commondir",
)

PATH_GUARDS = (
    Guard((".git",), "git finds programs to run there", alone=True),
    *(Guard((".git", *below.split("/")), _GIT_REASON) for below in IN_GIT),
    *(
        Guard((".hg", name), _VERSIONS_REASON)
        for name in ("hgrc", "hgrc-not-shared", "sharedpath")
    ),
    *(Guard((".sl", name), _VERSIONS_REASON) for name in ("config", "sharedpath")),
    *(
        Guard((".jj", *name), _VERSIONS_REASON)
        for name in (("repo", "config.toml"), ("workspace-config.toml",))
    ),
    Guard((".bzr", "branch", "branch.conf"), _VERSIONS_REASON),
    Guard((".pijul", "config"), _VERSIONS_REASON),
    Guard((".env.*",), KEYS_REASON),
    *(Guard((f"*{ending}",), _EDITOR_REASON) for ending in _WORKSPACE_SUFFIXES),
    *(Guard((".cargo", name), _TOOL_REASON) for name in ("config", "config.toml")),
    Guard((".config", "mise"), _TOOL_REASON),
    Guard((".config", "git"), _GIT_REASON),
    *(Guard((".config", name), KEYS_REASON) for name in ("gcloud", "gh", "op", "rclone")),
    *(
        Guard((".config", name), _SHELL_REASON)
        for name in ("fish", "autostart", "systemd", "environment.d", "direnv", "zsh")
    ),
    *(Guard((".config", name), _EDITOR_REASON) for name in ("nvim", "code", "zed")),
    *(Guard((".config", name), _AGENT_REASON) for name in ("refold", "claude", "opencode")),
    Guard((".local", "share", "systemd"), _SHELL_REASON),
    Guard((".local", "share", "keyrings"), KEYS_REASON),
    Guard((".local", "bin"), _SHELL_REASON),
)

# Files that instruct agents and tools, and are part of many projects. Commands like git
# write them all the time, so the sandbox permits that. A user who allowed edits did not
# mean these files.
_STEERING_TEXT = """
    agents.md agents.override.md agent.md claude.md claude.local.md gemini.md qwen.md crush.md
    warp.md opencode.md copilot-instructions.md .rules .gitattributes .tool-versions
    .pre-commit-config.yaml .pre-commit-config.yml .overcommit.yml .lintstagedrc .simple-git-hooks.json
    lefthook.yml lefthook.yaml lefthook.toml lefthook.json lefthook-local.yml lefthook-local.yaml
    .lefthook.yml .lefthook.yaml .lefthook.toml .lefthook-local.yml .lefthook .husky .huskyrc
    .pnp.cjs .yarn .cargo bunfig.toml rust-toolchain rust-toolchain.toml
"""
_STEERING_NAMES = frozenset(_STEERING_TEXT.split())
_COPILOT_FOLDERS = ("instructions", "prompts", "chatmodes", "agents", "hooks")
# The name of `.git` on file systems with short names.
_SHORT_NAMES = {"git~1": ".git"}

# Templates, which are named like files of keys.
HARMLESS_NAMES = (
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env.defaults",
)


def guard_reason(parts: Sequence[str]) -> str:
    """Return why the path with these parts is protected; "" if it is not.

    If there are several reasons, the reason for a key file is returned, because key files must
    not be read either.
    """
    names = [_normalize_part(part) for part in parts if part not in ("", ".", "/")]
    reasons = list(_reasons(names))
    if KEYS_REASON in reasons:
        return KEYS_REASON
    return reasons[0] if reasons else ""


def is_steering(parts: Sequence[str]) -> bool:
    """Whether the file instructs agents or tools. Commands may still write it."""
    names = [_normalize_part(part) for part in parts]
    if any(name in _STEERING_NAMES for name in names):
        return True
    return any(
        parent == ".github" and child in _COPILOT_FOLDERS
        for parent, child in pairwise(names)
    )


def _reasons(names: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why a path with these normalized parts is protected."""
    for index, name in enumerate(names):
        if reason := REASON_BY_NAME.get(name):
            yield reason
            continue
        # The first part of each guard begins with a dot, or ends with such a suffix.
        may_match = name.startswith(".") or name.endswith(_WORKSPACE_SUFFIXES)
        if may_match and name not in HARMLESS_NAMES:
            rest = names[index:]
            yield from (guard.reason for guard in PATH_GUARDS if _matches(guard, rest))


def _matches(guard: Guard, parts: Sequence[str]) -> bool:
    """Whether `parts` begin with the parts of the guard.

    If the guard is `alone`, `parts` must have no further parts.
    """
    if len(parts) < len(guard.parts):
        return False
    if guard.alone and len(parts) > len(guard.parts):
        return False
    pairs = zip(parts, guard.parts, strict=False)
    return all(fnmatchcase(part, pattern) for part, pattern in pairs)


def _normalize_part(part: str) -> str:
    """Return the name as a case-insensitive disk compares it, without trailing spaces
    and dots.
    """
    if part.isascii():
        name = part.lower().rstrip(". ")
        return _SHORT_NAMES.get(name, name)
    # Some file systems ignore invisible characters.
    letters = (letter for letter in part if unicodedata.category(letter) != "Cf")
    name = unicodedata.normalize("NFKC", "".join(letters)).casefold().rstrip(". ")
    return _SHORT_NAMES.get(name, name)


def below(path: str, directory: str) -> bool:
    """Whether `path` is `directory` itself or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def relative_name(path: str, directory: str) -> str:
    """Return `path` relative to `directory`; unchanged if it is not below `directory`."""
    if not directory or path == directory or not below(path, directory):
        return path
    return path.removeprefix(directory.rstrip("/") + "/")
