import anyio
from refold_example.tools import count_words


def test_words_are_counted():
    reply = anyio.run(lambda: count_words.run(text="one two"))

    assert reply.text == "2 words"
