"""`--clone`: makes a fresh clone for a session, and turns its changes into a patch.

git fetches the repository on this machine (`place.git_source`). Everything after that runs
as commands in the sandbox of the workspace, here or on another machine: unpacking the
bundle, the setup command (with network), and at the end the comparison with the cloned
commit. So no file that the agent wrote runs with the rights of the user, and the workspace
has no credentials.

The record of a clone is written when the clone is complete. A directory without a record
was left by a killed start; the next start removes it.

No proxy passes credentials to the sandbox, because every program there could use them.
Nothing is pushed: the result is a patch, and the subjects of commits. git prints both in
the sandbox, because outside of it git would run what the agent wrote into the settings of
the clone.
"""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.client.elsewhere import stand_in_directory
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.errors import BadInput
from refold.place.elsewhere.address import address_below
from refold.place.elsewhere.directory import address_in
from refold.place.git_source import Bundle, GitSource, fetch_bundle, last_error_line
from refold.place.port import NOTHING_MORE, CommandExtras, Finished
from refold.place.private_files import make_directories
from refold.safe_open import create_file
from refold.values.text import clean
from refold.values.tools import Confinement

_BUNDLE_FILE = ".refold-clone.bundle"
_PIECE_BYTES = 16 * 1024 * 1024  # bytes of a bundle that one command sends
_GIT_SECONDS = 3600.0
_SETUP_SECONDS = 3600.0
# Both are one command, so that no other command can change the settings of git in between.
_INIT_SCRIPT = "git init -q --template= . && git remote add origin {url}"
_UNPACK_SCRIPT = """\
git fetch -q {bundle} HEAD && rm {bundle} &&
git -c core.hooksPath=/dev/null checkout -q -b {branch} FETCH_HEAD"""
# A separate index leaves the user's index unchanged.
_ADD_SCRIPT = """\
own=$(git rev-parse --git-dir)/refold-index && cp "$(git rev-parse --git-path index)" "$own" &&
export GIT_INDEX_FILE=$own && git add -A 2>/dev/null && """
_TREE_SCRIPT = _ADD_SCRIPT + 'git write-tree && rm "$own"'
_COMPARE_SCRIPT = """\
set -- --cached --no-ext-diff --no-textconv --no-color {tree} &&
git log --reverse --format=%s {commit}.. && printf '\\0' &&
git diff --stat=100 "$@" && printf '\\0' &&
git diff --binary --full-index --src-prefix=a/ --dst-prefix=b/ "$@" && printf '\\0' && rm "$own\""""
_TREE_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Clone(Struct, frozen=True):
    """A clone that was made for a session in `directory`.

    If the clone is on another machine, `directory` is its stand-in on this one, and `place`
    is the address below which the clone was made. `task` is the first message. `tree` is
    the git tree of the files with which the session began: those of `commit`, changed by
    the setup command.
    """

    name: str
    url: str
    commit: str
    tree: str
    branch: str
    directory: str
    task: str = ""
    place: str = ""

    @property
    def where(self) -> str:
        """The directory as messages name it; the address if the clone is on another machine."""
        address = address_in(paths(os.environ).places, self.directory)
        return address.text if address else self.directory


def make_clone(
    source: GitSource,
    place: str,
    setup: str,
    task: str,
    report: Callable[[str], None],
) -> Clone:
    """Make a new clone: on this machine if `place` is "", else below the address `place`.

    `setup` is a command, and `task` the first message. `report` is called with sentences
    and with the output of `setup`. It blocks. Raises `BadInput`.
    """
    _remove_unfinished()
    report(f"clones {source.url}")
    name = f"{source.name}-{secrets.token_hex(3)}"
    with _temporary_folder() as folder:
        bundle = fetch_bundle(source, folder, os.environ)
        if bundle.has_submodules:
            report("the repository has submodules, which are not cloned")
        new_directory = (
            _directory_elsewhere(place, name) if place else _local_directory(name)
        )
        with new_directory as directory:
            clone = Clone(
                name=name,
                url=source.url,
                commit=bundle.commit,
                tree=bundle.commit,  # stands for its tree, until `setup` changes the files
                branch=f"refold/{name}",
                directory=str(directory),
                task=task,
                place=place,
            )
            with _workspace_at(directory) as workspace:
                _unpack(workspace, clone, bundle)
                if setup:
                    clone = replace(clone, tree=_run_setup(workspace, setup, report))
            create_file(_file_of(name, ".json"), msgspec.json.encode(clone))
    return clone


def clone_in(directory: Path | str) -> Clone | None:
    """Return the clone in this directory; None if no clone was made there for a session."""
    for file in _folder().glob("*.json"):
        with suppress(OSError, msgspec.MsgspecError):
            clone = msgspec.json.decode(file.read_bytes(), type=Clone)
            if clone.directory == str(directory):
                return clone
    return None


def finish_clone(clone: Clone) -> tuple[str, ...]:
    """Write the patch and the text of a pull request. Return sentences that name the files.

    A clone without changes is removed. It blocks. Raises `BadInput` and `ToolFailed`.
    """
    with _workspace_at(Path(clone.directory)) as workspace:
        script = _COMPARE_SCRIPT.format(commit=quote(clone.commit), tree=quote(clone.tree))
        printed = _run(workspace, _ADD_SCRIPT + script)
        if printed.code or printed.dropped:
            reason = (
                "they are too large for a patch" if printed.dropped else _reason(printed)
            )
            return (
                f"the clone is {clone.where}, on the branch {clone.branch}; its changes could "
                f"not be compared: {reason}",
            )
        subjects, summary, patch = _parse_comparison(printed.start + printed.end)
        if not patch and not subjects.strip():
            _remove(workspace, clone)
            return (f"nothing was changed, so the clone {clone.where} is removed",)
    text = _pull_request(clone, subjects.splitlines(), summary)
    patch_file = _replace_file(clone, ".patch", patch)
    text_file = _replace_file(clone, ".md", text.encode())
    return (
        f"the work is in {clone.where}, on the branch {clone.branch}; nothing was pushed",
        f"as a patch: git apply --3way {quote(str(patch_file))}",
        f"as a text for a pull request: {text_file}",
    )


def _parse_comparison(printed: bytes) -> tuple[str, str, bytes]:
    """Return what `_COMPARE_SCRIPT` printed: the subjects of the commits, the summary of
    the changed files, and the patch.
    """
    # It prints a NUL after each of the three. A patch may contain NULs, too.
    subjects, summary, rest = printed.split(b"\0", 2)
    patch = rest.removesuffix(b"\0")
    return (
        clean(subjects.decode(errors="replace")),
        clean(summary.decode(errors="replace")),
        patch,
    )


def _replace_file(clone: Clone, suffix: str, content: bytes) -> Path:
    """Write a file beside the record of the clone, in place of an earlier one."""
    path = _file_of(clone.name, suffix)
    path.unlink(missing_ok=True)
    create_file(path, content)
    return path


def _pull_request(clone: Clone, subjects: list[str], summary: str) -> str:
    """Return the text of a pull request.

    Its title is the subject of the only commit, or else the first line of the task.
    """
    task_lines = clone.task.strip().splitlines()
    if len(subjects) == 1:
        title = subjects[0]
    else:
        titles = [*task_lines, *subjects, "Changes"]
        title = titles[0]
    commits = "".join(f"- {subject}\n" for subject in subjects)
    if commits:
        commits += "\n"
    return (
        f"{title}\n\n{commits}"
        f"Base: {clone.commit} of {clone.url}\n\n```\n{summary.rstrip()}\n```\n"
    )


@contextmanager
def _local_directory(name: str) -> Generator[Path]:
    """Create a directory below the data directory; remove it if the block fails."""
    directory = Path(os.path.realpath(_folder())) / name
    make_directories(directory)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # locked while this start is alive
    try:
        yield directory
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    finally:
        os.close(lock)


@contextmanager
def _temporary_folder() -> Generator[Path]:
    """Yield a temporary directory, which is removed after the block.

    If this process is killed, the next start removes it.
    """
    with _local_directory(f"fetch-{secrets.token_hex(3)}") as folder:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _directory_elsewhere(place: str, name: str) -> Generator[Path]:
    """Create the directory `name` below the address `place`, and yield its stand-in.

    If the block fails, the new directory remains there, and the error says so.
    """
    make_directories(_folder())
    with _workspace_at(stand_in_directory(place)) as workspace:
        result = _run(workspace, f"mkdir -- {quote(name)}")
        if result.code:
            raise BadInput(f"{name} cannot be made in {place}: {_reason(result)}")
    try:
        yield stand_in_directory(address_below(place, name))
    except BadInput as error:
        raise BadInput(f"{error} (the directory {name} stays in {place})") from error


@contextmanager
def _workspace_at(directory: Path) -> Generator[Workspace]:
    """Yield the workspace of a directory, or of the workspace for which it is a stand-in.

    A stand-in represents a workspace on another machine. Only the user's own settings apply,
    not those in the repository.
    """
    places = paths(os.environ)
    loaded = load_folder_settings(directory, places, os.environ, {})
    directories = WorkspaceDirectories(directory)
    address = address_in(places.places, directory)
    if address is None:
        workspace = Workspace(loaded.settings, places, os.environ, directories)
    else:
        from refold.app.workspace_elsewhere import WorkspaceElsewhere

        workspace = WorkspaceElsewhere(
            address, loaded.settings, places, os.environ, directories
        )
    try:
        yield workspace
    finally:
        workspace.close()


def _unpack(workspace: Workspace, clone: Clone, bundle: Bundle) -> None:
    """Create the repository in the workspace, and check its branch out of the bundle.

    The bundle is sent in pieces as the input of commands, because the workspace may be on
    another machine.
    """
    if not workspace.commands.has("git"):
        raise BadInput(f"--clone needs git in {clone.where}: install it there")
    run = partial(_run_with_input, workspace, clone)
    run(_INIT_SCRIPT.format(url=quote(clone.url)))
    if bundle.shallow:
        run("cat > .git/shallow", bundle.shallow)
    with open(bundle.path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            run(f"cat >> {_BUNDLE_FILE}", piece)
    run(_UNPACK_SCRIPT.format(bundle=_BUNDLE_FILE, branch=quote(clone.branch)))


def _run_with_input(
    workspace: Workspace, clone: Clone, script: str, content: bytes = b""
) -> None:
    """Run a script with `content` as its input. Raises `BadInput` if it fails."""
    with tempfile.TemporaryFile() as stdin:
        stdin.write(content)
        stdin.seek(0)
        finished = _run(workspace, script, extras=CommandExtras(stdin=stdin.fileno()))
    if finished.code:
        raise BadInput(f"--clone {clone.url!r} failed: {_reason(finished)}")


def _run_setup(workspace: Workspace, setup: str, report: Callable[[str], None]) -> str:
    """Run the user's setup command, and return the tree of the files after it."""
    report(f"sets it up, with network: {setup}")
    finished = _run(workspace, setup, seconds=_SETUP_SECONDS, network=True)
    if finished.code != 0:
        end = (
            f"exit code {finished.code}" if finished.code is not None else "its time limit"
        )
        raise BadInput(f"--setup {setup!r} ended with {end}: {_reason(finished)}")
    stored = _run(workspace, _TREE_SCRIPT)
    tree = stored.text.strip()
    if stored.code or not _TREE_PATTERN.fullmatch(tree):
        raise BadInput(f"the files after --setup cannot be stored: {_reason(stored)}")
    return tree


def _remove(workspace: Workspace, clone: Clone) -> None:
    """Remove the clone and its record.

    A clone on another machine is removed by a command in the workspace.
    """
    is_elsewhere = address_in(paths(os.environ).places, clone.directory) is not None
    if is_elsewhere:
        root = workspace.tool_directory
        # A sandbox cannot remove its own directory, only empty it.
        script = f"rm -rf -- {quote(root)} || find {quote(root)} -mindepth 1 -delete"
        protected = f"{root}/.git", f"{root}/.git/config"  # read-only for other commands
        _run(workspace, f"cd / && {script}", writable=protected)
        if clone.place:  # records of earlier versions lack it
            with _workspace_at(stand_in_directory(clone.place)) as workspace_above:
                _run(workspace_above, f"rmdir -- {quote(clone.name)}")
    else:
        shutil.rmtree(clone.directory, ignore_errors=True)
    _file_of(clone.name, ".json").unlink(missing_ok=True)


def _run(
    workspace: Workspace,
    command: str,
    *,
    seconds: float = _GIT_SECONDS,
    network: bool = False,
    writable: tuple[str, ...] = (),
    extras: CommandExtras = NOTHING_MORE,
) -> Finished:
    """Run a command in the workspace, which it may change, and wait for its end."""
    confines = Confinement(writes=True, network=network, opened=writable)

    async def main() -> Finished:
        return await workspace.commands.run(
            command, cwd=workspace.tool_directory, seconds=seconds, confines=confines,
            extras=extras,
        )  # fmt: skip

    return anyio.run(main)


def _reason(finished: Finished) -> str:
    return last_error_line(finished.text) or "it printed no reason"


def _remove_unfinished() -> None:
    """Remove the clones that have no record and that no running process is making.

    A process that makes a clone has a lock on its directory until it has written the
    record.
    """
    for directory in _folder().glob("*/"):
        record = _file_of(directory.name, ".json")
        if record.exists() or directory.is_symlink():
            continue
        with suppress(OSError):  # it is locked, or was removed meanwhile
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The other process may have finished just before this one got the lock.
                if not record.exists():
                    shutil.rmtree(directory)
            finally:
                os.close(lock)


def _file_of(name: str, suffix: str) -> Path:
    return _folder() / f"{name}{suffix}"


def _folder() -> Path:
    return paths(os.environ).clones
