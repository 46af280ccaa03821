"""Fetches a repository into a git bundle, from which a session's workspace is cloned.

git runs on this machine, with the user's credential helper, keys and settings. The bundle has
commits and files, but no credentials or settings, so `client.clones` can transfer it to the
place of the session. No hook of the repository is run, and no submodule is fetched.
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
_MAX_NAME_CHARS = 40  # of the directory of a clone
_SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)")
# user@host:path, as ssh takes it
_SCP_PATTERN = re.compile(r"((?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9][\w.-]*):(?!//)(.+)")
_REF_PATTERN = re.compile(r"[A-Za-z0-9_][\w./+-]*")
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPOSITORY_VARIABLES = frozenset(
    ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
)
_CLONE_SECONDS = 3600.0
_MAX_COMPLAINT_CHARS = 500


class GitSource(Struct, frozen=True):
    """The address of a repository.

    `ref` is a branch, tag or commit; "" means the repository's default branch.
    """

    url: str
    ref: str = ""

    @property
    def name(self) -> str:
        """A directory name for the clone, made from the last part of the address."""
        last_part = re.split(r"[/:]", self.url.rstrip("/"))[-1].removesuffix(".git")
        # Only letters, digits and signs that need no quotes in a shell.
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", last_part).strip("-")
        return name[:_MAX_NAME_CHARS] or "clone"


class Bundle(Struct, frozen=True):
    """A repository that was fetched to the file `path`. The session starts at `commit`.

    The file contains no submodules; `has_submodules` says whether the repository has any.
    `shallow` lists the commits at which a shallow history ends, as git stores them; b"" if the
    history is complete.
    """

    path: Path
    commit: str
    has_submodules: bool
    shallow: bytes = b""


def parse_source(text: str) -> GitSource:
    """Parse the address of a repository, with `@` and a branch, tag or commit at the end.

    Raises `BadInput` for an address that is invalid, or with which git could run a program.
    """
    if not text.isprintable() or " " in text:
        raise _refusal(text, "it has a space or a control character")
    if text.startswith("-"):
        raise _refusal(text, "git would take it for an option")
    if "::" in text:
        raise _refusal(text, "the part before :: names a program")
    if match := _SCHEME_PATTERN.fullmatch(text):
        scheme = match[1]
        host, slash, path = match[2].partition("/")
        _check_url(text, scheme.lower(), host)
        before_path = f"{scheme}://{host}{slash}"
    elif text.startswith("/"):
        before_path, path = "/", text[1:]
    elif match := _SCP_PATTERN.fullmatch(text):
        before_path, path = f"{match[1]}:", match[2]
    else:
        raise _refusal(text, "it is not an address of a repository")
    ref: str | None = None  # None without "@"; "" after it is refused
    if "@" in path:
        path, _, ref = path.rpartition("@")
    if not path.strip("/") or path.startswith("-"):
        raise _refusal(text, f"{path!r} is not the path of a repository")
    if ref is not None and not _is_ref(ref):
        raise _refusal(text, f"{ref!r} is not a branch, tag or commit")
    return GitSource(before_path + path, ref or "")


def _is_ref(text: str) -> bool:
    """Whether `text` can be the name of a branch, a tag or a commit."""
    if ".." in text or text.endswith("/"):
        return False
    return _REF_PATTERN.fullmatch(text) is not None


def fetch_bundle(source: GitSource, folder: Path, environ: Mapping[str, str]) -> Bundle:
    """Fetch a repository into the empty directory `folder`. Raises `BadInput`."""
    git = _Git(source, folder, environ)
    bare = folder / "bare"
    is_commit = bool(_COMMIT_PATTERN.fullmatch(source.ref))
    options = list[str]()
    if not is_commit:  # any branch may have a commit
        options += ["--single-branch", "--no-tags"]
        if source.ref:
            options += ["--branch", source.ref]
    git.run("clone", "-q", "--bare", "--template=", *options, "--", source.url, str(bare))
    revision = source.ref if is_commit else "HEAD"
    git_dir_option = f"--git-dir={bare}"
    commit = git.run(
        git_dir_option, "rev-parse", "--verify", "-q", f"{revision}^{{commit}}"
    ).strip()
    git.run(git_dir_option, "update-ref", "--no-deref", "HEAD", commit)
    path = folder / "bundle"
    git.run(git_dir_option, "bundle", "create", "-q", str(path), "HEAD")
    modules = git.run(git_dir_option, "ls-tree", "--name-only", commit, "--", ".gitmodules")
    shallow = bare / "shallow"  # the commits whose parents a shallow clone lacks
    shallow_commits = shallow.read_bytes() if shallow.exists() else b""
    return Bundle(path, commit, bool(modules), shallow_commits)


class _Git:
    """Runs git with the user's settings, but without hooks and questions."""

    def __init__(self, source: GitSource, folder: Path, environ: Mapping[str, str]) -> None:
        self._source, self._folder = source, folder
        self._git = programs.Programs(environ).require("git")
        # git must not ask: the terminal may belong to a session, or there is none.
        # Variables of a hook or script that started refold refer to another repository.
        ours = {n: v for n, v in environ.items() if n not in _REPOSITORY_VARIABLES}
        self._environ = {
            **programs.without_loader_variables(ours),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": ":".join(_GIT_SCHEMES),
        }

    def run(self, *arguments: str) -> str:
        """Return the output of git. Raises `BadInput` if it fails or takes too long."""
        settings = ("-c", "core.hooksPath=/dev/null", "-c", "submodule.recurse=false")
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
            complaint = last_error_line(done.stderr.decode(errors="replace"))
            reason = complaint or "it has no such commit"  # some commands fail quietly
            ref = f" at {self._source.ref!r}" if self._source.ref else ""
            raise BadInput(f"--clone {self._source.url!r}{ref} failed: {reason}")
        return done.stdout.decode(errors="replace")


def last_error_line(output: str) -> str:
    """Return the last line of a program's output, shortened; "" if it is empty.

    This line usually says why the program failed.
    """
    lines = clean(output).strip().splitlines()
    return lines[-1][:_MAX_COMPLAINT_CHARS] if lines else ""


def _check_url(text: str, scheme: str, host: str) -> None:
    """Raise `BadInput` if git must not be called with the address `text`.

    `scheme` and `host` are its parts.
    """
    if scheme not in _GIT_SCHEMES:
        raise _refusal(text, f"git would run a program for {scheme!r}")
    try:
        parts = urlsplit(f"{scheme}://{host}")
        has_password = parts.password is not None
        name = parts.hostname or ""
    except ValueError as error:
        raise _refusal(text, f"{host!r} is not the name of a host") from error
    if has_password:
        _, _, host_without_user = host.rpartition("@")
        shown = text.replace(host, host_without_user)
        raise _refusal(
            shown, "it has a password, which belongs into the credential helper of git"
        )
    # Only file:///path has no host. A name that begins with "-" would be an option of ssh.
    is_missing = not name and scheme != "file"
    is_option = host.startswith("-") or name.startswith("-")
    if is_missing or is_option:
        raise _refusal(text, f"{host!r} is not the name of a host")


def _refusal(text: str, why: str) -> BadInput:
    return BadInput(f"--clone {text[:200]!r} is refused: {why}; {_ADDRESS_FORMS}")
