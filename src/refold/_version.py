"""The version of this package. It imports nothing else of the package."""

__version__ = "0.3.0"
