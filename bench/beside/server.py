"""A server that streams answers at a fixed pace and logs, by the kernel's clock stamps, when each came and left.

    python bench/beside/server.py --tokens 100 --ttft-ms 30 --itl-ms 20 --log log.csv

One event is one HTTP chunk and one `sendmsg`, as engines send them. `received_ns` is when the last piece of a request
reached the socket, `first_ns` when the first piece of its answer was handed to the network device; both are stamped
by the kernel (SO_TIMESTAMPING), so that what this program is late with is no error of a client. `late_ns` is by how
much the last event was sent after it was due. No answer is longer than its request asks. Times are CLOCK_MONOTONIC, ns. Linux only.

The port is printed. GET /state tells how many answers are open; SIGTERM writes the log.
"""

import argparse
import gc
import heapq
import re
import select
import signal
import socket
import struct
import time
from pathlib import Path

LOG_HEAD = "request_id,received_ns,first_ns,late_ns"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"mock","object":"model"}]}'
CHOICES = {
    "chat": b'"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" tok"},"finish_reason":%b}]',
    "text": b'"object":"text_completion","choices":[{"index":0,"text":" tok","finish_reason":%b}]',
}
USAGE = b'"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'

# linux/net_tstamp.h; Python's socket module has no names for these.
SO_TIMESTAMPING = 37
SENT, RECEIVED, BY_SOFTWARE, ONLY_STAMP = 1 << 1, 1 << 3, 1 << 4, 1 << 11
STAMP_SENDING = [(socket.SOL_SOCKET, SO_TIMESTAMPING, struct.pack("I", SENT))]
STAMP = struct.Struct("qq")
READ_BYTES = 1 << 18
ROOM_FOR_STAMPS = 256


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(fields: bytes) -> bytes:
    return chunk(b'data: {"id":"mock-1","created":1700000000,"model":"mock",%b}\n\n' % fields)


TOKEN = {kind: event(fields % b"null") for kind, fields in CHOICES.items()}
LAST_TOKEN = {kind: event(fields % b'"length"') for kind, fields in CHOICES.items()}
ASKED_TOKENS = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')


def end(tokens: int) -> bytes:
    return event(USAGE % (100, tokens, 100 + tokens)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Connection:
    """One client connection: the request that comes in, then the answer to it."""

    __slots__ = (
        "done",
        "fields",
        "head",
        "kind",
        "missing",
        "most_tokens",
        "row",
        "sock",
        "start_ns",
        "tokens",
    )

    def __init__(self, sock: socket.socket, most_tokens: int):
        self.sock, self.most_tokens = sock, most_tokens
        self.head, self.missing, self.fields = b"", None, {}
        self.row, self.kind, self.start_ns, self.done, self.tokens = None, "chat", 0, 0, 0

    def take(self, data: bytes) -> bool:
        """Whether the request is complete with `data`."""
        if self.missing is None:
            self.head += data
            head, end, body = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            lines = head.split(b"\r\n")
            self.head = lines[0]
            self.fields = dict(line.split(b":", 1) for line in lines[1:])
            self.fields = {name.lower(): value.strip() for name, value in self.fields.items()}
            self.missing = int(self.fields.get(b"content-length", 0))
            self.tokens = self.most_tokens
            data = body
        self.missing -= len(data)
        if asked := ASKED_TOKENS.search(data):
            self.tokens = min(self.tokens, int(asked[1]))
        return self.missing <= 0

    def request(self) -> tuple[bytes, bytes, dict[bytes, bytes]]:
        method, path, _ = self.head.split(b" ", 2)
        self.head, self.missing = b"", None
        return method, path, self.fields


class Server:
    def __init__(self, options):
        self.options = options
        self.log, self.due, self.open, self.order = [], [], 0, 0
        self.connections = {}
        self.poller = select.epoll()
        self.listener = socket.create_server(("127.0.0.1", options.port), backlog=4096)
        self.listener.setblocking(False)
        # Accepted sockets inherit both.
        self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RECEIVED | BY_SOFTWARE | ONLY_STAMP)
        self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.poller.register(self.listener, select.EPOLLIN)
        self.monotonic_less_real_ns = max(time.monotonic_ns() - time.time_ns() for _ in range(20))
        self.is_ended = False

    def stamped_ns(self, control) -> int | None:
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
                seconds, rest = STAMP.unpack_from(data)
                return seconds * 10**9 + rest + self.monotonic_less_real_ns
        return None

    def run(self) -> None:
        while not self.is_ended:
            wait_s = max(0, self.due[0][0] - time.monotonic_ns()) / 1e9 if self.due else 0.2
            for number, what in self.poller.poll(min(wait_s, 0.2)):
                if number == self.listener.fileno():
                    self.accept()
                elif connection := self.connections.get(number):
                    self.attend(connection, what)
            now_ns = time.monotonic_ns()
            while self.due and self.due[0][0] <= now_ns:
                self.write(heapq.heappop(self.due)[2])

    def accept(self) -> None:
        for _ in range(64):
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            self.connections[sock.fileno()] = Connection(sock, self.options.tokens)
            self.poller.register(sock, select.EPOLLIN)

    def attend(self, connection: Connection, what: int) -> None:
        if what & select.EPOLLERR:
            self.note_sent(connection)
        try:
            data, control, _, _ = connection.sock.recvmsg(READ_BYTES, ROOM_FOR_STAMPS)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close(connection)
        elif connection.take(data):
            self.answer(connection, self.stamped_ns(control) or time.monotonic_ns())

    def close(self, connection: Connection) -> None:
        self.connections.pop(connection.sock.fileno(), None)
        connection.sock.close()
        if connection.row:
            connection.row = None
            self.open -= 1

    def answer(self, connection: Connection, received_ns: int) -> None:
        method, path, fields = connection.request()
        if method != b"POST":
            found = MODELS if path.endswith((b"/models", b"/health")) else b""
            if path.endswith(b"/state"):
                named = sum(1 for row in self.log if row[0])
                found = b'{"open":%d,"calls":%d,"named":%d}' % (self.open, len(self.log), named)
            head = b"HTTP/1.1 %b\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n" % (
                b"200 OK" if found else b"404 Not Found",
                len(found),
            )
            connection.sock.send(head + (found if method == b"GET" else b""))
            return
        connection.row = [fields.get(b"x-request-id", b"").decode(), received_ns, None, None]
        self.log.append(connection.row)
        self.open += 1
        connection.kind = "chat" if b"chat" in path else "text"
        # Not from `received_ns`: an engine is late too when it is busy.
        connection.start_ns = time.monotonic_ns() + int(self.options.ttft_ms * 1e6)
        connection.done = 0
        self.plan(connection)

    def plan(self, connection: Connection) -> None:
        self.order += 1
        due_ns = connection.start_ns + int(connection.done * self.options.itl_ms * 1e6)
        heapq.heappush(self.due, (due_ns, self.order, connection))

    def write(self, connection: Connection) -> None:
        if connection.row is None:
            return
        tokens, is_first = connection.tokens, connection.done == 0
        connection.done += 1
        is_last = connection.done == tokens
        data = LAST_TOKEN[connection.kind] + end(tokens) if is_last else TOKEN[connection.kind]
        try:
            if is_first:
                # Not before: k6 tells when the first byte came, and nothing else.
                connection.row[2] = time.monotonic_ns()
                connection.sock.sendmsg([HEAD + data], STAMP_SENDING)
                self.note_sent(connection)
            elif connection.sock.send(data) < len(data):
                raise BlockingIOError
        except OSError:
            self.close(
                connection
            )  # also a client that does not read: nothing here is larger than a socket's buffer
            return
        if is_last:
            late_ns = time.monotonic_ns() - connection.start_ns
            connection.row[3] = late_ns - int((tokens - 1) * self.options.itl_ms * 1e6)
            connection.row = None
            self.open -= 1
        elif connection.done != self.options.hold_after:
            self.plan(connection)

    def note_sent(self, connection: Connection) -> None:
        """On loopback the stamp is there as soon as `sendmsg` is back."""
        try:
            _, control, _, _ = connection.sock.recvmsg(
                0, ROOM_FOR_STAMPS, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT
            )
        except OSError:
            return
        sent_ns = self.stamped_ns(control)
        if connection.row and sent_ns:
            connection.row[2] = sent_ns


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--ttft-ms", type=float, default=1)
    parser.add_argument("--itl-ms", type=float, default=20)
    parser.add_argument(
        "--hold-after", type=int, help="events after which an answer stays open without another"
    )
    parser.add_argument("--log", required=True)
    options = parser.parse_args()
    gc.disable()
    server = Server(options)
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "is_ended", True))
    print(server.listener.getsockname()[1], flush=True)
    server.run()
    rows = [",".join("" if value is None else str(value) for value in row) for row in server.log]
    Path(options.log).write_text("\n".join([LOG_HEAD, *rows]) + "\n")


if __name__ == "__main__":
    main()
