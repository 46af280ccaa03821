"""How a question and its material are told, by either way. Pure.

Flat: all of the material stands in the words. Recursive: only what the variable holds.
"""

from pathlib import Path

from refold.rlm.material import Material, Value

VARIABLE = "context"
_SHOWN = 200  # characters


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


def recursive_words(question: str, found: Material, *, shown: bool = False) -> str:
    """The question, and where the material is. `shown`: and how it begins."""
    if found.value is None:
        return question
    about = f"The material is in the variable `{VARIABLE}`: {found.about}."
    return "\n\n".join((question, about, *([_beginning(found.value)] if shown else [])))


def _beginning(value: Value) -> str:
    """How it is gone through, and its first words: what a large model looks up itself."""
    match value:
        case str():
            begins, way = repr(value[:_SHOWN]), f"for line in {VARIABLE}.splitlines():"
        case dict():
            path, text = next(iter(value.items()))
            begins, way = (
                f"{path!r}: {text[:_SHOWN]!r}",
                f"for path, text in {VARIABLE}.items():",
            )
        case list():
            begins, way = repr(value[0]), f"for path in {VARIABLE}:"
    return f"Go through it with `{way}`. It begins: {begins}"


def _piece(text: str, path: str = "") -> str:
    inside = text.replace("</material", "<\\/material")
    name = path.replace('"', "'")
    about = f' path="{name}"' if path else ""
    return f"<material{about}>\n{inside}\n</material>"
