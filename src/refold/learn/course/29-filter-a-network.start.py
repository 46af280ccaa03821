"""A filter between commands and the network. It gets the first line of each request."""

import time
from pathlib import Path

ALLOWED_HOSTS = ["example.org", "*.python.org"]
LOG_PATH = Path("filter.log")
MAX_LOG_BYTES = 2000


def host_of(line):
    """The host that a request names, in lower case. Raises `ValueError` if it is not certain."""
    return line.split()[1].split(":")[0]


def is_allowed(host):
    return any(allowed.strip("*.") in host for allowed in ALLOWED_HOSTS)


def log(text):
    """Append an entry to the log."""
    with LOG_PATH.open("a") as file:
        file.write(f"{time.strftime('%H:%M:%S')} {text}\n")


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
