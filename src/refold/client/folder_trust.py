"""What a user is shown of a folder before trusting it, and what trusting it records.

Shared by `refold trust add` and the question at the start of a session.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from refold.config.paths import Paths, home
from refold.config.project import FolderTexts, Project, describe_texts, in_words
from refold.config.trusted_folders import State, TrustedFolders
from refold.config.trusted_versions import TextVersion, TrustedVersions
from refold.prompts.instructions import of_project, read
from refold.prompts.repository import root_of
from refold.tools.file_versions import change
from refold.values.path_names import below
from refold.views.escape import on_one_line

_MOST_ROWS = 60  # of a diff that is shown


class TrustOffer(Struct, frozen=True):
    """The settings of a folder, and what would tell the model what to do, where they are new."""

    project: Project
    state: State
    texts: FolderTexts
    changes: tuple[TextVersion, ...] = ()  # of texts that are trusted in another version

    @property
    def settings(self) -> bool:
        return self.state in ("new", "changed")

    def __bool__(self) -> bool:
        return self.settings or bool(self.texts.found) or bool(self.changes)

    def lines(self) -> tuple[str, ...]:
        """All of it, fit for a screen."""
        found = in_words(self.project) if self.settings else ()
        found = (*found, *(line for each in self.changes for line in _changed(each)))
        if not self.texts.found:
            return found
        folder = on_one_line(self.texts.root)
        told = f"Instructions for the model in {folder}:"
        return (*found, told, *(f"  {line}" for line in describe_texts(self.texts)))

    def shown(self) -> tuple[str, ...]:
        """The same, as it is printed before the question."""
        lines = tuple(f"  {line}" for line in self.lines())
        if not self.settings:
            return lines
        since = ", changed since you saw them" if self.state == "changed" else ""
        return (f"Settings of this folder{since}:", "", *lines)

    @property
    def question(self) -> str:
        if self.changes and not (self.settings or self.texts.found):
            return "Send the changed instructions to the model from now on?"
        if not self.settings:
            return "Trust this folder? Its instructions will be sent to the model."
        if not self.texts.found:
            return "Trust these settings? They are used until they change."
        return "Trust both? The settings are used until they change."

    def take(self, folders: TrustedFolders, data: Path) -> tuple[str, ...]:
        """A person said yes. Sentences about what counts now."""
        said = list[str]()
        if versions := self._versions(folders, data):
            versions.accept(self.changes)
            said.append("The changed instructions are sent to the model from now on.")
        if self.settings:
            folders.trust(self.project)
            said.append(
                f"{on_one_line(self.project.folder)} is trusted, until these files change."
            )
        if self.texts.found:
            folders.trust_texts(self.texts.root)
            said.append(
                f"The instructions in {on_one_line(self.texts.root)} are sent to the model "
                "from now on."
            )
        return tuple(said)

    def keep(self, folders: TrustedFolders, data: Path) -> str:
        """A person said no. A sentence about what counts."""
        if versions := self._versions(folders, data):
            versions.decline(self.changes)
            return "The instructions that you trusted are still used."
        return "They are ignored."

    def _versions(self, folders: TrustedFolders, data: Path) -> TrustedVersions | None:
        if not self.changes:
            return None
        return TrustedVersions(
            data, _trusted_for(self.texts.root, self.project.folder, folders)
        )


def changed_texts(
    directory: Path | str, places: Paths, folders: TrustedFolders, *, again: bool = False
) -> tuple[TextVersion, ...]:
    """The instructions that are trusted in another version than they have now.

    Those that the user has declined only if they are shown `again`.
    """
    real = os.path.realpath(directory)
    root = root_of(real)
    trusted = folders.trusted_above(real, root)
    if not trusted:
        return ()
    versions = TrustedVersions(places.data, trusted)
    files = [each for each in of_project(real, root) if below(each.path, trusted)]

    def compare(path: str, now: str) -> str:
        versions.trusted(path, now)
        return now  # what it imports now is shown, too

    read(files, home(os.environ), lambda _: "", compare)
    return tuple(each for each in versions.changes if again or not each.declined)


def _trusted_for(root: str, folder: str, folders: TrustedFolders) -> str:
    return (
        folders.trusted_above(os.path.realpath(folder), root or root_of(folder)) or folder
    )


def _changed(version: TextVersion) -> Iterator[str]:
    called = on_one_line(version.path)
    if version.trusted is None:
        yield f"{called} is new since you trusted this folder:"
    else:
        yield f"{called} changed since you trusted it:"
    rows = change(version.trusted or "", version.now).text.splitlines()
    yield from (f"  {on_one_line(row)}" for row in rows[:_MOST_ROWS])
    if len(rows) > _MOST_ROWS:
        yield f"  and {len(rows) - _MOST_ROWS:,} more lines"
