"""Collect a change from git, for reading: the diff, and what was left out of it.

    python3 collect_diff.py [--base main] [--staged] [--out review.diff] [PATH]

Runs git and nothing that the repository names: no pager, no hooks, no external diff, no
conversion to text. Writes only the file that --out names.
"""

import argparse
import os
import re
import subprocess
import sys

MOST = 400_000  # characters of diff
BASES = ("origin/HEAD", "origin/main", "origin/master", "main", "master", "trunk")
SKIPPED = re.compile(
    r"(^|/)(package-lock\.json|yarn\.lock|pnpm-lock\.yaml|uv\.lock|poetry\.lock|Cargo\.lock|go\.sum"
    r"|Gemfile\.lock|composer\.lock)$|\.(min\.(js|css)|map|snap|pb\.go)$|_pb2(_grpc)?\.py$"
    r"|(^|/)(node_modules|vendor|dist|\.venv)/"
)
SAFE = (
    "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
    "-c", "core.quotePath=false", "-c", "diff.renames=true",
)  # fmt: skip
PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")


def main(arguments):
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default=".")
    parser.add_argument("--base", default="", help="what it is compared with")
    parser.add_argument(
        "--staged", action="store_true", help="only what is to be committed"
    )
    parser.add_argument("--out", default="", help="write it there instead of printing it")
    found = parser.parse_args(arguments)
    if not os.path.isdir(found.path):
        sys.exit(f"there is no directory {found.path}")
    top = git(found.path, "rev-parse", "--show-toplevel").strip()
    what, called = compared(top, found)
    names = [
        n for n in git(top, "diff", *PLAIN, "--name-only", "-z", *what).split("\0") if n
    ]
    left_out = [name for name in names if SKIPPED.search(name)]
    keep = [f":(top,exclude,literal){name}" for name in left_out]
    text = git(top, "diff", *PLAIN, "--unified=8", *what, "--", ":(top)", *keep)
    new = [
        n
        for n in git(top, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
        if n
    ]
    head = "".join(f"# {line}\n" for line in about(called, names, left_out, new, text))
    if len(text) > MOST:
        cut = text.rfind("\ndiff --git", 0, MOST)
        text = text[: cut + 1 if cut > 0 else MOST]
        head += f"# CUT after {len(text):,} characters: ask for the rest by directory\n"
    deliver(head + text, found.out)
    return 0


def compared(top, found):
    """The arguments that say what is compared, and the same in words."""
    if found.staged:
        return ["--cached"], "what is staged"
    if found.base:
        if found.base.startswith("-"):
            sys.exit(f"{found.base!r} is no name of a commit")
        base = found.base
    elif git(
        top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"
    ).strip():
        return ["HEAD"], "the working tree against HEAD (--base compares a branch)"
    else:
        base = next((name for name in BASES if exists(top, name)), "")
        if not base:
            sys.exit(
                "nothing has changed, and no main branch was found: name one with --base"
            )
    start = git(top, "merge-base", base, "HEAD").strip()
    commits = git(
        top, "log", "--no-color", "--no-show-signature", "--format=%h %s", f"{start}..HEAD"
    ).splitlines()
    told = "; ".join(commits[:20]) or "none"
    return [start], f"the working tree against {base} ({start[:9]}), commits: {told}"


def about(called, names, left_out, new, text):
    yield called
    added = len(re.findall(r"^\+(?!\+\+ )", text, re.MULTILINE))
    removed = len(re.findall(r"^-(?!-- )", text, re.MULTILINE))
    yield f"{len(names)} files, +{added} -{removed} lines"
    if left_out:
        yield f"left out, look at why they changed: {', '.join(left_out)}"
    binary = re.findall(r"^Binary files .*? and (?:b/)?(.*?) differ$", text, re.MULTILINE)
    if binary:
        yield f"binary: {', '.join(binary)}"
    if new:
        yield f"not yet known to git, read them too: {', '.join(new[:50])}"


def git(folder, *words):
    environ = {
        **os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    try:
        done = subprocess.run(
            ["git", *SAFE, *words], cwd=folder, env=environ, capture_output=True, check=False,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
    except FileNotFoundError:
        sys.exit("git is not installed")
    except subprocess.TimeoutExpired:
        sys.exit(f"git {words[0]} took longer than two minutes")
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        sys.exit(f"git {words[0]} failed: {said[-1]}")
    return done.stdout.decode("utf-8", "replace")


def exists(top, name):
    done = subprocess.run(
        ["git", *SAFE, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
        cwd=top, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode == 0


def deliver(text, path):
    if not path:
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.exit(f"{path} cannot be written: {error}")
    sys.stdout.write(
        "".join(line + "\n" for line in text.splitlines() if line.startswith("# "))
    )
    sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
