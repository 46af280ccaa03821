"""How a question and its material are told, by either way. Pure.

Flat: all of the material stands in the words. Recursive: only what the variable holds.
"""

from pathlib import Path

from refold.rlm.material import Material

VARIABLE = "context"


def flat_prompt() -> str:
    """The system text of a flat call."""
    return Path(__file__).with_name("flat.md").read_text(encoding="utf-8").strip()


def flat_words(question: str, found: Material) -> str:
    """The material whole, then the question."""
    match found.value:
        case str() as text:
            parts = [_piece(text)]
        case dict() as texts:
            parts = [_piece(text, path) for path, text in texts.items()]
        case _:
            parts = list[str]()
    return "\n\n".join((*parts, question))


def recursive_words(question: str, found: Material) -> str:
    """The question, and where the material is."""
    if found.value is None:
        return question
    return f"{question}\n\nThe material is in the variable `{VARIABLE}`: {found.about}."


def _piece(text: str, path: str = "") -> str:
    inside = text.replace("</material", "<\\/material")
    name = path.replace('"', "'")
    about = f' path="{name}"' if path else ""
    return f"<material{about}>\n{inside}\n</material>"
