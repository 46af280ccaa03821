"""What a call of a session means for the instructions of its folder.

A change of instructions that the user approved, with the change before their eyes, is known to
them: from then on that version counts. `system_prompt` says which versions count otherwise, and
loads this where there is something to do.
"""

from collections.abc import Sequence

from refold.config.instruction_files import instructs, text_at
from refold.config.trusted_versions import TextVersion, TrustedVersions
from refold.errors import BadInput
from refold.values.display import Diff


def approve(changes: Sequence[Diff], versions: TrustedVersions, root: str) -> None:
    """Record the new texts of instructions among these files, if they are as they were shown."""
    known = frozenset(versions.paths)
    news = [
        TextVersion(change.path, None, text)
        for change in changes
        if change.path in known or instructs(change.path)
        if (text := text_at(change.path, root, change.after)) is not None
    ]
    if news:
        try:
            versions.accept(news)
        except BadInput:
            return  # it is asked about at the next start
