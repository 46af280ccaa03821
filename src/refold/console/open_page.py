"""Opens a page in the user's browser, and hides its address from other users.

`cli.serve` opens the page of its server, `cli.mcp_login` that of an authorization server, and
`form_prompt` an address of an MCP server.
"""

import subprocess
from collections.abc import Mapping
from html import escape
from pathlib import Path

from refold.programs import Programs, start
from refold.safe_open import create_file

NO_BROWSER = "no program was found that opens a page: open the link above yourself"
_REDIRECT_PAGE = '<!doctype html><meta http-equiv="refresh" content="0; url={link}">\n'


def open_page(
    link: str, redirect_file: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes] | None:
    """Open `link` in the browser, and return the started process without waiting for it.

    Return None if there is no program that opens links; the caller then shows `NO_BROWSER`. The
    link may contain a key, and other users can see the arguments of programs. So the program
    gets `redirect_file`, a private page that redirects to the link.
    """
    installed = Programs(environ)
    names = (environ.get("BROWSER"), "xdg-open", "open", "wslview")
    paths = (installed.find(name) for name in names if name)
    program = next(filter(None, paths), None)
    if program is None:
        return None
    redirect_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    redirect_file.unlink(missing_ok=True)
    create_file(redirect_file, _REDIRECT_PAGE.format(link=escape(link)).encode())
    return start(
        [program, str(redirect_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
