import asyncio

import pytest

from aitrace.observe import ResponseObserver
from aitrace.protocols import PROTOCOLS
from aitrace.testing import ManualClock
from aitrace.units import NS_PER_MS, NS_PER_S
from replayer.http.transport import Failure, OutgoingRequest, Stamps
from replayer.testing import ScriptedReply, ScriptedTransport, chat_reply

REQUEST = OutgoingRequest(url="http://target/v1/chat/completions", body=b"{}")


class Sent:
    """One request sent by script."""

    def __init__(self, reply: ScriptedReply) -> None:
        self.clock = ManualClock()
        self.transport = ScriptedTransport(self.clock, lambda _request, _number: reply)
        self.observer = ResponseObserver(PROTOCOLS["chat"], streamed=True, keep_text=True)
        self.stamps = Stamps()

    async def send(self) -> Failure | None:
        return await self.transport.send(REQUEST, self.observer, self.stamps)


async def test_a_whole_answer_says_what_it_was_asked_to():
    sent = Sent(chat_reply(tokens=3, prompt_tokens=70, cached_tokens=64))
    assert await sent.send() is None
    seen = sent.observer.on_end(sent.clock.monotonic_ns())
    assert (seen.error, seen.finish, seen.text, seen.token_events) == (None, "length", " w0 w1 w2", 3)
    assert (seen.usage.input_tokens, seen.usage.cache_read_tokens, seen.usage.output_tokens) == (70, 64, 3)


async def test_an_answer_takes_the_time_it_was_given():
    reply = chat_reply(tokens=2, first_token_ns=2 * NS_PER_S, token_every_ns=NS_PER_S)
    sent = Sent(ScriptedReply(connect_ns=NS_PER_MS, headers_ns=NS_PER_S, chunks=reply.chunks))
    await sent.send()
    seen = sent.observer.on_end(sent.clock.monotonic_ns())
    assert (sent.stamps.connected_ns, sent.stamps.new_connection) == (NS_PER_MS, True)
    assert (seen.headers_ns, seen.first_token_ns, seen.end_ns) == (
        NS_PER_S + NS_PER_MS,
        3 * NS_PER_S + NS_PER_MS,
        4 * NS_PER_S + NS_PER_MS,
    )


async def test_a_failure_ends_the_answer_where_the_script_says():
    cut = Failure(kind="cut", text="closed")
    sent = Sent(ScriptedReply(chunks=chat_reply(tokens=3).chunks[:1], failure=cut))
    assert await sent.send() == cut
    assert sent.observer.on_end(0, "cut").token_events == 1


async def test_without_a_connection_nothing_is_stamped():
    sent = Sent(ScriptedReply(failure=Failure(kind="connect", text="refused")))
    await sent.send()
    assert sent.stamps == Stamps()


async def test_a_failure_before_a_status_gives_no_headers():
    sent = Sent(ScriptedReply(status=None, failure=Failure(kind="timeout", text="late")))
    await sent.send()
    assert sent.observer.on_end(0, "timeout").headers_ns is None


async def test_a_reply_that_hangs_ends_only_when_its_call_is_cancelled():
    sent = Sent(ScriptedReply(hangs=True))
    task = asyncio.ensure_future(sent.send())
    await sent.clock.sleep_until(NS_PER_S)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sent.transport.cancelled == 1


async def test_the_script_is_told_which_request_it_answers():
    clock = ManualClock()
    numbers = []

    def script(_request: OutgoingRequest, number: int) -> ScriptedReply:
        numbers.append(number)
        return chat_reply()

    transport = ScriptedTransport(clock, script)
    for _ in range(2):
        await transport.send(REQUEST, ResponseObserver(PROTOCOLS["chat"], streamed=True), Stamps())
    assert numbers == [0, 1]
    assert [request.url for request in transport.sent] == [REQUEST.url] * 2
    assert transport.sent_at_ns == [0, 110 * NS_PER_MS]
