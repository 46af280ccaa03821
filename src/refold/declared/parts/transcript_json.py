"""The context format `json`."""

import json


def transcript(messages: list[tuple[str, str]]) -> str:
    """The conversation as a JSON list, one message on each line."""
    lines = [
        json.dumps(
            {"role": speaker, "content": text},
            ensure_ascii=False,
            separators=(",", ":"),
        )
        for speaker, text in messages
    ]
    return "[\n" + ",\n".join(lines) + "\n]"
