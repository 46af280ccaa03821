"""Write `src/refold/provider/windows.py` from genai-prices, a maintained list of models.

Run it when new models come out: `uv run --with genai-prices scripts/windows.py`.
"""

from pathlib import Path

from genai_prices import data

TARGET = Path(__file__).parents[1] / "src/refold/provider/windows.py"
PROVIDERS = ("anthropic", "openai", "google", "mistral", "deepseek", "x-ai")
FAMILIES = (
    "claude-", "gpt-", "o1", "o3", "o4", "gemini-", "mistral-", "codestral", "devstral",
    "deepseek-", "grok-",
)  # fmt: skip
HEAD = '''"""How many tokens well-known models can read. Written by `scripts/windows.py`.

A name that begins like one of these is a dated version of it. What is not here
is unknown, and unknown is 0.
"""

WINDOWS: dict[str, int] = {
'''
TAIL = '''}


def window(model: str) -> int:
    """A model's window in tokens; 0 when it is not known."""
    for end in range(len(model), 0, -1):
        if model[:end] in WINDOWS:
            return WINDOWS[model[:end]]
    return 0
'''


def main() -> None:
    known = {
        model.id: model.context_window or 0
        for provider in data.providers
        if provider.id in PROVIDERS
        for model in provider.models
        if model.id.startswith(FAMILIES)
    }
    # A name without a window is only worth a line where a shorter one would answer for it.
    kept = {
        name: window
        for name, window in sorted(known.items())
        if window or any(name.startswith(other) and known[other] for other in known)
    }
    lines = "".join(f'    "{name}": {window:_},\n' for name, window in kept.items())
    TARGET.write_text(HEAD + lines + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
