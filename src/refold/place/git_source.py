"""A repository to clone: its address, and a bundle with what git gets from there.

git runs on this machine, with the credential helper, keys and settings of the user. It leaves a
bundle: commits and files, and nothing of how they were reached. `client.clones` takes that to where a
session works. No hook of a repository is run, and no submodule is fetched.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from refold import programs
from refold.errors import BadInput, reason_of
from refold.values.text import clean

_GIT_SCHEMES = ("https", "http", "ssh", "git", "file")
_ADDRESS_FORMS = (
    "give https://host/path, ssh://host/path, git@host:path or the absolute path of a repository, and "
    "after it @ with a branch, a tag or a whole commit"
)
_SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
_SCP_PATTERN = re.compile(r"((?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9][\w.-]*):(?!//)(.+)")
_REF_PATTERN = re.compile(r"[A-Za-z0-9_][\w./+-]*")
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPOSITORY_VARIABLES = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
)
_CLONE_SECONDS = 3600.0
_MAX_COMPLAINT_CHARS = 500


class GitSource(Struct, frozen=True):
    """`ref` is a branch, a tag or a commit; "": what the repository has checked out."""

    url: str
    ref: str = ""

    @property
    def name(self) -> str:
        """The last part of the path, as a name for a directory."""
        last = re.split(r"[/:]", self.url.rstrip("/"))[-1].removesuffix(".git")
        return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-")[:40] or "clone"


class Bundle(Struct, frozen=True):
    """`commit` is what the session begins at. `has_submodules`: they are not part of it.

    `shallow` is git's list of the commits at which a shallow history ends; b"" if it is complete.
    """

    path: Path
    commit: str
    has_submodules: bool
    shallow: bytes = b""


def parse_source(text: str) -> GitSource:
    """Raises `BadInput` for what git would take for an option, or for a program to run."""
    if not text.isprintable() or " " in text:
        raise _refusal(text, "it has a space or a control character")
    if text.startswith("-"):
        raise _refusal(text, "git would take it for an option")
    if "::" in text:
        raise _refusal(text, "the part before :: names a program")
    if match := _SCHEME_PATTERN.fullmatch(text):
        start, rest = f"{match[1]}://", match[2]
        host, slash, path = rest.partition("/")
        _check_url(text, match[1].lower(), host)
        start, path = f"{start}{host}{slash}", path
    elif text.startswith("/"):
        start, path = "/", text[1:]
    elif match := _SCP_PATTERN.fullmatch(text):
        start, path = f"{match[1]}:", match[2]
    else:
        raise _refusal(text, "it is not an address of a repository")
    path, at, ref = path.rpartition("@") if "@" in path else (path, "", "")
    if not path.strip("/") or path.startswith("-"):
        raise _refusal(text, f"{path!r} is not the path of a repository")
    if at and (not _REF_PATTERN.fullmatch(ref) or ".." in ref or ref.endswith("/")):
        raise _refusal(text, f"{ref!r} is not a branch, tag or commit")
    return GitSource(start + path, ref)


def fetch_bundle(source: GitSource, folder: Path, environ: Mapping[str, str]) -> Bundle:
    """Fetch the repository into `folder`, which is empty. Raises `BadInput`."""
    git, bare = _Git(source, folder, environ), folder / "bare"
    wanted = ["--single-branch", "--no-tags"]
    is_commit = bool(_COMMIT_PATTERN.fullmatch(source.ref))
    if is_commit:
        wanted = []
    elif source.ref:
        wanted += ["--branch", source.ref]
    git.run("clone", "-q", "--bare", "--template=", *wanted, "--", source.url, str(bare))
    name = source.ref if is_commit else "HEAD"
    git_dir_option = f"--git-dir={bare}"
    commit = git.run(
        git_dir_option, "rev-parse", "--verify", "-q", f"{name}^{{commit}}"
    ).strip()
    git.run(git_dir_option, "update-ref", "--no-deref", "HEAD", commit)
    path = folder / "bundle"
    git.run(git_dir_option, "bundle", "create", "-q", str(path), "HEAD")
    modules = git.run(git_dir_option, "ls-tree", "--name-only", commit, "--", ".gitmodules")
    shallow = bare / "shallow"
    ends = shallow.read_bytes() if shallow.exists() else b""
    return Bundle(path, commit, bool(modules), ends)


class _Git:
    def __init__(self, source: GitSource, folder: Path, environ: Mapping[str, str]) -> None:
        self._source, self._folder = source, folder
        self._git = programs.Programs(environ).require("git")
        # No question: the terminal may be that of a session, or there is none.
        # Those of a hook or a script that started refold are about another repository.
        ours = {n: v for n, v in environ.items() if n not in _REPOSITORY_VARIABLES}
        self._environ = {
            **programs.without_loader_variables(ours),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": ":".join(_GIT_SCHEMES),
        }

    def run(self, *arguments: str) -> str:
        settings = "-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false"
        try:
            done = programs.run(
                (self._git, *settings, *arguments), _CLONE_SECONDS,
                cwd=self._folder, env=self._environ, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BadInput(f"git cannot be run: {reason_of(error)}") from error
        except programs.TimedOut as error:
            raise BadInput(
                f"--clone {self._source.url!r} took longer than {_CLONE_SECONDS:.0f} seconds"
            ) from error
        if done.returncode:
            why = (
                last_error_line(done.stderr.decode(errors="replace"))
                or "it has no such commit"
            )
            ref = f" at {self._source.ref!r}" if self._source.ref else ""
            raise BadInput(f"--clone {self._source.url!r}{ref} failed: {why}")
        return done.stdout.decode(errors="replace")


def last_error_line(output: str) -> str:
    """The last line that a program printed, in which it says why it failed; "" if there is none."""
    lines = clean(output).strip().splitlines()
    return lines[-1][:_MAX_COMPLAINT_CHARS] if lines else ""


def _check_url(text: str, scheme: str, host: str) -> None:
    if scheme not in _GIT_SCHEMES:
        raise _refusal(text, f"git would run a program for {scheme!r}")
    try:
        parts = urlsplit(f"{scheme}://{host}")
        has_password = parts.password is not None
        name = parts.hostname or ""
    except ValueError as error:
        raise _refusal(text, f"{host!r} is not the name of a host") from error
    if has_password:
        shown = text.replace(host, host.rpartition("@")[2])
        raise _refusal(
            shown, "it has a password, which belongs into the credential helper of git"
        )
    if host.startswith("-") or name.startswith("-") or (scheme != "file" and not name):
        raise _refusal(text, f"{host!r} is not the name of a host")


def _refusal(text: str, why: str) -> BadInput:
    return BadInput(f"--clone {text[:200]!r} is refused: {why}; {_ADDRESS_FORMS}")
