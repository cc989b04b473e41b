"""What each hook notes, and that nothing of ours reaches the client."""

import pytest
from mitmproxy.connection import ConnectionState
from mitmproxy.exceptions import OptionsError
from mitmproxy.flow import Error
from mitmproxy.http import Headers, Response
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons, tflow, tutils
from mitmproxy.tls import TlsData
from mitmproxy.websocket import WebSocketMessage
from wsproto.frame_protocol import Opcode

from recorders import addon as module
from recorders.addon import RecorderAddon, addons
from recorders.notes import Answered, Asked, Chunk, Connected, Ended, Message
from recorders.options import RecordOptions
from recorders.tap import Tap

OPTIONS = RecordOptions(path="x.aitrace", capture="reverse")
EVENT = b'data: {"x": 1}\n\n'


@pytest.fixture
def recorder():
    """One whose notes stay in its queue, since its writer is not started."""
    return RecorderAddon(OPTIONS)


def no_writer(options):
    return Tap(options, command=["/none"])


def notes(recorder, kind=object):
    return [note for note in recorder._tap._queue if isinstance(note, kind)]


def flow_of(path="/v1/messages?beta=true", **request):
    flow = tflow.tflow(req=tutils.treq(**{"method": b"POST", "path": path.encode(), **request}), live=True)
    flow.response = None
    flow.client_conn.state = ConnectionState.OPEN
    return flow


def answer(flow, status=200, **headers):
    flow.response = Response.make(status, b"", Headers(**headers))
    flow.response.data.content = None


def connect(recorder, flow):
    data = ServerConnectionHookData(client=flow.client_conn, server=flow.server_conn)
    recorder.server_connect(data)
    recorder.server_connected(data)
    return data


def stream(flow, *chunks):
    through = flow.response.stream
    return [chunk if through is True else through(chunk) for chunk in (*chunks, b"")]


def play(recorder, flow, *chunks):
    """A whole HTTP exchange; what the client got."""
    recorder.request(flow)
    connect(recorder, flow)
    answer(flow, content_type="text/event-stream")
    recorder.responseheaders(flow)
    got = stream(flow, *chunks)
    recorder.response(flow)
    return got


def test_an_exchange_is_noted_from_request_to_end(recorder):
    flow = flow_of(content=b"{}")
    assert play(recorder, flow, EVENT, EVENT) == [EVENT, EVENT, b""]
    asked, connected, answered, *chunks, ended = notes(recorder)
    assert [type(note) for note in (asked, connected, answered)] == [Asked, Connected, Answered]
    assert (asked.path, asked.body, asked.connection) == ("/v1/messages", b"{}", 0)
    assert (answered.status, answered.headers) == (200, {"content-type": "text/event-stream"})
    assert [chunk.data for chunk in chunks] == [EVENT, EVENT]
    assert (ended.how, ended.text) == ("complete", "")


def test_notes_of_an_exchange_are_in_the_order_of_time(recorder):
    play(recorder, flow_of(), EVENT, EVENT)
    times = [note.at_ns for note in notes(recorder)]
    assert times == sorted(times)
    assert notes(recorder, Connected)[0].connect_ns > 0


def test_exchanges_and_client_connections_are_numbered_as_they_come(recorder):
    first, second, third = flow_of(), flow_of(), flow_of()
    third.client_conn = first.client_conn
    for flow in (first, second, third):
        play(recorder, flow)
    assert [(note.exchange, note.connection) for note in notes(recorder, Asked)] == [(0, 0), (1, 1), (2, 0)]


def test_a_kept_connection_takes_no_time_to_connect(recorder):
    first, second = flow_of(), flow_of()
    second.server_conn = first.server_conn
    play(recorder, first)
    recorder.request(second)
    answer(second)
    recorder.responseheaders(second)
    asked, connected = notes(recorder, Asked)[1], notes(recorder, Connected)[1]
    assert (connected.connect_ns, connected.at_ns) == (0, asked.at_ns)


def test_tls_is_part_of_connecting(recorder):
    flow = flow_of()
    recorder.request(flow)
    connect(recorder, flow)
    tcp_ns = recorder._reaches[flow.server_conn].ready_ns
    recorder.tls_established_server(TlsData(flow.server_conn, None))
    assert recorder._reaches[flow.server_conn].ready_ns > tcp_ns


@pytest.mark.parametrize("path", ["/v1/models", "/api/event_logging/v2/batch"])
def test_what_is_not_recorded_is_streamed_and_not_noted(recorder, path):
    flow = flow_of(path)
    recorder.request(flow)
    answer(flow)
    recorder.responseheaders(flow)
    assert (flow.response.stream, notes(recorder)) == (True, [])


def test_an_answer_that_another_addon_gave_is_noted_whole(recorder):
    flow = flow_of()
    recorder.request(flow)
    flow.response = Response.make(200, b"whole")
    recorder.responseheaders(flow)
    recorder.response(flow)
    assert [chunk.data for chunk in notes(recorder, Chunk)] == [b"whole"]
    assert notes(recorder, Connected) == []


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_stream_that_another_addon_took_is_left_to_it_and_not_taken_for_complete(recorder, is_earlier):
    flow = flow_of()
    recorder.request(flow)
    answer(flow)
    if is_earlier:
        flow.response.stream = bytes.upper
    recorder.responseheaders(flow)
    flow.response.stream = bytes.upper
    recorder.response(flow)
    assert flow.response.stream == bytes.upper
    assert [note.how for note in notes(recorder, Ended)] == ["unrecorded"]


def test_a_request_whose_body_was_not_kept_is_dropped_and_counted(recorder):
    flow = flow_of(content=None)
    assert play(recorder, flow, EVENT) == [EVENT, b""]
    assert (notes(recorder), recorder._tap.counts["dropped_exchanges"]) == ([], 1)


def break_off(recorder, flow, message, *, client_state=ConnectionState.OPEN):
    flow.error = Error(message)
    flow.client_conn.state = client_state
    recorder.error(flow)
    return notes(recorder, Ended)[-1]


def test_a_client_that_leaves_is_told_from_an_endpoint_that_cuts(recorder):
    ends = []
    for state in (ConnectionState.CAN_WRITE, ConnectionState.OPEN):
        flow = flow_of()
        recorder.request(flow)
        connect(recorder, flow)
        answer(flow)
        recorder.responseheaders(flow)
        ends.append(break_off(recorder, flow, "gone", client_state=state))
        assert flow.error.msg == "gone"
    assert [(end.how, end.text) for end in ends] == [("client", "gone"), ("server", "gone")]


def test_a_refused_endpoint_breaks_the_clients_connection_instead_of_a_page(recorder):
    flow = flow_of()
    recorder.request(flow)
    recorder.server_connect(ServerConnectionHookData(client=flow.client_conn, server=flow.server_conn))
    end = break_off(recorder, flow, "connection refused")
    assert (end.how, end.text) == ("connect", "connection refused")
    assert flow.error.msg == Error.KILLED_MESSAGE


def test_an_endpoint_that_hangs_up_without_an_answer_was_reached(recorder):
    flow = flow_of()
    recorder.request(flow)
    data = connect(recorder, flow)
    recorder.server_disconnected(data)
    assert break_off(recorder, flow, "closed").how == "server"
    assert len(notes(recorder, Connected)) == 1
    assert flow.error.msg == Error.KILLED_MESSAGE


def test_a_refused_request_that_is_not_recorded_is_left_to_mitmproxy(recorder):
    flow = flow_of("/v1/models")
    recorder.request(flow)
    flow.error = Error("refused")
    recorder.error(flow)
    assert (flow.error.msg, notes(recorder)) == ("refused", [])


def test_what_had_not_ended_ends_with_its_clients_connection(recorder):
    gone, other = flow_of(), flow_of()
    recorder.request(gone)
    recorder.request(other)
    recorder.client_disconnected(gone.client_conn)
    flow_ends = [(note.exchange, note.how) for note in notes(recorder, Ended)]
    assert flow_ends == [(0, "client")]
    gone.error = Error("connection cancelled")
    recorder.error(gone)
    assert len(notes(recorder, Ended)) == 1


def websocket(recorder):
    headers = Headers(connection="upgrade", upgrade="websocket", sec_websocket_version="13")
    flow = flow_of("/v1/responses", method=b"GET", headers=headers)
    recorder.request(flow)
    connect(recorder, flow)
    answer(flow, 101)
    recorder.responseheaders(flow)
    flow.websocket = tflow.twebsocketflow(messages=False).websocket
    recorder.response(flow)
    return flow


def say(recorder, flow, *, from_client, data):
    flow.websocket.messages.append(WebSocketMessage(Opcode.TEXT, from_client, data))
    recorder.websocket_message(flow)


def test_a_websocket_is_noted_message_by_message(recorder):
    flow = websocket(recorder)
    say(recorder, flow, from_client=True, data=b"question")
    say(recorder, flow, from_client=False, data=b"answer")
    flow.websocket.closed_by_client, flow.websocket.close_code = True, 1006
    recorder.websocket_end(flow)
    asked, _, answered, *messages, ended = notes(recorder)
    assert (asked.transport, asked.method, answered.status) == ("websocket", "GET", 101)
    assert [(note.from_client, note.data) for note in messages] == [(True, b"question"), (False, b"answer")]
    assert (ended.how, ended.text) == ("client", "close code 1006")


def test_mitmproxy_keeps_one_message_of_a_recorded_websocket(recorder):
    flow = websocket(recorder)
    for _ in range(50):
        say(recorder, flow, from_client=False, data=b"x")
    assert len(flow.websocket.messages) == 1
    assert len(notes(recorder, Message)) == 50


def test_messages_go_on_being_trimmed_when_the_connection_was_lost_to_the_trace(recorder):
    flow = websocket(recorder)
    recorder._tap.lose(0, 1, "x")
    for _ in range(5):
        say(recorder, flow, from_client=False, data=b"x")
    assert (len(flow.websocket.messages), notes(recorder, Message)) == (1, [])


def test_a_websocket_that_was_refused_is_an_exchange_that_is_complete(recorder):
    flow = flow_of("/v1/responses", method=b"GET", headers=Headers(upgrade="websocket"))
    play(recorder, flow, b"no")
    assert [note.how for note in notes(recorder, Ended)] == ["complete"]


class BrokenTap(Tap):
    """Raises at the nth note, and from then on whenever it is asked."""

    def __init__(self, good):
        super().__init__(OPTIONS)
        self._good = good

    def put(self, note):
        self._good -= 1
        if self._good < 0:
            raise KeyError("broken")
        super().put(note)


@pytest.mark.parametrize("good", range(6))
def test_an_exception_at_any_note_costs_no_byte_and_is_counted(recorder, good):
    recorder._tap = BrokenTap(good)
    flow = flow_of()
    assert play(recorder, flow, EVENT, EVENT) == [EVENT, EVENT, b""]
    assert recorder._tap.counts["addon_errors"] > 0
    assert sum(recorder._tap.counts[name] for name in ("dropped_exchanges", "unrecorded_exchanges")) == 1


@pytest.mark.parametrize("good", range(5))
def test_an_exception_at_any_note_of_a_websocket_is_counted(recorder, good):
    recorder._tap = BrokenTap(good)
    flow = websocket(recorder)
    say(recorder, flow, from_client=True, data=b"x")
    recorder.websocket_end(flow)
    assert recorder._tap.counts["addon_errors"] > 0


def test_the_exchange_after_an_exception_is_recorded(recorder):
    broken, good = flow_of(), flow_of()
    recorder._tap = BrokenTap(3)
    play(recorder, broken, EVENT)
    recorder._tap._good = 100
    play(recorder, good, EVENT)
    assert [(note.exchange, note.how) for note in notes(recorder, Ended)] == [
        (0, "unrecorded"),
        (1, "complete"),
    ]


HOOKS = (
    "server_connect", "server_connected", "tls_established_server", "server_disconnected", "request", "responseheaders",
    "response", "error", "websocket_message", "websocket_end", "client_disconnected",
)  # fmt: skip


@pytest.mark.parametrize("name", HOOKS)
def test_no_hook_lets_an_exception_out(recorder, name, monkeypatch):
    def broken():
        monkeypatch.undo()
        raise RuntimeError("no time")

    flow = flow_of()
    recorder.request(flow)
    answer(flow)
    flow.error = Error("x")
    data = ServerConnectionHookData(client=flow.client_conn, server=flow.server_conn)
    events = {
        "client_disconnected": flow.client_conn,
        "tls_established_server": TlsData(flow.server_conn, None),
    }
    event = events.get(name, data if name.startswith("server") else flow)
    monkeypatch.setattr(module, "now_ns", broken)
    getattr(recorder, name)(event)
    assert recorder._tap.counts["addon_errors"] == 1


def test_every_hook_is_guarded():
    own = {name for name in vars(RecorderAddon) if not name.startswith("_")}
    assert own == {*HOOKS, "load", "configure", "running", "done", "fail", "hurry"}
    assert all(hasattr(getattr(RecorderAddon, name), "__wrapped__") for name in HOOKS)


def test_a_tee_passes_data_on_whatever_happens(recorder, monkeypatch):
    flow = flow_of()
    recorder.request(flow)
    answer(flow)
    recorder.responseheaders(flow)
    for name in ("put", "fail", "lose"):
        monkeypatch.setattr(recorder._tap, name, None)
    assert stream(flow, EVENT, EVENT) == [EVENT, EVENT, b""]


def test_headers_that_cannot_be_noted_still_stream(recorder):
    flow = flow_of()
    recorder.request(flow)
    recorder._tap = BrokenTap(0)
    answer(flow)
    recorder.responseheaders(flow)
    assert flow.response.stream is True


async def test_options_are_mitmproxys_where_none_are_given(tmp_path):
    recorder = RecorderAddon()
    with taddons.context(recorder) as context:
        context.options.add_option("connection_strategy", str, "eager", "")
        context.configure(recorder, aitrace_out=str(tmp_path / "x"), aitrace_privacy="content")
    assert (recorder._tap.options.privacy, recorder._tap.options.capture) == ("content", "forward")
    # Clients may connect before `running`.
    assert context.options.connection_strategy == "lazy"


async def test_unusable_options_are_one_sentence_in_the_log_and_better_ones_may_follow(tmp_path, caplog):
    recorder = RecorderAddon(None, no_writer)
    with taddons.context(recorder) as context:
        context.options.add_option("connection_strategy", str, "eager", "")
        context.configure(recorder, aitrace_out=str(tmp_path / "none" / "x"))
        recorder.running()
        assert recorder._tap is None
        context.configure(recorder, aitrace_out=str(tmp_path / "x"))
        assert recorder._tap.is_running
        recorder.done()
    text = f"aitrace: cannot record: aitrace_out: '{tmp_path}/none' is no folder that you may write to"
    assert (caplog.records[0].levelname, caplog.records[0].getMessage()) == ("ERROR", text)


def test_requests_are_counted_with_what_became_of_them(recorder):
    play(recorder, flow_of(), EVENT)
    play(recorder, flow_of("/v1/models"), EVENT)
    missing, other, refused, left = flow_of(), flow_of("/v1/models?key=1"), flow_of(), flow_of()
    for flow in (missing, other):
        recorder.request(flow)
        answer(flow, 404)
        recorder.responseheaders(flow)
        recorder.response(flow)
    for flow in (refused, left):
        recorder.request(flow)
        flow.error = Error("[Errno 111] Connect call failed")
    left.client_conn.state = ConnectionState.CLOSED
    recorder.error(refused)
    recorder.error(left)
    tally = recorder.tally
    assert (tally.requests, tally.recorded) == (6, 4)
    assert tally.failures == {"404 from /v1/messages": 1, "address:22: connection refused": 1}
    assert tally.other_failures == {"404 from /v1/models": 1}


async def test_a_recording_that_runs_cannot_become_another(tmp_path):
    recorder = RecorderAddon(None, no_writer)
    with taddons.context(recorder) as context:
        context.options.add_option("connection_strategy", str, "eager", "")
        context.configure(recorder, aitrace_out=str(tmp_path / "x"))
        recorder.running()
        with pytest.raises(OptionsError, match="cannot become another"):
            context.configure(recorder, aitrace_out=str(tmp_path / "y"))
        recorder.done()


async def test_a_recorder_with_options_adds_none_and_says_nothing(caplog):
    recorder = RecorderAddon(OPTIONS, no_writer)
    with taddons.context(recorder) as context:
        assert "aitrace_out" not in context.options
    recorder.running()
    recorder.done()
    assert recorder.report.error.startswith("the writer did not start")
    assert caplog.records == []


async def test_ending_twice_ends_once():
    recorder = RecorderAddon(OPTIONS, no_writer)
    recorder.running()
    recorder.done()
    report = recorder.report
    recorder.done()
    assert recorder.report is report


def test_a_script_for_mitmdump_has_one_recorder():
    assert [type(each) for each in addons] == [RecorderAddon]
