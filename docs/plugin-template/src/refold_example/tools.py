"""Tools for the model. The effect says what a call can do: the permission rules need it."""

from refold import Effect, tool


@tool(Effect.LOOK)
async def count_words(text: str) -> str:
    """Count the words of a text."""
    return f"{len(text.split())} words"


TOOLS = (count_words,)
