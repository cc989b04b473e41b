"""I/O: the mitmproxy addon: what passes through the proxy, as notes.

    mitmdump -s "$(aitrace record --addon-path)" --set aitrace_out=session.aitrace \
        --listen-host 127.0.0.1 --mode reverse:http://127.0.0.1:8000

`aitrace record` runs the same class in a proxy of its own. Hooks translate, no more. Every response is streamed, since
a client that sees its answer only at the end starts its tools late. What goes wrong here costs an exchange of the
trace, never a byte of the client's.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary

from mitmproxy import connection, ctx, http, tls
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from recorders.flows import (
    Reach,
    answered_from,
    asked_from,
    connected_from,
    how_broken,
    how_closed,
    is_recorded,
    reason_of,
)
from recorders.guard import Tee, guarded, now_ns
from recorders.notes import Chunk, Connected, Ended, How, Message, WriterReport
from recorders.options import RecordOptions
from recorders.plain import OPTIONS, add_options, log_last_words, log_refusal, options_from, prepare_proxy
from recorders.tally import Tally
from recorders.tap import LoopLag, Step, Tap

_MakeTap = Callable[[RecordOptions], Tap]


@dataclass(slots=True, kw_only=True)
class _Exchange:
    number: int
    asked_ns: int
    client: connection.Client
    tee: Tee | None = None


class RecorderAddon:
    """Notes each generation request with its response, and streams every response.

    Args:
        options: What the recording is to be; None to read it from mitmproxy's options.
        make_tap: Makes the way out of the notes.
    """

    def __init__(self, options: RecordOptions | None = None, make_tap: _MakeTap = Tap) -> None:
        self._is_plain = options is None
        self._make_tap = make_tap
        self._tap = None if options is None else make_tap(options)
        self._lag = LoopLag()
        self._open: dict[str, _Exchange] = {}
        self._numbers, self._client_numbers = count(), count()
        self._clients: WeakKeyDictionary[connection.Client, int] = WeakKeyDictionary()
        self._reaches: WeakKeyDictionary[connection.Connection, Reach] = WeakKeyDictionary()
        self._is_up = False
        self.tally = Tally()
        """How the requests ended, recorded or not."""
        self.report: WriterReport | None = None
        """What became of the recording; None until it has ended."""
        self.complaints: tuple[str, ...] = ()
        """What is for whoever mends the recorder, once it has ended: see `Tap.complaints`."""

    def load(self, loader: Loader) -> None:
        if self._is_plain:
            add_options(loader)

    def configure(self, updated: set[str]) -> None:
        """Read mitmproxy's options. An OptionsError says that they come too late; what is wrong with them is logged,
        as mitmproxy would show an error of a script's start with a traceback. At its own start, a log of an error ends it.
        """
        if not self._is_plain or updated.isdisjoint(OPTIONS):
            return
        if self._tap is not None and self._tap.is_running:
            raise OptionsError("aitrace: a recording that runs cannot become another")
        try:
            options = options_from(ctx.options)
        except OptionsError as error:
            self._tap = None
            log_refusal(error)
            return
        self._tap = self._make_tap(options)
        prepare_proxy(ctx.options)  # not in `running`: clients may connect before that
        if self._is_up:
            self.running()

    def running(self) -> None:
        self._is_up = True
        if self._tap is not None and not self._tap.is_running:
            self._tap.start()
            self._lag.start(asyncio.get_running_loop())

    def done(self) -> None:
        """End the recording, once; waits for the writer, within bounds."""
        self._lag.stop()
        if self._tap is not None and self.report is None:
            self.report = self._tap.stop(now_ns(), self._lag.counts)
            self.complaints = self._tap.complaints
            if self._is_plain:
                log_last_words(self.report, self._tap.options.capture, self.tally, self.complaints)

    def hurry(self, limit_s: float) -> None:
        """Hand over what was noted, for a process that is about to end without `done`."""
        if self._tap is not None:
            self._tap.hurry(limit_s)

    def fail(self, error: Exception, event: object) -> None:
        exchange = self._open.get(event.id) if isinstance(event, http.HTTPFlow) else None
        if self._tap is not None:
            self._tap.fail(error, None if exchange is None else exchange.number, now_ns())

    @guarded
    def server_connect(self, data: ServerConnectionHookData) -> None:
        self._reaches[data.server] = Reach(start_ns=now_ns())

    @guarded
    def server_connected(self, data: ServerConnectionHookData) -> None:
        self._reaches[data.server].ready_ns = now_ns()

    @guarded
    def tls_established_server(self, data: tls.TlsData) -> None:
        self._reaches[data.conn].ready_ns = now_ns()

    @guarded
    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        self._reaches[data.server].end_ns = now_ns()

    @guarded
    def request(self, flow: http.HTTPFlow) -> None:
        asked_ns, request = now_ns(), flow.request
        is_ours = is_recorded(request)
        self.tally.count_request(is_recorded=is_ours)
        if self._tap is None or not is_ours:
            return
        number, client = next(self._numbers), flow.client_conn
        self._open[flow.id] = _Exchange(number=number, asked_ns=asked_ns, client=client)
        if client not in self._clients:
            self._clients[client] = next(self._client_numbers)
        self._tap.put(asked_from(request, number, asked_ns, self._clients[client]))

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        answered_ns, response, exchange = now_ns(), flow.response, self._open.get(flow.id)
        if response is None or callable(response.stream):
            return  # an earlier addon has the stream; `response` tells what that costs
        response.stream = True
        if exchange is None or self._tap is None:
            return
        self._note(self._connected(flow, exchange))
        self._note(answered_from(response, exchange.number, answered_ns))
        response.stream = exchange.tee = Tee(exchange.number, self._tap)

    @guarded
    def response(self, flow: http.HTTPFlow) -> None:
        ended_ns, response, exchange = now_ns(), flow.response, self._open.get(flow.id)
        self._count_failure(flow, is_recorded=exchange is not None)
        if exchange is None or response is None or self._tap is None or flow.websocket is not None:
            return  # not one of ours, or a WebSocket that is open now
        if exchange.tee is None or response.stream is not exchange.tee:
            self._tap.lose(exchange.number, ended_ns, "another addon took the stream of the response")
        elif response.raw_content and not exchange.tee.is_through:
            self._note(Chunk(exchange.number, ended_ns, response.raw_content))
        self._end(flow.id, ended_ns, "complete", "")

    @guarded
    def error(self, flow: http.HTTPFlow) -> None:
        """There is not going to be a complete response.

        Where none has begun, mitmproxy would answer with a page of its own and status 502. A client takes that for the
        endpoint's, and retries by other rules than after a connection that breaks. So we break it.
        """
        ended_ns, exchange = now_ns(), self._open.get(flow.id)
        if exchange is None or flow.error is None:
            self._count_failure(flow, is_recorded=False)
            return
        text, connected = flow.error.msg, self._connected(flow, exchange)
        self._count_failure(flow, is_recorded=True)
        how = how_broken(flow, was_connected=connected is not None)
        if flow.response is None and how != "client" and flow.killable:
            flow.kill()
        self._note(connected if flow.response is None else None)
        self._end(flow.id, ended_ns, how, text)

    @guarded
    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """A WebSocket message has come. mitmproxy would keep them all for as long as the connection lives."""
        came_ns, exchange = now_ns(), self._open.get(flow.id)
        if exchange is not None and flow.websocket is not None:
            message = flow.websocket.messages[-1]
            del flow.websocket.messages[:-1]
            self._note(Message(exchange.number, came_ns, message.from_client, message.content))

    @guarded
    def websocket_end(self, flow: http.HTTPFlow) -> None:
        self._end(flow.id, now_ns(), *how_closed(flow))

    @guarded
    def client_disconnected(self, client: connection.Client) -> None:
        for flow_id in [key for key, exchange in self._open.items() if exchange.client == client]:
            self._end(flow_id, now_ns(), "client", "the connection is gone")

    def _count_failure(self, flow: http.HTTPFlow, *, is_recorded: bool) -> None:
        reason = reason_of(flow)
        if reason is not None:
            self.tally.count_failure(reason, is_recorded=is_recorded)

    def _note(self, note: Step | None) -> None:
        if note is not None and self._tap is not None:
            self._tap.put(note)

    def _connected(self, flow: http.HTTPFlow, exchange: _Exchange) -> Connected | None:
        reach = self._reaches.get(flow.server_conn)
        return None if reach is None else connected_from(reach, exchange.number, exchange.asked_ns)

    def _end(self, flow_id: str, at_ns: int, how: How, text: str) -> None:
        if flow_id in self._open:
            self._note(Ended(self._open[flow_id].number, at_ns, how, text))
            del self._open[flow_id]


addons = [RecorderAddon()]
