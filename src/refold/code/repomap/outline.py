"""The map as text for a model or a person, within a number of tokens.

Files come by rank with their best definitions in file order. Each line is the line of the source, so that
signatures can be read; what does not fit is counted.
"""

from collections.abc import Callable, Iterator, Sequence

from refold.code.repomap.refresh import Coverage
from refold.code.repomap.repository_map import RankedFile, RepositoryMap
from refold.tools.code import one_line
from refold.values.printable_names import escape_name

CHARS_PER_TOKEN = 3.2  # of source code; fewer are real
_MAX_FILES = 200
_MAX_FILE_SYMBOLS = 12
_MAX_LINE_CHARS = 110


def outline(repository: RepositoryMap, focus: Sequence[str], tokens: int) -> str:
    """The map around `focus`, of at most `tokens` tokens as they are estimated here."""
    max_chars = int(tokens * CHARS_PER_TOKEN)
    notes = coverage_notes(repository.coverage)
    text = "".join(f"({note})\n" for note in notes)
    files = repository.best_files(focus, _MAX_FILES)
    for number, file in enumerate(files):
        block = _fit(file, repository.line_reader(file.path), max_chars - len(text), number)
        if not block:
            break
        text += block
    return text or "There is no source file that the map knows.\n"


def coverage_notes(coverage: Coverage) -> Iterator[str]:
    """What an answer lacks, in clauses."""
    if not coverage.is_listed_whole:
        yield "not every directory was listed in time"
    if coverage.known < coverage.listed:
        yield (
            f"partial: {coverage.known:,} of {coverage.listed:,} files are read; the rest is being "
            "read in the background"
        )


def _fit(
    file: RankedFile, read_line: Callable[[int], str], max_chars: int, number: int
) -> str:
    """The file with as many of its definitions as fit into `max_chars`; "" if none fits."""
    head = f"{escape_name(file.path)}\n"
    if len(head) > max_chars:
        return ""
    # Later files get fewer lines: breadth tells more than depth there.
    most = max(3, _MAX_FILE_SYMBOLS - number // 4)
    chosen, size = list[tuple[int, str]](), len(head)
    for place in file.definitions[:most]:
        item = place.definition
        source = one_line(read_line(item.line), _MAX_LINE_CHARS)
        line = f"  {item.line}: {source or f'{item.kind} {item.name}'}\n"
        if size + len(line) > max_chars:
            break
        chosen.append((item.line, line))
        size += len(line)
    return head + "".join(dict.fromkeys(line for _, line in sorted(chosen)))
