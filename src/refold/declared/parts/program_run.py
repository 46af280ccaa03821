"""What a program is started with."""

from dataclasses import dataclass, field


@dataclass
class ProgramRun:
    """One run: its command line, its standard input, and variables to set."""

    arguments: list[str]
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict[str, str])
