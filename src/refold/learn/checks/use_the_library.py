"""Checks lesson 13: the program uses refold as a library, with a tool of its own."""

from refold.learn.model_server import ModelReply
from refold.learn.workshop import Demo, Workshop, call, expect, quote

LESSON_DEMO = Demo(
    (
        call("temperature", city="Oslo"),
        call("temperature", city="Bonn"),
        ModelReply("It is -2 degrees in Oslo. I know nothing about Bonn."),
    ),
    words=("How", "cold", "is", "it", "in", "Oslo", "and", "in", "Bonn?"),
)


def check(workshop: Workshop) -> None:
    """Check a city with a station, a city without one, and the last line of the output."""
    oslo, bonn = call("temperature", city="Oslo"), call("temperature", city="Bonn")
    run = workshop.run(oslo, bonn, ModelReply("Cold."), words=["How", "cold?"])
    expect(
        "'temperature'" in str(run.requests[0].get("tools")) if run.requests else False,
        "The model does not know the tool 'temperature'.",
        "A decorated function is a tool. The agent must have it, too.",
        "The parameter of Agent is called tools.",
        'Agent(model="lesson/scripted", tools=[temperature])',
    )
    first, second = (str(run.messages(number)[-1].get("content")) for number in (1, 2))
    expect(
        "-2 degrees" in first,
        f"For Oslo the model should read '-2 degrees'. It read {quote(first)}.",
        "temperature returns a text.",
        "TEMPERATURES is a dictionary.",
        'return f"{TEMPERATURES[city]} degrees"',
    )
    expect(
        "Oslo" in second and "Error" not in second,
        f"There is no station in Bonn, and the model should read where one is: {quote(second)}.",
        "A model that reads what it can do instead will do it.",
        "Raise ToolFailed with a sentence that names the cities.",
        'raise ToolFailed(f"There is no station in {city}. There is one in: Oslo, Rome.")',
    )
    expect(
        "Cold." in run.output and "answered, 36 tokens" in run.output,
        f"The last line should begin with 'answered, 36 tokens', but printed was {quote(run.output)}.",
        "The result of agent.run has an outcome and a usage.",
        "usage.output is the number of tokens that the model wrote.",
        'print(f"{result.outcome}, {result.usage.output} tokens written")',
    )
