"""A provider: `-m example/MODEL`. This one answers with the name of its model."""

from refold.provider.port import Done, TextDelta


class Example:
    def __init__(self, model: str) -> None:
        self._model = model

    async def stream(self, request):
        yield TextDelta(f"I am {self._model}.")
        yield Done()


def connect(model, environ):
    return Example(model)
