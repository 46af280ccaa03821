"""Renders the map as text for a model or a person, within a number of tokens.

Files are ordered by rank, each with its most important definitions in file order. Definitions
are shown as lines of the source, so that signatures can be read; the numbers of omitted files
and definitions are given.
"""

from collections.abc import Callable, Iterator, Sequence

from refold.code.repomap.refresh import Coverage
from refold.code.repomap.repository_map import RankedFile, RepositoryMap
from refold.tools.code import one_line
from refold.values.printable_names import escape_name

CHARS_PER_TOKEN = 3.2  # of source code; a low estimate
_MAX_FILES = 200
_MAX_FILE_SYMBOLS = 12
_MAX_LINE_CHARS = 110


def outline(repository: RepositoryMap, focus: Sequence[str], tokens: int) -> str:
    """Return the map as text of at most about `tokens` tokens.

    Files near the paths, symbols and words in `focus` come first.
    """
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
    """Yield clauses that say which part of the repository an answer may lack."""
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
    """Return the path of a file, and lines with as many of its definitions as fit.

    Return "" if not even the path fits. `number` is the position of the file in the map.
    """
    head = f"{escape_name(file.path)}\n"
    if len(head) > max_chars:
        return ""
    # Later files get fewer lines: breadth is more useful than depth there.
    max_symbols = max(3, _MAX_FILE_SYMBOLS - number // 4)
    chosen, size = list[tuple[int, str]](), len(head)
    for place in file.definitions[:max_symbols]:
        item = place.definition
        source = one_line(read_line(item.line), _MAX_LINE_CHARS)
        line = f"  {item.line}: {source or f'{item.kind} {item.name}'}\n"
        if size + len(line) > max_chars:
            break
        chosen.append((item.line, line))
        size += len(line)
    lines = [line for _, line in sorted(chosen)]
    return head + "".join(dict.fromkeys(lines))  # two definitions may share a line
