"""Reports an unexpected error: writes the traceback into the log, and shows one sentence.

If the log is off or cannot be written, the user sees the traceback instead.
"""

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress

from refold.cli.flags import parse
from refold.config.load import load
from refold.config.paths import Paths, paths
from refold.config.secret_values import clean, masks_of
from refold.errors import RefoldError
from refold.logs.logbook import Logbook
from refold.views.escape import escape_to_one_line, visible

_MAX_TEXT_CHARS = 300  # of the error in the sentence; the log has all of it


def report_of(error: Exception, arguments: Sequence[str]) -> str:
    """Log the traceback, and return a sentence for the user, without secrets.

    If the traceback cannot be logged, return the traceback instead.
    """
    places = None
    with suppress(RefoldError):
        places = paths(os.environ)
    masks = masks_of(os.environ, places)
    trace = clean("".join(traceback.format_exception(error)), masks).rstrip()
    if places is None or not _is_log_on(places, arguments):
        return visible(trace)
    log = Logbook(places.state, "error", masks.mask)
    if not log.write("error", trace):
        return visible(trace)
    short = "".join(traceback.format_exception_only(error)).strip()
    text = escape_to_one_line(clean(short, masks))[:_MAX_TEXT_CHARS]
    place = escape_to_one_line(str(log.file))
    return f"refold: internal error: {text}; the details are in {place}"


def _is_log_on(paths: Paths, arguments: Sequence[str]) -> bool:
    """Return whether the log may be written.

    Return False if the setting `log_level` is off, or with --no-session. Return True if the
    settings cannot be read.
    """
    try:
        options = vars(parse(arguments))
        flags = {"log_level": options.get("log_level")}
        settings = load(paths.settings, os.environ, flags).settings
    except RefoldError:
        return True
    return not options.get("no_session") and settings.log_level != "off"
