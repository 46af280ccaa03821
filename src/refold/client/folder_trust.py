"""Shows the user what a folder contains before it is trusted, and records the decision.

It is used by `refold trust add`, by the question at the start of a session, and by
`changed_instructions`, which asks the clients of an open session.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from refold.config.paths import Paths, home
from refold.config.project import FolderTexts, Project, content_lines, describe_texts
from refold.config.trusted_folders import State, TrustedFolders
from refold.config.trusted_versions import TextVersion, TrustedVersions, forget_versions
from refold.prompts.repository import root_of
from refold.tools.file_versions import compare_texts
from refold.views.escape import escape_to_one_line

# The two answers about changed instructions, for clients that show choices and not "y/n".
USE, KEEP = "Use the new version", "Keep the version that you trusted"
_MAX_FOLDERS_BELOW = 20  # that are named
_MAX_DIFF_ROWS = 60  # rows of a diff


SETTING_NAMESPACES = (
    "sandbox.user_namespaces is true: commands in this folder can make namespaces, as browsers "
    "and containers do. A command can then detach what covers protected files and replace them "
    "while it runs; refold puts them back when it ends."
)
NAMESPACES_QUESTION = "Permit it in this folder?"


async def ask_about_namespaces(
    folders: TrustedFolders,
    folder: Path,
    ask: Callable[[Sequence[str], str], Awaitable[bool]],
) -> bool:
    """Return whether commands in this folder may create namespaces.

    The user is asked, unless the user allowed it earlier. Without a user, `ask` returns
    False.
    """
    if folders.has_namespaces(folder):
        return True
    allowed = await ask((SETTING_NAMESPACES,), NAMESPACES_QUESTION)
    if allowed:
        folders.allow_namespaces(folder)
    return allowed


class TrustOffer(Struct, frozen=True):
    """The settings and instructions of a folder that the user has not trusted yet."""

    project: Project
    state: State
    texts: FolderTexts
    # Instructions of which an earlier version was trusted.
    changes: tuple[TextVersion, ...] = ()

    @property
    def settings(self) -> bool:
        """Whether the folder has settings that the user has not trusted."""
        return self.state in ("new", "changed")

    def __bool__(self) -> bool:
        """Whether there is anything to ask about."""
        return self.settings or bool(self.texts.found) or bool(self.changes)

    def lines(self) -> tuple[str, ...]:
        """Return all lines of the offer, with control characters escaped."""
        lines = list[str]()
        if self.settings:
            lines += content_lines(self.project)
        for change in self.changes:
            lines += _change_lines(change)
        if self.texts.found:
            lines.append(
                f"Instructions for the model in {escape_to_one_line(self.texts.root)}:"
            )
            lines += [f"  {line}" for line in describe_texts(self.texts)]
            lines += [f"  {line}" for line in _list_below(self.texts)]
        return tuple(lines)

    def question_lines(self) -> tuple[str, ...]:
        """Return the lines that are shown before the question, with a heading if there are
        settings.
        """
        lines = tuple(f"  {line}" for line in self.lines())
        if not self.settings:
            return lines
        since = ", changed since you saw them" if self.state == "changed" else ""
        return (f"Settings of this folder{since}:", "", *lines)

    @property
    def question(self) -> str:
        """The question for the user; settings and instructions are asked about together."""
        is_new_folder = bool(self.settings or self.texts.found)
        if self.changes and not is_new_folder:
            return "Send the changed instructions to the model from now on?"
        if not self.settings:
            return "Trust this folder? Its instructions will be sent to the model."
        if not self.texts.found:
            return (
                "Trust the settings of this folder? You are asked again when they change."
            )
        return "Trust both? You are asked again when the settings change."

    def accept(self, folders: TrustedFolders, data: Path) -> tuple[str, ...]:
        """Record that the user accepts. Return sentences about what applies now."""
        answers = list[str]()
        if versions := self._versions(folders, data):
            versions.accept(self.changes)
            answers.append("The changed instructions are sent to the model from now on.")
        if self.settings:
            folders.trust(self.project)
            answers.append(
                f"{escape_to_one_line(self.project.folder)} is trusted, until these files change."
            )
        if self.texts.found:
            folders.trust_texts(self.texts.root)
            record_versions(self.texts.root, data)
            answers.append(
                f"The instructions in {escape_to_one_line(self.texts.root)} are sent to the model "
                "from now on."
            )
        return tuple(answers)

    def decline(self, folders: TrustedFolders, data: Path) -> str:
        """Record that the user declines. Return a sentence about what applies now."""
        if versions := self._versions(folders, data):
            versions.decline(self.changes)
            return "The instructions that you trusted are still used."
        return "Not trusted; ignored."

    def _versions(self, folders: TrustedFolders, data: Path) -> TrustedVersions | None:
        """Return the store in which an answer about changed instructions is recorded.

        Return None if no instructions changed.
        """
        if not self.changes:
            return None
        folder = _trust_folder_for(self.texts.root, self.project.folder, folders)
        return TrustedVersions(data, folder)


def find_changed_texts(
    directory: Path | str,
    paths: Paths,
    folders: TrustedFolders,
    *,
    include_declined: bool = False,
) -> tuple[TextVersion, ...]:
    """Return the instructions that changed since the user trusted them.

    Changes that the user has declined are left out, unless `include_declined`.
    """
    real = os.path.realpath(directory)
    root = root_of(real)
    trusted = folders.find_trusted_above(real, root)
    if not trusted:
        return ()
    from refold.config.instruction_files import read_all, read_applicable, read_files

    # With `present`, files that a changed file now imports are shown, too.
    versions = TrustedVersions(paths.data, trusted, present=True)
    user_home = home(os.environ)
    if include_declined or not versions.is_recorded:
        read_all(root, trusted, user_home, versions.text_to_send)
    else:
        read_applicable(real, root, trusted, user_home, versions.text_to_send)
        read_files(versions.paths, root, user_home, versions.text_to_send)
    return tuple(
        change for change in versions.changes if include_declined or not change.declined
    )


def record_versions(folder: str, data: Path) -> None:
    """Record the present instructions in a newly trusted folder, and below it, as trusted."""
    from refold.config.instruction_files import read_all

    forget_versions(data, folder)
    versions = TrustedVersions(data, folder)
    # `text_to_send` notes each text that is read; its result is not needed here.
    read_all(root_of(folder), folder, home(os.environ), versions.text_to_send)
    versions.record_first()


def _list_below(texts: FolderTexts) -> Iterator[str]:
    """Yield one line that names the instruction files in folders below; nothing if there
    are none.

    Those instructions are sent to the model when it first reads a file in their folder.
    """
    from refold.config.instruction_files import folders_below, instruction_file

    # The files of these folders are in the offer already.
    shown_folders = {os.path.dirname(path) for path in instruction_file(texts.root)}
    names = list[str]()
    for folder in folders_below(texts.root):
        for path in instruction_file(folder):
            if os.path.dirname(path) not in shown_folders:
                names.append(escape_to_one_line(os.path.relpath(path, texts.root)))
    if not names:
        return
    not_named = len(names) - _MAX_FOLDERS_BELOW
    ending = f" and {not_named:,} more" if not_named > 0 else ""
    yield f"in folders below: {', '.join(names[:_MAX_FOLDERS_BELOW])}{ending}"


def _trust_folder_for(root: str, folder: str, folders: TrustedFolders) -> str:
    """Return the trusted folder that contains `folder`; `folder` itself if none does.

    `root` is the root of the repository, at which the search ends; "" if it is not known.
    """
    search_end = root or root_of(folder)
    trusted = folders.find_trusted_above(os.path.realpath(folder), search_end)
    return trusted or folder


def change_sentence(version: TextVersion, directory: str = "/") -> str:
    """Return a clause that says how a file changed.

    The clause names the file relative to `directory`, or by its full path if `directory` is
    "/".
    """
    path = version.path
    if directory != "/":
        path = os.path.relpath(path, directory)
    shown_path = escape_to_one_line(path)
    if version.trusted is None:
        return f"{shown_path} is new since you trusted this folder"
    return f"{shown_path} changed since you trusted it"


def change_text(version: TextVersion) -> str:
    """Return the change from the trusted to the present version as a diff."""
    return compare_texts(version.trusted or "", version.now).text


def _change_lines(version: TextVersion) -> Iterator[str]:
    """Yield a sentence about the change, then the first rows of its diff."""
    yield f"{change_sentence(version)}:"
    rows = change_text(version).splitlines()
    yield from (f"  {escape_to_one_line(row)}" for row in rows[:_MAX_DIFF_ROWS])
    if len(rows) > _MAX_DIFF_ROWS:
        yield f"  and {len(rows) - _MAX_DIFF_ROWS:,} more lines"
