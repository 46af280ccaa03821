"""No look for garbage while a long session is read: what that makes stays to the end.

A look goes through everything there is, and would find nothing. How often there is one
otherwise is said in `main`.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def all_kept() -> Generator[None]:
    """Throw nothing away meanwhile, and look at none of it again afterwards."""
    if not gc.isenabled():  # somebody else has a say in it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
