"""The effect of a session's calls on the instructions of its folder.

If the user saw a change of instructions and approved it, the new version counts from then on. A file that is read or edited has the instructions of its
folder, which the start did not read. `system_prompt` says which versions count otherwise, and
loads this where there is something to do.
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
_MAX_CHARS = 16_000  # of one folder's instructions, which enter the conversation


def approve(changes: Sequence[Diff], versions: TrustedVersions, root: str) -> None:
    """Record the new texts of instructions among these files, if they are as shown."""
    known = frozenset(versions.paths)
    news = [
        TextVersion(change.path, None, text)
        for change in changes
        if change.path in known or is_instruction_file(change.path)
        if (text := text_at(change.path, root, change.after)) is not None
    ]
    if news:
        try:
            versions.accept(news)
        except BadInput:
            return  # the next start asks about it


def instructions_of(
    folders: Sequence[str],
    directory: str,
    root: str,
    known_files: Collection[str],
    read: Read,
) -> tuple[InstructionsFound, frozenset[str]]:
    """The instructions of these folders that are not `known_files`, and folders without any."""
    files, notices, empty = list[tuple[str, str]](), list[str](), set[str]()
    for folder in folders:
        paths = instruction_file(folder) if root_of(folder) == root else ()
        if not paths:
            empty.add(folder)
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
            empty.add(folder)  # its problem is reported once
    return InstructionsFound(tuple(files), tuple(notices)), frozenset(empty)


def _shorten(text: str, label: str) -> str:
    if len(text) <= _MAX_CHARS:
        return text
    start = text[:_MAX_CHARS].rpartition("\n")[0] or text[:_MAX_CHARS]
    return f"{start}\n(The rest is left out; {label} has it.)"
