"""Collect a change from git, for reading: the diff, and what was left out of it.

    python3 collect_diff.py [--base main] [--staged] [--out review.diff] [PATH]

The script runs git, but no program that the repository's settings name: no pager, hook,
external diff or conversion to text. It writes only the file that --out names.
"""

import argparse
import os
import re
import subprocess
import sys

MAX_DIFF_CHARS = 400_000
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
    """Print the diff after lines that describe it, or write it to a file. Return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default=".")
    parser.add_argument("--base", default="", help="what it is compared with")
    parser.add_argument(
        "--staged", action="store_true", help="only what is to be committed"
    )
    parser.add_argument("--out", default="", help="write it there instead of printing it")
    options = parser.parse_args(arguments)
    if not os.path.isdir(options.path):
        sys.exit(f"there is no directory {options.path}")
    top = git(options.path, "rev-parse", "--show-toplevel").strip()
    what, label = comparison(top, options)
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
    head = "".join(f"# {line}\n" for line in about(label, names, left_out, new, text))
    if len(text) > MAX_DIFF_CHARS:
        cut = text.rfind("\ndiff --git", 0, MAX_DIFF_CHARS)
        text = text[: cut + 1 if cut > 0 else MAX_DIFF_CHARS]
        head += f"# CUT after {len(text):,} characters: ask for the rest by directory\n"
    deliver(head + text, options.out)
    return 0


def comparison(top, options):
    """Return git's arguments for what is compared, and a description in words."""
    if options.staged:
        return ["--cached"], "what is staged"
    if options.base:
        if options.base.startswith("-"):
            sys.exit(f"{options.base!r} is no name of a commit")
        base = options.base
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
    commit_text = "; ".join(commits[:20]) or "none"
    return [start], f"the working tree against {base} ({start[:9]}), commits: {commit_text}"


def about(label, names, left_out, new, text):
    """Yield lines that describe the diff: what is compared, its size, and what is missing.

    `new` are the files that git does not track, which the diff does not have.
    """
    yield label
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
    """Return the output of a git command in this folder. If it fails, exit with the reason."""
    environ = {
        **os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    try:
        process = subprocess.run(
            ["git", *SAFE, *words], cwd=folder, env=environ, capture_output=True, check=False,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
    except FileNotFoundError:
        sys.exit("git is not installed")
    except subprocess.TimeoutExpired:
        sys.exit(f"git {words[0]} took longer than two minutes")
    if process.returncode:
        error_lines = process.stderr.decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        sys.exit(f"git {words[0]} failed: {error_lines[-1]}")
    return process.stdout.decode("utf-8", "replace")


def exists(top, name):
    """Return whether the name is one of a commit, such as a branch."""
    process = subprocess.run(
        ["git", *SAFE, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
        cwd=top, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return process.returncode == 0


def deliver(text, path):
    """Write the text to the file, and print only its "# " lines; print all if `path` is ""."""
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
