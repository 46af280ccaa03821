"""Reports a bug of refold: the traceback goes into the log, one sentence to the user.

If nothing may be logged, or the log cannot be written, the user gets the traceback.
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


def report_of(error: Exception, arguments: Sequence[str]) -> str:
    """The text for the user, without secrets."""
    places = None
    with suppress(RefoldError):
        places = paths(os.environ)
    masks = masks_of(os.environ, places)
    whole = clean("".join(traceback.format_exception(error)), masks).rstrip()
    if places is None or not _is_log_on(places, arguments):
        return visible(whole)
    book = Logbook(places.state, "error", masks.mask)
    if not book.write("error", whole):
        return visible(whole)
    short = "".join(traceback.format_exception_only(error)).strip()
    text = escape_to_one_line(clean(short, masks))[:300]
    place = escape_to_one_line(str(book.file))
    return f"refold: internal error: {text}; the details are in {place}"


def _is_log_on(paths: Paths, arguments: Sequence[str]) -> bool:
    """Return True if the log may be written: not with --no-session, nor if it is off."""
    try:
        options = vars(parse(arguments))
        flags = {"log_level": options.get("log_level")}
        settings = load(paths.settings, os.environ, flags).settings
    except RefoldError:
        return True
    return not options.get("no_session") and settings.log_level != "off"
