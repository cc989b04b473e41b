"""What a router and its workers tell of each call, and the usage of its answer, are kept with the call that they belong to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import orjson
import polars as pl
import pytest
from click.testing import CliRunner

from aitrace.cli import main
from aitrace.runstore import read_run
from aitrace.store import write_trace
from aitrace.testing import make_trace
from tests.e2e.http_server import Quiet, served

WORKER_IDS = 2**63
"""Ids of Dynamo's workers are larger than what integers of a run may be."""


def answer(protocol: str, usage: tuple[int, int, int], nvext: dict) -> bytes:
    """A stream of one token whose last events have usage (prompt, cached, output) and `nvext`."""
    prompt, cached, output = usage
    match protocol:
        case "chat":
            counts = {
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            delta = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}]}
            return (
                b"".join(map(event, (delta, {"choices": [], "usage": counts, "nvext": nvext})))
                + b"data: [DONE]\n\n"
            )
        case "responses":
            counts = {
                "input_tokens": prompt,
                "output_tokens": output,
                "input_tokens_details": {"cached_tokens": cached},
            }
            delta = {"type": "response.output_text.delta", "item_id": "m", "delta": "a"}
            response = {"id": "r", "status": "completed", "usage": counts, "nvext": nvext}
            return event(delta) + event({"type": "response.completed", "response": response})
        case _:
            counts = {
                "input_tokens": prompt - cached,
                "cache_read_input_tokens": cached,
                "output_tokens": output,
            }
            start = {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
            block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}
            end = {
                "type": "message_delta",
                "delta": {"stop_reason": "max_tokens"},
                "usage": counts,
                "nvext": nvext,
            }
            return b"".join(map(event, (start, block, end, {"type": "message_stop"})))


def event(payload: dict) -> bytes:
    name = b"event: " + payload["type"].encode() + b"\n" if "type" in payload else b""
    return name + b"data: " + orjson.dumps(payload) + b"\n\n"


class Router:
    """Refuses the first try of every third call, and says of each answer something else."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.told: dict[str, list[dict]] = {}
        """What was said of each try, by request id."""
        self.usage: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.Lock()

    def answer(self, request_id: str | None) -> tuple[int, dict[str, str], bytes]:
        if request_id is None:
            return 200, {}, answer(self.protocol, (300, 0, 2), {})
        with self._lock:
            tries = self.told.setdefault(request_id, [])
            number = int(request_id.rpartition("-")[2])
            if number % 3 == 0 and not tries:
                headers = {
                    "x-llm-d-request-dropped-reason": f"saturated-{number}",
                    "x-smg-error-code": "full",
                }
                tries.append(headers)
                return 503, {"Retry-After": "0.01", **headers}, b'{"error": {"message": "full"}}'
            headers = {
                "x-smg-routed-worker-id": f"http://worker-{number % 2}",
                "x-gateway-destination-endpoint-served": f"10.0.0.{number}:8000",
            }
            nvext = {
                "worker_id": {"prefill_worker_id": WORKER_IDS + number, "decode_worker_id": 7},
                "timing": {"ttft_ms": 0.5 + number, "request_received_ms": number},
            }
            tries.append(
                {
                    **headers,
                    "nvext.worker_id.prefill_worker_id": str(WORKER_IDS + number),
                    "nvext.worker_id.decode_worker_id": "7",
                    "nvext.timing.ttft_ms": 0.5 + number,
                    "nvext.timing.request_received_ms": number,
                }
            )
            self.usage[request_id] = (400 + number, 100 + number, 3)
            return 200, headers, answer(self.protocol, self.usage[request_id], nvext)


@contextmanager
def serving(router: Router) -> Iterator[str]:
    class Handler(Quiet, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, body = router.answer(self.headers["X-Request-Id"])
            self.send_response(status)
            kind = "text/event-stream" if status == 200 else "application/json"
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with served(Handler) as url:
        yield url


@pytest.mark.parametrize(
    ("protocol", "workers"), [("chat", "1"), ("responses", "1"), ("anthropic", "1"), ("chat", "2")]
)
def test_signals_and_usage_of_every_try_are_what_the_router_said_of_it(tmp_path, protocol, workers):
    router = Router(protocol)
    write_trace(tmp_path / "trace.aitrace", make_trace(sessions=4, calls=2))
    with serving(router) as url:
        options = ["--protocol", protocol, "--tokens-per-word", "1", "--retries", "claude-code"]
        target = ["--url", url, "-o", str(tmp_path / "run"), "--time-scale", "0.01", "--workers", workers]
        arguments = ["replay", str(tmp_path / "trace.aitrace"), *target, *options]
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    calls = {call.request_id: call for call in read_run(tmp_path / "run").calls}
    assert len(calls) == 8
    assert {
        id_: [one.signals for one in (*call.attempts, call)] for id_, call in calls.items()
    } == router.told
    assert sum(len(tries) for tries in router.told.values()) == 11
    assert {
        id_: (call.usage.input_tokens, call.usage.cache_read_tokens, call.usage.output_tokens)
        for id_, call in calls.items()
    } == router.usage
    table = pl.read_parquet(tmp_path / "run" / "calls.parquet").select("request_id", "signals").rows()
    assert {id_: orjson.loads(signals) for id_, signals in table} == {
        id_: tries[-1] for id_, tries in router.told.items()
    }
