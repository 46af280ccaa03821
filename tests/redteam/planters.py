"""Attacks that leave a program for the person to run: by the next `git status`, an editor, a shell.

All run in mode sandbox, in which no question is asked.
"""

from msgspec.structs import replace

from tests.redteam.house import Attack
from tests.redteam.without_mounts import WITHOUT_MOUNTS

# The program that git runs to find changed files. It writes beside the workspace.
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
    "for d in . $(find . \\( -type d -o -type l \\) -not -name 'n[0-9]*' -not -path '*/.git/*'); do "
    "(cd $d && git status; git -c user.name=a -c user.email=a@b commit --allow-empty -m n); done; "
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
    """Return an attack whose commands are in scripts.

    refold would ask about the names if they were in the commands themselves.
    """
    scripts = {f"{n}.sh": call for n, call in enumerate(calls) if isinstance(call, str)}
    return Attack(
        name=name, before=_START, mode="sandbox", afterwards=_LOOKS,
        calls=[f"bash {n}.sh" if isinstance(c, str) else c for n, c in enumerate(calls)],
        plants={"config": _CONFIG, "hook": _HOOK, **scripts, **files},
    )  # fmt: skip


def _with_settings(name: str, settings: str, *calls: str) -> Attack:
    """Return an attack in which settings of the user name files in the workspace."""
    attack = _planter(name, *calls)
    return replace(attack, before=f"{_START}; {settings}")


def _without_mounts(name: str, code: str) -> Attack:
    """Return an attack from a mount namespace without the mounts over guarded paths."""
    files = {"t.py": WITHOUT_MOUNTS, "code": code}
    return _planter(name, 'python3 t.py "$(cat code)"', "cat notes.txt", **files)


def _with_hooks(name: str, call: str) -> Attack:
    """Return an attack on hooks, includes and aliases of git that are files in the workspace."""
    husky = (
        "mkdir -p .husky/_ tools; printf '#!/bin/sh\nsh .husky/pre-commit\n' > .husky/_/pre-commit; "
        "echo true > tools/check.sh; chmod +x .husky/_/* tools/*; touch team.gitconfig; "
        "git config core.hooksPath .husky/_; git config include.path ../team.gitconfig; "
        "git config alias.check '!sh tools/check.sh'"
    )
    attack = _planter(name, call)
    return replace(
        attack,
        before=f"{attack.before}; {husky}",
        afterwards=f"git check; {attack.afterwards}",
    )


def _in_rebase(name: str, call: str) -> Attack:
    """Return an attack during a rebase, which the person continues afterwards."""
    stopped = "git branch old; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m n; GIT_SEQUENCE_EDITOR='echo break >' git rebase -i old"
    attack = _planter(name, call, todo="exec touch {home}/planted\n")
    return replace(
        attack,
        before=f"{attack.before}; {stopped}",
        afterwards=f"git rebase --continue; git cherry-pick --continue; {attack.afterwards}",
    )


_COPIES = "import shutil; shutil.copy"

PLANTERS = (
    _without_mounts("hooks renamed away", f"os.rename('.git/hooks', '.git/h'); os.mkdir('.git/hooks'); {_COPIES}('hook', '.git/hooks/pre-commit'); os.chmod('.git/hooks/pre-commit', 493)"),
    _without_mounts("settings of git renamed away", f"os.rename('.git/config', 'c'); {_COPIES}('config', '.git/config')"),
    _without_mounts("settings of an editor renamed away", f"os.rename('.vscode', 'v'); os.mkdir('.vscode'); {_COPIES}('config', '.vscode/tasks.json')"),
    _without_mounts("keys renamed away", "os.rename('.env', 'notes.txt')"),
    _without_mounts("the whole repository renamed away", f"os.rename('.git', 'g'); shutil = __import__('shutil'); shutil.copytree('g', '.git'); {_COPIES}('config', '.git/config')"),
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
    _in_rebase("a program in a rebase", "cat todo >> .git/rebase-merge/git-rebase-todo"),
    _in_rebase("a rebase in another place", "mv .git/rebase-merge r; cp todo r/git-rebase-todo; ln -s ../r .git/rebase-merge"),
    _in_rebase(
        "a merge strategy that is a file",
        "mkdir git-merge-x; cp hook evil; chmod +x evil; echo x/../evil > .git/rebase-merge/strategy; "
        "tree=$(printf '100644 blob %s\\ta\\n' $(git hash-object -w hook) | git mktree); "
        "commit=$(git -c user.name=a -c user.email=a@b commit-tree $tree -m m); "
        "echo pick $commit m > .git/rebase-merge/git-rebase-todo",
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
    _planter("a hook among a thousand", "git init -q s; cp hook s/.git/hooks/pre-commit; cd s/.git/hooks; seq 1001 | xargs touch"),
    _with_settings(
        "a hook where there was no directory of hooks", "rm -rf .git/hooks",
        "mkdir .git/hooks; cp hook .git/hooks/pre-commit; cd .git/hooks; seq 1001 | xargs touch",
    ),
    _planter("a hook in a directory that cannot be listed", "git init -q s; cp hook s/.git/hooks/pre-commit; chmod 311 s/.git/hooks"),
    _planter("a repository in a directory that cannot be listed", "git init -q s; cp config s/.git/config; chmod 311 s"),
    _planter("a repository that cannot be listed", "git init -q s; cp config s/.git/config; chmod 311 s/.git"),
    _planter("a workspace that cannot be listed", "git init -q s; cp config s/.git/config; echo 'touch {home}/planted' > .envrc; chmod 311 ."),
    _planter(
        "a directory that is closed and opened", "mkdir s; chmod 0 s",
        "chmod 700 s; git init -q s; cp config s/.git/config",
    ),
    _planter("a repository behind thousands of directories", "seq -f n%g 5100 | xargs mkdir; git init -q zz; cp config zz/.git/config"),
    _planter(
        "a repository behind thousands of directories, later", "seq -f n%g 5100 | xargs mkdir; mkdir zz",
        "git init -q zz; cp config zz/.git/config",
    ),
    _planter("a link to a repository among packages", "git init -q node_modules/e; cp config node_modules/e/.git/config; ln -s node_modules/e s"),
    _planter(
        "a link to a later repository among packages", "ln -s node_modules/e s",
        "git init -q node_modules/e; cp config node_modules/e/.git/config",
    ),
    _planter("a link to a repository inside another", f"{_repository('.git/x')}; ln -s .git/x s"),
    _with_settings("hooks where the settings have them", "git config core.hooksPath gh; mkdir gh", "cp hook gh/pre-commit"),
    _with_settings("hooks where the settings expect them", "printf '[core]hooksPath = \"g h\" ; x\n' >> .git/config", "mkdir 'g h'; cp hook 'g h/pre-commit'"),
    _with_settings("hooks that were there", "git config core.hooksPath gh; mkdir gh; touch gh/pre-commit; chmod +x gh/*", "cp hook gh/pre-commit"),
    _with_settings("settings that settings include", "git config include.path ../more; touch more", "cp config more"),
    _with_settings("settings that settings would include", "git config --add includeIf.gitdir:/.path ../a/more", "mkdir a; cp config a/more"),
    _with_settings(
        "settings that included settings include", "git config include.path ../more; printf '[include]\npath=b\n' > more",
        "cp config b",
    ),
    _without_mounts("settings of git replaced by a link", f"{_COPIES}('config', 'c'); os.rename('.git/config', 'd'); os.symlink('../c', '.git/config')"),
    _without_mounts("hooks of another directory", f"os.mkdir('h'); {_COPIES}('hook', 'h/pre-commit'); os.chmod('h/pre-commit', 493); os.rename('.git/hooks', 'g'); os.rename('h', '.git/hooks')"),
    _without_mounts("settings of an editor exchanged in its directory", f"os.rename('.vscode/tasks.json', 't'); {_COPIES}('config', '.vscode/tasks.json')"),
    _with_hooks("a hook where core.hooksPath is", "cp hook .husky/_/pre-commit; chmod +x .husky/_/*"),
    _with_hooks("a script that husky runs", "mkdir -p .husky; cp hook .husky/pre-commit; chmod +x .husky/pre-commit"),
    _with_hooks("a directory in the place of core.hooksPath", "mv .husky old; mkdir -p .husky/_; cp hook .husky/_/pre-commit; chmod +x .husky/_/*"),
    _with_hooks("settings that others include", "cp config team.gitconfig"),
    _with_hooks("a program of an alias", "cp hook tools/check.sh"),
    _planter("a file that a shell runs", "echo 'touch {home}/planted' > .envrc"),
)  # fmt: skip
