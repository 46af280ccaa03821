"""Updates the instructions of a folder when a session reads or changes files.

If the user saw and approved a change of instructions, the new version is used from then on.
When a file is read or edited, the instructions of its folder are added, unless they were read
at the start. `system_prompt` decides which versions are used otherwise, and imports this module
only when it is needed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from refold.config.instruction_files import instruction_file, is_instruction_file, text_at
from refold.config.trusted_versions import TextVersion, TrustedVersions
from refold.errors import BadInput
from refold.journal.events.kinds import InstructionsFound
from refold.prompts.instructions import InstructionFile, Instructions
from refold.prompts.repository import root_of
from refold.values.display import Diff

Read = Callable[[Iterable[InstructionFile]], Instructions]
_MAX_CHARS = 16_000  # of one folder's instructions


def approve(changes: Sequence[Diff], versions: TrustedVersions, root: str) -> None:
    """Trust the new texts of changed instructions, if the files still have the text that was
    shown.
    """
    known = frozenset(versions.paths)
    new_versions = [
        TextVersion(change.path, trusted=None, now=text)
        for change in changes
        if change.path in known or is_instruction_file(change.path)
        if (text := text_at(change.path, root, change.after)) is not None
    ]
    if new_versions:
        try:
            versions.accept(new_versions)
        except BadInput:
            return  # the next start asks about the changes


def instructions_of(
    folders: Sequence[str],
    directory: str,
    root: str,
    known_files: Collection[str],
    read: Read,
) -> tuple[InstructionsFound, frozenset[str]]:
    """Return the instructions of these folders, except `known_files`.

    Also return the folders that have none.
    """
    files, notices = list[tuple[str, str]](), list[str]()
    empty_folders = set[str]()
    for folder in folders:
        paths = instruction_file(folder) if root_of(folder) == root else ()
        if not paths:
            empty_folders.add(folder)
            continue
        file = InstructionFile(paths[0], root, directory)
        if file.real in known_files:
            continue
        instructions = read([file])
        notices += instructions.notices
        text = "\n\n".join(piece.text for piece in instructions.pieces)
        if text:
            files.append((file.real, _shorten(text, file.display_name)))
        else:
            # So that the problem of its file is reported only once.
            empty_folders.add(folder)
    return InstructionsFound(tuple(files), tuple(notices)), frozenset(empty_folders)


def _shorten(text: str, label: str) -> str:
    """Return the text, cut at a line end if it is too long, with a note that names the file."""
    if len(text) <= _MAX_CHARS:
        return text
    start = text[:_MAX_CHARS].rpartition("\n")[0] or text[:_MAX_CHARS]
    return f"{start}\n(The rest is left out; {label} has it.)"
