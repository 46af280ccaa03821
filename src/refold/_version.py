"""The version of this package, without an import of anything else of it."""

__version__ = "0.3.0"
