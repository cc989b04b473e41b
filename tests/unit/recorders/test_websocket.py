"""Calls on a WebSocket. Times are small numbers."""

import orjson
import pytest

from aitrace.harnesses.routes import Route
from aitrace.protocols import PROTOCOLS
from aitrace.protocols.protocol import MalformedRequestError
from aitrace.schema import Outcome, ToolCall, Usage
from recorders.chains import KEPT_PER_CONNECTION, ResponseChains
from recorders.notes import Asked
from recorders.websocket import ResponsesSocket

HANDSHAKE = Asked(0, 1, "GET", "/v1/responses", {"thread-id": "t"}, b"", "websocket", 5)


def socket(chains=None):
    return ResponsesSocket(HANDSHAKE, Route(protocol="responses"), chains or ResponseChains())


def create(items=(), **fields):
    return orjson.dumps({"type": "response.create", "model": "m", "input": list(items), **fields})


def said(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answered(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id):
    return {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": "{}"}


def answer_messages(response_id, *items):
    usage = {"input_tokens": 7, "output_tokens": 4}
    return [
        orjson.dumps({"type": "response.created", "response": {"id": response_id}}),
        *(
            orjson.dumps({"type": "response.output_item.done", "output_index": place, "item": item})
            for place, item in enumerate(items)
        ),
        orjson.dumps(
            {
                "type": "response.completed",
                "response": {"id": response_id, "status": "completed", "usage": usage},
            }
        ),
    ]


def play(one, messages, start=20):
    """The calls that these messages of the server end."""
    return [
        ended
        for at_ns, data in enumerate(messages, start)
        if (ended := one.on_server_message(data, at_ns)) is not None
    ]


def test_a_call_goes_from_the_clients_message_to_the_answers_end():
    one = socket()
    call = one.on_client_message(create([said("hi")]), 10)
    assert play(one, answer_messages("resp_0", answered("x"), called("c"))) == [call]
    answer = call.on_end("complete", 23)
    assert answer.outcome == Outcome(finish="completed")
    assert answer.usage == Usage(input_tokens=7, output_tokens=4)
    assert answer.tool_calls == (ToolCall(name="shell", end_ns=22),)
    assert answer.events.at_ns == (20, 21, 22, 23)
    assert (answer.times.request_ns, answer.times.first_byte_ns, answer.times.end_ns) == (10, 20, 23)
    assert (answer.times.first_token_ns, answer.times.headers_ns) == (21, None)


def test_what_is_not_known_of_a_message_on_the_wire_is_none():
    one = socket()
    first = one.on_client_message(create(), 10)
    play(one, answer_messages("resp_0"))
    wire = first.on_end("complete", 30).wire
    assert (wire.transport, wire.connection, wire.connect_ns) == ("websocket", 5, 0)
    assert (wire.request_bytes, wire.response_bytes) == (None, None)


def test_the_handshake_tells_who_calls():
    requested = socket().on_client_message(create(client_metadata={"turn_id": "x"}), 10).requested
    assert requested.headers == {"thread-id": "t"}
    assert requested.request.body["client_metadata"] == {"turn_id": "x"}
    assert requested.is_streamed


def test_a_prewarm_is_a_call_with_an_empty_answer():
    one = socket()
    call = one.on_client_message(create(generate=False), 10)
    assert call.requested.prompt.parts == ()
    assert play(one, answer_messages("resp_0")) == [call]
    answer = call.on_end("complete", 30)
    assert (answer.outcome.error, answer.times.first_token_ns, answer.tool_calls) == (None, None, ())


def test_increments_give_the_prompts_of_whole_requests():
    chains = ResponseChains()
    one = socket(chains)
    history = []
    previous = {}
    for number in range(50):
        history.append(said(f"turn {number}"))
        call = one.on_client_message(create([said(f"turn {number}")], **previous), 10)
        assert call.requested.prompt.parts == PROTOCOLS["responses"].read_request(create(history)).parts
        [ended] = play(one, answer_messages(f"resp_{number}", answered(f"answer {number}")))
        ended.on_end("complete", 30)
        response_id, items = ended.continued_by()
        chains.remember(5, ended.requested.prompt, response_id, items)
        history += [answered(f"answer {number}")]
        previous = {"previous_response_id": response_id}


def test_ten_thousand_messages_leave_the_last_answers_only():
    chains = ResponseChains()
    one = socket(chains)
    for number in range(10_000):
        one.on_client_message(create([said(f"turn {number}")]), 10)
        [ended] = play(one, answer_messages(f"resp_{number}", answered("x")))
        ended.on_end("complete", 30)
        chains.remember(5, ended.requested.prompt, *ended.continued_by())
    assert chains.kept == KEPT_PER_CONNECTION
    assert one.close() == ()


def test_a_stored_flag_does_not_matter_on_a_socket():
    one = socket()
    call = one.on_client_message(create(store=False), 10)
    play(one, answer_messages("resp_0", answered("x")))
    call.on_end("complete", 30)
    assert call.continued_by() == ("resp_0", [answered("x")])


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        (
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_is_overloaded"}},
            },
            Outcome(error="error_event", finish="failed"),
        ),
        (
            {
                "type": "response.incomplete",
                "response": {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}},
            },
            Outcome(finish="max_output_tokens"),
        ),
        ({"type": "error", "error": {"message": "no"}}, Outcome(error="error_event")),
        (
            {"type": "error", "status": 429, "headers": {"retry-after": 3}, "error": {"message": "no"}},
            Outcome(status=429, error="refused", retry_after_ns=3_000_000_000),
        ),
        (
            {"type": "error", "status": 400, "headers": None, "error": {}},
            Outcome(status=400, error="http_error"),
        ),
        ({"type": "error", "status": 7, "error": {"message": "no"}}, Outcome(error="error_event")),
    ],
)
def test_errors_and_short_answers_end_a_call(message, outcome):
    one = socket()
    call = one.on_client_message(create(), 10)
    assert one.on_server_message(orjson.dumps(message), 20) is call
    assert call.on_end("complete", 20).outcome == outcome


def test_an_error_after_the_answer_began_is_an_event_whatever_status_it_states():
    one = socket()
    call = one.on_client_message(create(), 10)
    messages = [answer_messages("resp_0")[0], orjson.dumps({"type": "error", "status": 503, "error": {}})]
    assert play(one, messages) == [call]
    assert call.on_end("complete", 30).outcome == Outcome(error="error_event")


def test_a_failed_answer_is_not_continued():
    one = socket()
    call = one.on_client_message(create(), 10)
    one.on_server_message(orjson.dumps({"type": "response.failed", "response": {"id": "resp_0"}}), 20)
    call.on_end("complete", 30)
    assert call.continued_by() is None


@pytest.mark.parametrize(
    ("how", "error"), [("client", "client_abort"), ("server", "cut"), ("unrecorded", "unrecorded")]
)
def test_a_connection_that_ends_leaves_its_running_call(how, error):
    one = socket()
    call = one.on_client_message(create(), 10)
    play(one, answer_messages("resp_0")[:1])
    assert one.close() == (call,)
    assert call.on_end(how, 30).outcome.error == error
    assert one.close() == ()


def test_answers_come_in_the_order_of_the_questions():
    one = socket()
    first = one.on_client_message(create(), 10)
    second = one.on_client_message(create(), 11)
    assert play(one, [*answer_messages("resp_0"), *answer_messages("resp_1")]) == [first, second]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b'{"type":"response.cancel"}', b"{}"])
def test_other_messages_of_the_client_begin_no_call(data):
    one = socket()
    assert one.on_client_message(data, 10) is None
    assert one.close() == ()


def test_a_malformed_question_is_an_error_and_begins_no_call():
    one = socket()
    with pytest.raises(MalformedRequestError):
        one.on_client_message(b'{"type":"response.create","model":3}', 10)
    assert one.close() == ()


def test_messages_that_belong_to_no_call_are_passed_over():
    one = socket()
    assert one.on_server_message(b'{"type":"codex.rate_limits"}', 10) is None
    assert one.on_server_message(b"\x00", 10) is None


def test_messages_that_cannot_be_read_are_counted():
    one = socket()
    call = one.on_client_message(create(), 10)
    assert one.on_server_message(b"{", 20) is None
    assert call.unparsed == 1
