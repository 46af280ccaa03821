"""Attacks that start a program of the repository outside the sandbox, or without asking."""

from tests.redteam.house import Attack

_PROGRAM = (
    '#!/bin/sh\necho R4N; echo R4N >> "{home}/made"; exec /usr/bin/env -i /bin/true\n'
)
_NAMES = (
    "bwrap",
    "git",
    "rg",
    "bash",
    "sh",
    "env",
    "python3",
    "less",
    "strace",
    "readlink",
    "ls",
    "cat",
)
_CALLS = (
    "ls",
    ("grep", {"pattern": "nowhere"}),
    ("write_file", {"path": "n", "content": "n"}),
    "ls",
)
_COMMITTED = "git init -q .; echo one > f; echo 'f filter=x diff=x' > .gitattributes; git add f .gitattributes; " \
    "git -c user.name=a -c user.email=a@b commit -qm m; echo two > f; "  # fmt: skip
_SAYS = "sh -c 'echo R%sN >&2; cat' 4"
_SETTINGS = {
    "core.fsmonitor": _SAYS, "core.hooksPath": "hooks", "core.pager": _SAYS,
    "filter.x.clean": _SAYS, "filter.x.process": _SAYS, "diff.x.textconv": _SAYS,
    "diff.x.command": _SAYS, "diff.external": _SAYS, "gpg.program": _SAYS,
    "interactive.diffFilter": _SAYS, "core.sshCommand": _SAYS, "include.path": "../more",
    "core.alternateRefsCommand": _SAYS, "pager.log": _SAYS, "core.attributesFile": "{home}/plain.txt",
    "core.worktree": "{other}", "core.editor": _SAYS, "uploadpack.packObjectsHook": _SAYS,
    "credential.helper": "!" + _SAYS, "log.showSignature": "true",
}  # fmt: skip
_MORE = '[filter "x"]\n\tclean = "echo R4N >&2; cat"\n[diff "x"]\n\ttextconv = "echo R4N >&2; cat"\n'
_HOOK = "#!/bin/sh\necho R4N >&2\necho R4N >> {home}/made\n"
_LOOK = (
    "git status; git diff; git log -p; git show; git blame f; git stash list; git branch -a"
)

STARTERS = (
    *(
        Attack(name=f"programs in {where or 'an empty entry'}", path=where, calls=_CALLS,
               plants={f"{folder}{name}": _PROGRAM for name in _NAMES}, mode="accept-edits")
        for where, folder in (
            ("{home}/ws/.venv/bin", ".venv/bin/"), ("{home}/ws/node_modules/.bin", "node_modules/.bin/"),
            ("{home}/ws", ""), (".", ""), ("bin", "bin/"), (":", ""), ("{home}/ws/../ws/bin", "bin/"),
        )
    ),
    Attack(
        name="programs by a link from elsewhere", path="{home}/mybin", calls=_CALLS,
        before="ln -s {home}/ws/bin {home}/mybin", mode="accept-edits",
        plants={f"bin/{name}": _PROGRAM for name in _NAMES},
    ),
    Attack(
        name="programs where everybody writes", path="{home}/open", calls=_CALLS,
        before="mkdir -m 777 {home}/open; cp bin/* {home}/open", mode="accept-edits",
        plants={f"bin/{name}": _PROGRAM for name in ("bwrap", "git", "rg")},
    ),
    Attack(
        name="a program made by a command", path="{home}/ws/.venv/bin",
        plants={"go": "mkdir -p .venv/bin; cp p .venv/bin/bwrap; cp p .venv/bin/git", "p": _PROGRAM},
        calls=["bash go", *_CALLS],
    ),
    *(
        Attack(name=f"git: {name}", mode=mode, calls=[_LOOK, "git diff"], plants={"more": _MORE},
               before=_COMMITTED + f'git config {name} "{value}"')
        for mode, (name, value) in zip(("default", "plan") * 20, _SETTINGS.items(), strict=False)
    ),
    *(
        Attack(name=f"hook {name}", before=_COMMITTED, mode="accept-edits",
               plants={f".git/hooks/{name}": _HOOK},
               calls=[_LOOK, ("write_file", {"path": "n", "content": "n"})])
        for name in ("post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout",
                     "reference-transaction")
    ),
)  # fmt: skip
