"""`refold` and `python -m refold`. `--version` is answered before anything is imported."""

import gc
import os
import sys
from contextlib import suppress

_MADE_BETWEEN = 100_000  # objects, between two looks for garbage


def main() -> None:
    # `python -m refold` would import from the directory that it is started in.
    with suppress(OSError):  # that directory is gone
        if sys.path and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from refold import __version__

        with suppress(
            OSError, AttributeError
        ):  # the import below reports what is wrong there
            sys.stdout.write(f"refold {__version__}\n")
            sys.stdout.flush()
            return
    # A start makes much and throws nothing away: looking for garbage was a fifth of it.
    gc.set_threshold(_MADE_BETWEEN)
    try:
        from refold.cli.import_interrupts import exit_on_interrupt

        with exit_on_interrupt():
            from refold.cli.main import run
        run(arguments)
    except KeyboardInterrupt:  # before anything was begun
        sys.exit(130)


if __name__ == "__main__":
    main()
