"""The system text in a person's mouth, for models that hear nobody else.

The templates of some models (Gemma's first two, Mistral's first) have no place for
a system message, and Google takes none for Gemma 3. They are told the same in front
of what was said first. That a model is one of these its refusal says, and to ask
again is `conceding`'s business.

https://ai.google.dev/gemma/docs/core/prompt-structure
"""

from msgspec.structs import replace

from refold.provider.port import Request
from refold.values.log import Log
from refold.values.messages import Message, Spoken, Text

# Gemma's template, wherever it runs · OpenAI, Bedrock · Google · Mistral's templates,
# of which the later ones complain of other things in nearly the same words.
REFUSED = (
    r"system (role|message|prompt)s? (is |are )?(not supported|unsupported)"
    r"|does(n['’]t| not) support (the )?['\"]?(system|developer)\b"
    r"|(developer|system) instructions? (is|are) not (enabled|supported)"
    r"|only user and assistant roles are supported"
    r"|(?<!system message, )conversation roles must alternate"
)


class Foreword:
    """Puts the system text before the talk.

    It keeps what it made last: wires know what they have encoded by the very objects.
    """

    def __init__(self) -> None:
        self._of: tuple[Spoken | None, str] = (None, "")
        self._made = Spoken(0, Message("user", ()))

    def told(self, request: Request) -> Request:
        """The same request without a system text of its own."""
        talk, system = request.messages, request.system.strip()
        first = talk[0] if talk and talk[0].message.role == "user" else None
        known, told = self._of
        if not system:
            return request
        if known is not first or told != system:
            parts = first.message.parts if first else ()
            said = Message("user", (Text(system), *parts))
            self._of, self._made = (first, system), Spoken(first.seq if first else 0, said)
        rest = talk[1:] if first else talk
        return replace(request, messages=Log([self._made, *rest]), system="")
