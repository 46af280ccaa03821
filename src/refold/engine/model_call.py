"""Makes a model call: builds the request from the view, streams the response, and records the
result.

`ModelAsked` is the start of a model call. The response and the starts of its calls are recorded
in one batch, so a step waits for the disk once. In a request every call has a result; for a
call that has not ended yet, the result is a text that says so.

A response that breaks off, or is empty, is recorded as dropped before the model is asked
again. Its calls are never run.
"""

from collections.abc import Sequence
from contextlib import aclosing

import anyio
from msgspec.structs import replace

from refold.engine.answer_draft import EMPTY_RESPONSE, MAX_EMPTY_RESPONSES, Draft
from refold.engine.budget import estimate_next_step
from refold.engine.call_cost import MeasuredCall
from refold.engine.checkpoint import begin_saving
from refold.engine.decide import AskModel, ChosenAction, decide
from refold.engine.world import Record, World
from refold.errors import EmptyAnswer, ProviderError
from refold.journal.events.kinds import Event, ModelAsked, RequestLogged
from refold.journal.state.fold import View
from refold.provider.port import (
    Delta,
    Dropped,
    Request,
    RequestSent,
    ResponseBytes,
    Retrying,
)
from refold.values.live import CallComing, Waiting
from refold.values.messages import Message, StoredMessage, Text, ToolResult

STILL_RUNNING = "Still under way."

CHANGED_RESOURCES = "<reminder>{sentences}</reminder>"

GO_ON = Message("user", (Text("<reminder>Go on.</reminder>"),))


def call_start(action: AskModel, view: View, world: World) -> ModelAsked:
    """Return the start of a model call, with the reservation for it."""
    need = estimate_next_step(view, world.model.price)
    return ModelAsked(
        notes=action.notes,
        tools=action.tools,
        policies=action.because,
        dollars=need.dollars,
        tokens=need.tokens,
    )


async def begin(
    choice: ChosenAction, action: AskModel, world: World, record: Record
) -> bool:
    """Record the start of a model call, unless another action is due now. Return whether it is
    recorded.

    Another task may have spent the budget in the meantime.
    """
    first_view = record.view
    asked = call_start(action, first_view, world)
    sentences = list[str]()

    def make_events(view: View) -> tuple[ModelAsked, ...]:
        """Return the start of the model call; none if another action is due now."""
        if view is not first_view and decide(view, world.policies) != choice:
            return ()
        # Sentences about resources can be taken only once, so they are taken last.
        sentences.extend(world.take_resource_news())
        return (_add_resource_news(asked, sentences),)

    return await record.append_if(make_events, author=f"policy {choice.by}")


def _add_resource_news(event: ModelAsked, news: Sequence[str]) -> ModelAsked:
    """Return the event with a reminder of changed resources added.

    No policy can add it, because policies see only the view.
    """
    if not news:
        return event
    note = CHANGED_RESOURCES.format(sentences="\n".join(news))
    policies = (*event.policies, "changed_resources")
    return replace(event, notes=(*event.notes, note), policies=policies)


async def ask(world: World, record: Record) -> None:
    """Send the request that the view defines, and record the response."""
    draft = new_draft(record.view, world)
    try:
        request = await _make_request(world, record)
        async with aclosing(world.model.provider.stream(request)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Dropped):
                    if not await _drop(delta, draft, world, record):
                        return
                    draft = new_draft(record.view, world)
                else:
                    _handle_delta(delta, draft, world, record)
    except ProviderError as error:
        failed = draft.to_failure(str(error), type(error).__name__)
        hosted = await _record_provider_calls(draft, world, record)
        await record(*await _drain_trace(world, record), failed, *hosted)
    except anyio.get_cancelled_exc_class():
        # After a stop by the user, the received text is recorded. After a crash the model
        # is asked again.
        if record.view.turn.stopped:
            with anyio.CancelScope(shield=True):
                events: list[Event] = [*await _drain_trace(world, record)]
                if partial := draft.to_partial_answer():
                    events.append(partial)
                events += await _record_provider_calls(draft, world, record)
                await record(*events)
        raise
    else:
        await _record_answer(draft, world, record)


async def _drop(dropped: Dropped, draft: Draft, world: World, record: Record) -> bool:
    """Record the response as dropped. Return whether the provider may repeat the request.

    Return False after a stop, after a new message, or if the budget is used up.
    """
    failed = draft.to_failure(dropped.reason, dropped.kind, dropped=True)
    await record(*await _drain_trace(world, record), failed)
    choice = decide(record.view, world.policies)
    if choice is None or not isinstance(choice.action, AskModel):
        return False
    return await begin(choice, choice.action, world, record)


def new_draft(view: View, world: World) -> Draft:
    """Return an empty draft of the response to the next request."""
    conversation = view.conversation
    measured = MeasuredCall(
        conversation.size + conversation.prompt_size,
        images=len(conversation.images),
        limit=conversation.system_prompt.max_output,
    )
    return Draft(
        next_call=view.account.calls,
        model=conversation.system_prompt.model,
        price=world.model.price,
        # Deferred tools are called through `tool_call`.
        reachable=lambda name: bool(world.deferred) and world.tool(name) is not None,
        measured=measured,
    )


def _handle_delta(delta: Delta, draft: Draft, world: World, record: Record) -> None:
    """Add the delta to the draft, and publish the live news for it."""
    match delta:
        case Retrying(wait, reason, attempt, attempts):
            record.publish(Waiting(wait, reason, attempt, attempts))
        case RequestSent() | ResponseBytes():
            if world.model.trace is not None:
                world.model.trace.add_delta(delta)
        case _:
            if live := draft.add(delta):
                record.publish(live)
            if isinstance(live, CallComing):
                begin_saving(world.tool(live.name), world)


async def _make_request(world: World, record: Record) -> Request:
    """Return the request that the view defines, with its images."""
    request = build_request(record.view)
    if world.model.trace is not None:
        request = replace(request, trace=True)
    if names := record.view.conversation.images:
        request = replace(request, pictures=await world.images.read(names, record))
    return request


async def _record_answer(draft: Draft, world: World, record: Record) -> None:
    """Record the response, the provider's calls, and the first events of all other calls."""
    asked = record.view.turn.open_request
    tools_were_on = asked is None or asked.tools
    answer = draft.to_answer(calls=tools_were_on)
    traced = await _drain_trace(world, record)
    hosted = await _record_provider_calls(draft, world, record)
    if answer is None:
        may_repeat = record.view.turn.empty_in_a_row < MAX_EMPTY_RESPONSES
        # If tools were off, the model has tried to call one, and would do so again.
        repeats = tools_were_on and not hosted and may_repeat
        failed = draft.to_failure(EMPTY_RESPONSE, EmptyAnswer.__name__, dropped=repeats)
        await record(*traced, failed, *hosted)
        return
    new_calls = answer.message.calls
    events: list[Event] = [*traced, answer, *hosted]
    sync = False
    if new_calls:
        # Imported late: a response without calls does not need it.
        from refold.engine import calls

        for call in new_calls:
            events += calls.begin_with_answer(call, world, record.view)
        sync = calls.must_sync(events, new_calls, world)
    await record(*events, kept=sync)


async def _record_provider_calls(
    draft: Draft, world: World, record: Record
) -> tuple[Event, ...]:
    """Return the events of calls that the provider executed itself, even in a failed
    response.
    """
    if not draft.provider_calls:
        return ()
    from refold.engine.calls import record_hosted

    return await record_hosted(draft.provider_calls, world, record)


async def _drain_trace(world: World, record: Record) -> list[RequestLogged]:
    trace = world.model.trace
    return [] if trace is None else await trace.drain(record)


def build_request(view: View) -> Request:
    """Return the request that the view defines, without its images."""
    conversation, open_request = view.conversation, view.turn.open_request
    messages, prompt = conversation.messages, conversation.system_prompt
    if conversation.calls:
        results = tuple(
            c.result or ToolResult(c.call.id, STILL_RUNNING) for c in conversation.calls
        )
        # The number 0, because these messages are only in the request.
        messages = messages.plus(StoredMessage(seq=0, message=Message("tool", results)))
    if not messages or messages[-1].message.role == "assistant":
        # A request must not end with a response.
        messages = messages.plus(StoredMessage(seq=0, message=GO_ON))
    # The names of tools that the provider does not accept for this model.
    refused = {name for model, name in view.session.refused_tools if model == prompt.model}
    tools = prompt.tools
    if refused:
        tools = tuple(tool for tool in tools if tool.name not in refused)
    tools_are_off = open_request is not None and not open_request.tools
    shared_chars = 0
    if prompt.parts:
        # The first part ends before the directory, so sessions have it in common.
        _, shared_chars = prompt.parts[0]
    return Request(
        messages,
        system=prompt.system,
        tools=tools,
        model=prompt.model.partition("/")[2],  # of provider/name
        tool_choice="none" if tools_are_off else "auto",
        max_output=prompt.max_output,
        effort=prompt.effort,
        schema=prompt.schema,
        temperature=prompt.temperature,
        session=view.session.id,
        shared=shared_chars,
    )
