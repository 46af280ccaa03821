"""Runs `refold` and `python -m refold`. `--version` is answered before other modules are
imported.
"""

import gc
import os
import sys
from contextlib import suppress

_GC_THRESHOLD_OBJECTS = 100_000  # objects allocated between two garbage collections


def main() -> None:
    # `python -m refold` puts the current directory first on the path of modules, from which a
    # workspace could replace any module.
    with suppress(OSError):  # the directory no longer exists
        if sys.path and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from refold import __version__

        # If stdout is closed, the import below reports it.
        with suppress(OSError, AttributeError):
            sys.stdout.write(f"refold {__version__}\n")
            sys.stdout.flush()
            return
    # A start allocates much and frees nothing: collecting garbage took a fifth of its time.
    gc.set_threshold(_GC_THRESHOLD_OBJECTS)
    try:
        from refold.cli.import_interrupts import exit_on_interrupt

        with exit_on_interrupt():
            from refold.cli.main import run
        run(arguments)
    except KeyboardInterrupt:  # it came before `run` handles interrupts
        sys.exit(130)


if __name__ == "__main__":
    main()
