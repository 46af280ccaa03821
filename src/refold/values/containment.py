"""Which path lies in which directory, by their names alone: absolute, links followed."""


def below(path: str, directory: str) -> bool:
    """Is `path` the directory itself, or in it?"""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def near(path: str, directory: str) -> str:
    """`path` from `directory`, where it lies in it; else as it is."""
    inside = directory and path != directory and below(path, directory)
    return path[len(directory.rstrip("/")) + 1 :] if inside else path
