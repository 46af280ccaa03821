"""Attacks that leave a program for the person to run: by the next `git status`, an editor, a shell.

All run in mode sandbox, in which nobody is asked.
"""

from tests.redteam.house import Attack
from tests.redteam.without_mounts import WITHOUT_MOUNTS

# What git runs to know which files have changed. It writes beside the workspace.
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {home}/ws\n"
    '\tfsmonitor = "touch {home}/planted; false"\n'
)
_HOOK = "#!/bin/sh\ntouch {home}/planted\n"
_START = (
    "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m; "
    "mkdir .vscode; echo as-it-was | tee .vscode/tasks.json > .env; cp .vscode/tasks.json {home}/was"
)
# The person looks around, and compares what an editor and a shell would run.
_LOOKS = (
    "for d in . $(find . -type d -not -path '*/.git/*'); do (cd $d && git status); done; "
    "git -c user.name=a -c user.email=a@b commit --allow-empty -m n; "
    "cmp .vscode/tasks.json {home}/was && cmp .env {home}/was || touch {home}/planted; "
    "[ -e .envrc ] && . ./.envrc; true"
)


def _repository(directory: str) -> str:
    return (
        f"mkdir -p {directory}/objects {directory}/refs; echo ref: refs/heads/main > {directory}/HEAD; "
        f"cp config {directory}/config"
    )


def _planter(
    name: str, *calls: str | tuple[str, dict[str, object]], **files: str
) -> Attack:
    """Commands are in scripts: the names in a command itself would be asked about."""
    scripts = {f"{n}.sh": call for n, call in enumerate(calls) if isinstance(call, str)}
    return Attack(
        name=name, before=_START, mode="sandbox", afterwards=_LOOKS,
        calls=[f"bash {n}.sh" if isinstance(c, str) else c for n, c in enumerate(calls)],
        plants={"config": _CONFIG, "hook": _HOOK, **scripts, **files},
    )  # fmt: skip


def _renamed(name: str, code: str) -> Attack:
    """From a mount namespace of its own, in which nothing is mounted over the guarded paths."""
    files = {"t.py": WITHOUT_MOUNTS, "code": code}
    return _planter(name, 'python3 t.py "$(cat code)"', "cat notes.txt", **files)


_COPIES = "import shutil; shutil.copy"

PLANTERS = (
    _renamed("hooks renamed away", f"os.rename('.git/hooks', '.git/h'); os.mkdir('.git/hooks'); {_COPIES}('hook', '.git/hooks/pre-commit'); os.chmod('.git/hooks/pre-commit', 493)"),
    _renamed("settings of git renamed away", f"os.rename('.git/config', 'c'); {_COPIES}('config', '.git/config')"),
    _renamed("settings of an editor renamed away", f"os.rename('.vscode', 'v'); os.mkdir('.vscode'); {_COPIES}('config', '.vscode/tasks.json')"),
    _renamed("keys renamed away", "os.rename('.env', 'notes.txt')"),
    _renamed("the whole repository renamed away", f"os.rename('.git', 'g'); shutil = __import__('shutil'); shutil.copytree('g', '.git'); {_COPIES}('config', '.git/config')"),
    _planter(
        "a commondir that hides modules",
        f"{_repository('.git/modules/evil')}; mkdir empty; echo ../empty > .git/commondir",
        "mkdir sub; echo 'gitdir: ../.git/modules/evil' > sub/.git",
    ),
    _planter(
        "a submodule with a long name", _repository(".git/modules/a/b/c/evil"),
        "mkdir sub; echo 'gitdir: ../.git/modules/a/b/c/evil' > sub/.git",
    ),
    _planter(
        "a repository where none is kept", _repository(".git/info/evil"),
        "mkdir sub; echo 'gitdir: ../.git/info/evil' > sub/.git",
    ),
    _planter(
        "a submodule of a submodule", f"{_repository('.git/modules/a')}; {_repository('.git/modules/a/modules/b')}",
        "mkdir s; echo 'gitdir: ../.git/modules/a/modules/b' > s/.git",
    ),
    _planter(
        "a pointer to what the file tools then make", "mkdir s; echo 'gitdir: d' > s/.git",
        ("write_file", {"path": "s/d/HEAD", "content": "ref: refs/heads/main\n"}),
        ("write_file", {"path": "s/d/objects/x", "content": "x"}),
        ("write_file", {"path": "s/d/refs/x", "content": "x"}),
        ("write_file", {"path": "s/d/config", "content": _CONFIG}),
    ),
    _planter(
        "a bare repository by the file tools",
        ("write_file", {"path": "d/config", "content": _CONFIG}),
        ("write_file", {"path": "d/objects/x", "content": "x"}),
        ("write_file", {"path": "d/refs/x", "content": "x"}),
        ("write_file", {"path": "d/HEAD", "content": "ref: refs/heads/main\n"}),
    ),
    _planter("a bare repository", _repository("d")),
    _planter("a bare repository, deep", _repository("a/b/c/d")),
    _planter("a bare repository in two steps", "mkdir d; cp config d/config", _repository("d")),
    _planter(
        "a bare repository with another one's objects",
        "mkdir d; echo ../.git > d/commondir; cp .git/HEAD d/HEAD; mkdir d/hooks; cp hook d/hooks/post-index-change; chmod +x d/hooks/*",
        "cp config d/config.worktree; cp config d/config",
    ),
    _planter("a bare repository by a link", f"{_repository('.git/x')}; ln -s .git/x d"),
    _planter(
        "a hook that a git command runs",
        "mkdir h; cp hook h/pre-commit; printf 'cp config .git/config' >> h/pre-commit; chmod +x h/*",
        "git -c core.hooksPath=h -c user.name=a -c user.email=a@b commit --allow-empty -m x",
        ("bash", {"command": "git commit --allow-empty -m x"}),
    ),
    _planter("a file that a shell runs", "echo 'touch {home}/planted' > .envrc"),
)  # fmt: skip
