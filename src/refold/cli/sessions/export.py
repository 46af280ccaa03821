"""`refold sessions export ID` and `import FILE`: exports and imports sessions.

Exporting takes no lock, so it works while the session runs. `client.export` writes, `app.otlp`
sends spans and `journal.bundle` reads; all are imported only when needed.
"""

import os
import sys
import time
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from refold.cli.parser import Subparsers
from refold.cli.session_argument import (
    add_session_argument,
    call_labeler,
    find_session_id,
    user_sessions,
)
from refold.config.paths import current_directory
from refold.errors import BadInput
from refold.headless.streams import print_error, print_note, write, write_bytes
from refold.views.export.formats import EXPORT_FORMATS, format_by_name


def add_parsers(subparsers: Subparsers) -> None:
    """Add `export` and `import` to the subcommands of `refold sessions`."""
    parser = subparsers.add_parser(
        "export", help="export a session as Markdown, HTML, text, a tar or a script"
    )
    add_session_argument(parser)
    add = parser.add_argument
    add(
        "--format",
        choices=EXPORT_FORMATS,
        help="the format (default: by the suffix of FILE, else md)",
    )
    add("-o", "--output", metavar="FILE", help="the output file; -: stdout (default)")
    add("--force", action="store_true", help="overwrite an existing FILE")
    add("--children", action=BooleanOptionalAction, default=True, help="include subagents")
    add("--thoughts", action="store_true", help="include the model's thinking")
    add("--otlp", action="store_true", help="send it as OpenTelemetry spans, or write them")
    add("--endpoint", metavar="URL", help="the collector (default: the OTEL_ variables)")
    add("--content", action="store_true", help="spans with messages, arguments and results")
    import_parser = subparsers.add_parser(
        "import", help="import a session from a tar archive"
    )
    import_parser.add_argument(
        "file", metavar="FILE", help="a file written by export --format tar; -: stdin"
    )
    import_parser.add_argument(
        "--directory",
        metavar="DIR",
        help="directory of the imported session (default: the current one)",
    )


def export(args: Namespace) -> int:
    """Print the session, or write it to a file. Return the exit code."""
    from refold.client.export import ExportChoice, check_free, export_session

    if args.otlp:
        return _send_spans(args)
    if args.endpoint is not None or args.content:
        raise BadInput("--endpoint and --content are for --otlp: add it, or leave them out")
    output = "-" if args.output is None else args.output
    output_format = args.format or format_by_name(output)
    choice = ExportChoice(output_format, children=args.children, thoughts=args.thoughts)
    index = user_sessions()
    session = find_session_id(index, args.id)
    if output != "-":
        check_free(_file(output), force=args.force)
    elif output_format == "tar" and sys.stdout.isatty():
        raise BadInput("a tar is binary: give -o FILE, or write to a pipe")
    result = export_session(index, session, choice, call_labeler())
    _write(result.pieces, output, result.summary, force=args.force)
    for damage in result.damages:
        print_error(f"not exported: {damage}")
    return 1 if result.damages else 0


def _file(output: str) -> Path:
    if not output:
        raise BadInput("-o is empty: give the name of a file, or - to print")
    return Path(output).expanduser()


def _write(pieces: Iterable[bytes], output: str, about: str, *, force: bool) -> None:
    """Write the pieces to the file `output`, or to stdout if it is "-"."""
    from refold.client.export import save
    from refold.views.number_format import size_text

    if output == "-":
        for piece in pieces:
            write_bytes(piece)
    else:
        size = save(_file(output), pieces, force=force)
        print_note(f"{output}: {about}, {size_text(size)}")


def _send_spans(args: Namespace) -> int:
    """Send the session as OpenTelemetry spans, or write them. Return the exit code."""
    import anyio
    import msgspec

    from refold.app.otlp import encode_spans, find_collector, send
    from refold.journal.state.session_tree import walk
    from refold.views.number_format import count_with_noun
    from refold.views.traces import traces

    _check_span_flags(args)
    output: str | None = args.output
    collector = find_collector(args.endpoint or "", os.environ) if output is None else None
    index = user_sessions()
    session = find_session_id(index, args.id)
    node = index.tree(session)
    if not args.children:
        node = msgspec.structs.replace(node, children=())
    spans = traces(node, content=args.content)
    refused = list[str]()
    if output is not None:
        _write(
            [encode_spans(spans)],
            output,
            count_with_noun(len(spans), "span"),
            force=args.force,
        )
    elif collector is not None:  # always, without -o
        refused = anyio.run(send, spans, collector)
        print_note(
            f"{collector.display_address}: {count_with_noun(len(spans), 'span')} of {session}"
        )
    for problem in refused:
        print_error(problem)
    damages = [part.damage for part in walk(node) if part.damage]
    for damage in damages:
        print_error(f"not exported: {damage}")
    return 1 if damages or refused else 0


def _check_span_flags(args: Namespace) -> None:
    """Raise `BadInput` for contradictory flags, or if the file exists without --force."""
    if args.format or args.thoughts:
        raise BadInput(
            "--otlp cannot be combined with --format or --thoughts: leave them out"
        )
    if args.output is None:
        return
    if args.endpoint is not None:
        raise BadInput("--endpoint sends and -o writes a file: give one of them")
    if args.output != "-":
        from refold.client.export import check_free

        check_free(_file(args.output), force=args.force)


def import_(args: Namespace) -> int:
    """Create a session from the exported file. Return the exit code."""
    directory = Path(args.directory).expanduser() if args.directory else current_directory()
    if not directory.is_dir():
        raise BadInput(f"--directory {args.directory!r}: there is no such directory")
    if args.file == "-":
        return _unpack(sys.stdin.buffer, "stdin", directory)
    try:
        file = Path(args.file).expanduser().open("rb")
    except OSError as error:
        name = args.file or "''"
        raise BadInput(f"{name} cannot be read: {error.strerror}") from error
    with file:
        return _unpack(file, args.file, directory)


def _unpack(file: BinaryIO, name: str, directory: Path) -> int:
    """Create a session from an exported file, and print its id. Return exit code 0."""
    from refold.journal.bundle.unpack import unpack
    from refold.views.number_format import count_with_noun

    with user_sessions().importing() as files:
        result = unpack(files, file, name, time.time(), os.path.realpath(directory))
    if result.id != result.source:
        if "/" in result.source:
            why = "is the id of a subagent"
        elif result.taken:
            why = "is taken here"
        else:
            why = "is not a session id of refold"
        print_note(f"the id {result.source} {why}, so this has a new one")
    if result.lacking:
        blobs = count_with_noun(result.lacking, "blob")
        print_error(f"{blobs} that its events name were not in {name}")
    sessions = count_with_noun(result.sessions, "session")
    write(f"{result.id}: {sessions}, {count_with_noun(result.events, 'event')}\n")
    print_note(f"imported; to continue it in {directory}: refold -r {result.id}")
    return 0
