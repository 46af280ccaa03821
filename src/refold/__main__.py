"""`refold` and `python -m refold`. The version is told before anything is loaded."""

import sys
from contextlib import suppress


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from refold import __version__

        with suppress(OSError, AttributeError):  # what is wrong there is told below
            sys.stdout.write(f"refold {__version__}\n")
            sys.stdout.flush()
            return
    try:
        from refold.cli.import_interrupts import loading

        with loading():
            from refold.cli.main import run
        run(arguments)
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)


if __name__ == "__main__":
    main()
