"""What a program prints that prints its response only, for a test."""


def saying(text: str) -> str:
    """A response in words."""
    return text
