"""A filter between commands and the network. It gets the first line of each request."""

import re
import time
from pathlib import Path

ALLOWED_HOSTS = ["example.org", "*.python.org"]
LOG_PATH = Path("filter.log")
MAX_LOG_BYTES = 2000


def host_of(line):
    """The host that a request names, in lower case. Raises `ValueError` if it is not certain."""
    match = re.fullmatch(r"CONNECT ([A-Za-z0-9.-]+):(\d{1,5}) HTTP/1\.1", line)
    if not match:
        raise ValueError(line)
    return match[1].lower()


def is_allowed(host):
    return any(
        host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed
        for allowed in ALLOWED_HOSTS
    )


def log(text):
    """Append an entry to the log."""
    entry = f"{time.strftime('%H:%M:%S')} {ascii(text)[1:-1]}\n"
    size = LOG_PATH.stat().st_size if LOG_PATH.exists() else 0
    if size + len(entry) > MAX_LOG_BYTES:
        LOG_PATH.replace("filter.log.1")
    with LOG_PATH.open("a") as file:
        file.write(entry)


def main():
    while True:
        try:
            line = input()
        except EOFError:
            return
        try:
            host = host_of(line)
            decision = "allowed" if is_allowed(host) else "refused"
        except ValueError as error:
            decision, host = "unreadable", str(error)
        print(f"{decision}: {host!r}")
        log(f"{decision} {host}")


main()
