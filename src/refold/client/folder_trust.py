"""What a user is shown of a folder before trusting it, and what trusting it records.

Shared by `refold trust add` and the question at the start of a session.
"""

from msgspec import Struct

from refold.config.project import FolderTexts, Project, describe_texts, in_words
from refold.config.trusted_folders import State, TrustedFolders
from refold.views.escape import on_one_line


class TrustOffer(Struct, frozen=True):
    """The settings of a folder, and what would tell the model what to do, where they are new."""

    project: Project
    state: State
    texts: FolderTexts

    @property
    def settings(self) -> bool:
        return self.state in ("new", "changed")

    def __bool__(self) -> bool:
        return self.settings or bool(self.texts.found)

    def lines(self) -> tuple[str, ...]:
        """All of it, fit for a screen."""
        found = in_words(self.project) if self.settings else ()
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
        if not self.settings:
            return "Trust this folder? Its instructions will be sent to the model."
        if not self.texts.found:
            return "Trust these settings? They are used until they change."
        return "Trust both? The settings are used until they change."

    def take(self, folders: TrustedFolders) -> tuple[str, ...]:
        """A person said yes. Sentences about what counts now."""
        said = list[str]()
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
