"""The engine on the wire."""

import asyncio
import gzip
import logging
import math
import random
import re
import signal
import sys
import time
from collections.abc import Callable

import aiohttp
import orjson
import pytest
import zstandard
from prometheus_client.parser import text_string_to_metric_families

from aitrace.errors import UsageError
from aitrace.protocols import PROTOCOLS
from aitrace.sse import SseParser
from replayer.engine.answers import WORDS
from replayer.engine.options import EngineOptions, Fault
from replayer.engine.server import RunningEngine, serve

PATHS = {"anthropic": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
PROTOCOL_NAMES = list(PATHS)


def quick(**changes) -> EngineOptions:
    """An engine that computes in no time."""
    usual = {"port": 0, "prefill_tokens_per_s": None, "decode_tokens_per_s": None}
    return EngineOptions(**usual | changes)


def body(protocol: str, *texts: str, limit: int | None = 10, **fields) -> dict:
    """A request for a conversation whose speakers alternate."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    name = "input" if protocol == "responses" else "messages"
    limit_name = "max_output_tokens" if protocol == "responses" else "max_tokens"
    limits = {} if limit is None else {limit_name: limit}
    return {"model": "m", name: messages, **limits, **fields}


def expected_tokens(*texts: str) -> tuple[int, int]:
    """Tokens of such a conversation by the documented rendering, and how many of them a repetition finds cached."""
    rendered = ""
    for number, text in enumerate(texts):
        rendered += f"{'<|asst|>' if number % 2 else '<|user|>'} says\n{text}\n<|end|>\n"
    tokens = sum(-(-len(word.encode()) // 8) for word in (rendered + "<|asst|> says\n").split())
    return tokens, (tokens - 1) // 16 * 16


def usage_of(protocol: str, reported: dict) -> tuple[int, int, int]:
    """Prompt, cached and output tokens of a usage object."""
    if protocol == "anthropic":
        cached = reported["cache_read_input_tokens"]
        return reported["input_tokens"] + cached, cached, reported["output_tokens"]
    if protocol == "responses":
        cached = reported["input_tokens_details"]["cached_tokens"]
        return reported["input_tokens"], cached, reported["output_tokens"]
    cached = reported["prompt_tokens_details"]["cached_tokens"]
    return reported["prompt_tokens"], cached, reported["completion_tokens"]


def text_of(protocol: str, reply: dict) -> str:
    if protocol == "anthropic":
        return reply["content"][0]["text"]
    if protocol == "responses":
        return reply["output"][0]["content"][0]["text"]
    return reply["choices"][0]["message"]["content"]


class Client:
    def __init__(self, engine: RunningEngine, session: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.session = session

    def post(self, protocol: str, value: dict | bytes, **headers: str):
        data = value if isinstance(value, bytes) else orjson.dumps(value)
        return self.session.post(self.engine.url + PATHS[protocol], data=data, headers=headers)

    async def ask(self, protocol: str, value: dict, **headers: str) -> dict:
        async with self.post(protocol, value, **headers) as response:
            assert response.status == 200, await response.text()
            return orjson.loads(await response.read())

    async def stream(self, protocol: str, value: dict, **headers: str) -> bytes:
        async with self.post(protocol, value | {"stream": True}, **headers) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            return await response.read()


@pytest.fixture
async def start():
    """Starts engines that end with the test."""
    engines = []

    async def started(options: EngineOptions) -> Client:
        manager = serve(options)
        engine = await manager.__aenter__()
        session = aiohttp.ClientSession()
        engines.append((manager, session))
        return Client(engine, session)

    yield started
    for manager, session in engines:
        await session.close()
        await manager.__aexit__(None, None, None)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that another task is about to do."""
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110 - what is awaited is a value of the engine, which tells nobody
            await asyncio.sleep(0.002)


# Answers


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_whole_answer_has_as_many_words_as_it_reports_tokens(start, protocol):
    client = await start(quick())
    reply = await client.ask(protocol, body(protocol, "hello there", limit=15, ignore_eos=True))
    words = text_of(protocol, reply).split(" ")
    assert len(words) == 15
    assert set(words) <= {word.decode() for word in WORDS}
    assert usage_of(protocol, reply["usage"]) == (expected_tokens("hello there")[0], 0, 15)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_stream_says_what_the_whole_answer_says(start, protocol):
    client = await start(quick(decode_tokens_per_s=2000.0))
    request = body(protocol, "hello", limit=30, ignore_eos=True, stream_options={"include_usage": True})
    reply = await client.ask(protocol, request)
    reader = PROTOCOLS[protocol].open_stream()
    for event in SseParser().feed(await client.stream(protocol, request)):
        reader.read(event)
    assert "".join(reader.text) == text_of(protocol, reply)
    assert (reader.done, reader.error, reader.unparsed_events) == (True, None, 0)
    assert (reader.usage.input_tokens, reader.usage.output_tokens) == (expected_tokens("hello")[0], 30)


async def test_a_chat_stream_byte_by_byte(start):
    """The whole body, but for id and time."""
    client = await start(quick())
    raw = await client.stream("chat", body("chat", "hi", limit=2, ignore_eos=True))
    text = (await client.ask("chat", body("chat", "hi", limit=2, ignore_eos=True)))["choices"][0]["message"][
        "content"
    ]
    head = 'data: {"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,'
    masked = re.sub(r'"created":\d+', '"created":0', re.sub(r"chatcmpl-\w+", "chatcmpl-ID", raw.decode()))
    assert masked == (
        f'{head}"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]}}\n\n'
        f'{head}"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null}}]}}\n\n'
        f'{head}"delta":{{}},"logprobs":null,"finish_reason":"length"}}]}}\n\n'
        "data: [DONE]\n\n"
    )


async def test_an_anthropic_stream_byte_by_byte(start):
    client = await start(quick())
    raw = await client.stream("anthropic", body("anthropic", "hi", limit=2, ignore_eos=True))
    text = text_of(
        "anthropic", await client.ask("anthropic", body("anthropic", "hi", limit=2, ignore_eos=True))
    )
    usage = '"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":'
    assert re.sub(r"msg_\w+", "msg_ID", raw.decode()) == (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_ID","type":"message",'
        '"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
        + usage
        + "0}}}\n\n"
        'event: ping\ndata: {"type":"ping"}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        f'"delta":{{"type":"text_delta","text":"{text}"}}}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens",'
        '"stop_sequence":null},' + usage + "2}}\n\n"
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_reasoning_and_tool_call_are_streamed_as_such(start, protocol):
    client = await start(quick(reasoning_tokens=3, tool_call=True, decode_tokens_per_s=2000.0))
    tool = {"name": "Read", "description": "reads"}
    tools = {
        "anthropic": [tool | {"input_schema": {"type": "object"}}],
        "responses": [tool | {"type": "function", "parameters": {"type": "object"}}],
        "chat": [{"type": "function", "function": tool | {"parameters": {"type": "object"}}}],
    }
    reader = PROTOCOLS[protocol].open_stream()
    raw = await client.stream(protocol, body(protocol, "hi", limit=40, tools=tools[protocol]))
    kinds = [kind for event in SseParser().feed(raw) if (kind := reader.read(event)) is not None]
    assert list(dict.fromkeys(kinds)) == ["reasoning", "content", "tool_call"]
    assert (reader.ended_tools, reader.done, reader.unparsed_events) == (["Read"], True, 0)


async def test_the_same_requests_under_the_same_seed_get_the_same_bytes(start):
    """But for the wall time in `created`."""

    async def play(seed: int) -> list[bytes]:
        client = await start(quick(seed=seed))
        asked = [body("chat", text, limit=None) for text in ("one", "two", "one")]
        replies = [await client.ask("chat", value) for value in asked]
        return [orjson.dumps(reply | {"created": 0}) for reply in replies]

    first, again, other = await play(1), await play(1), await play(2)
    assert first == again
    assert not set(first) & set(other)


# The prefix cache


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_cached_tokens_are_the_whole_blocks_of_the_shared_prefix(start, protocol):
    client = await start(quick())
    texts = ["question " * 50, "answer " * 40, "more " * 30]
    found = [
        usage_of(protocol, (await client.ask(protocol, body(protocol, *texts[:n])))["usage"])[:2]
        for n in (1, 1, 3, 3)
    ]
    short, long = expected_tokens(texts[0]), expected_tokens(*texts)
    # The prompt's last words, which open the answer, are the same at the start of the answer it is continued with.
    shared = short[0] // 16 * 16
    assert found == [(short[0], 0), short, (long[0], shared), long]


async def test_a_prompt_of_a_megabyte_is_counted_while_others_stream(start):
    client = await start(quick(decode_tokens_per_s=200.0))
    other = asyncio.ensure_future(client.stream("chat", body("chat", "hi", limit=40, ignore_eos=True)))
    text = "four words at least " * 50_000
    reply = await client.ask("chat", body("chat", text, limit=1))
    assert usage_of("chat", reply["usage"])[0] == expected_tokens(text)[0]
    assert (await other).endswith(b"data: [DONE]\n\n")


async def test_an_answer_that_comes_back_in_the_history_is_cached(start):
    """The prompt is the same with the engine's own answer appended; all but the answer's last token was computed."""
    client = await start(quick())
    prompt = "question " * 20
    reply = await client.ask("chat", body("chat", prompt, limit=50, ignore_eos=True))
    answer = text_of("chat", reply)
    usage = (await client.ask("chat", body("chat", prompt, answer, "and now?")))["usage"]
    computed = expected_tokens(prompt)[0] + 49
    assert usage_of("chat", usage)[1] == computed // 16 * 16


async def test_the_least_recently_used_prompt_is_evicted_from_a_small_cache(start):
    """Prompts of 5 blocks of 16 tokens with their answer, in a cache of 11."""
    client = await start(quick(cache_blocks=11))
    prompts = {name: f"{name} " * 70 for name in "abc"}

    async def cached(name: str) -> int:
        reply = await client.ask("chat", body("chat", prompts[name], limit=1))
        return usage_of("chat", reply["usage"])[1]

    assert expected_tokens(prompts["a"]) == (75, 64)
    assert [await cached(name) for name in "abab"] == [0, 0, 64, 64]
    # The third prompt takes the places of `a`, last block first; `b` was used later.
    assert [await cached(name) for name in "cb"] == [0, 64]
    assert 0 <= await cached("a") < 64


async def test_usage_adds_up_to_the_metrics(start):
    client = await start(quick())
    usages = []
    for number in range(12):
        protocol = PROTOCOL_NAMES[number % 3]
        reply = await client.ask(protocol, body(protocol, "shared words " * 40, limit=7 + number))
        usages.append(usage_of(protocol, reply["usage"]))
    prompt, cached, output = (sum(values) for values in zip(*usages, strict=True))
    async with client.session.get(client.engine.url + "/metrics") as response:
        families = list(text_string_to_metric_families(await response.text()))
    values = {sample.name: sample.value for family in families for sample in family.samples}
    assert cached > 0
    assert (values["vllm:prefix_cache_queries_total"], values["vllm:prefix_cache_hits_total"]) == (
        prompt,
        cached,
    )
    assert (values["vllm:prompt_tokens_total"], values["vllm:generation_tokens_total"]) == (prompt, output)
    assert client.engine.metrics()["vllm:request_success_total"] == 12


# Refusals and errors


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_full_queue_refuses_in_the_chosen_way(start, protocol, status):
    client = await start(
        quick(
            batch=1,
            queue=1,
            decode_tokens_per_s=10.0,
            refuse=status,
            retry_after_s=2.0,
            answer_tokens=(50, 50),
        )
    )
    running = [client.post(protocol, body(protocol, "hi", limit=50, stream=True)) for _ in range(2)]
    responses = [await request.__aenter__() for request in running]
    async with client.post(protocol, body(protocol, "hi")) as response:
        assert (response.status, response.headers["Retry-After"]) == (status, "2")
        expected = PROTOCOLS[protocol].write_error(status, "the engine has no room for this request")
        assert await response.read() == expected
    for response in responses:
        response.close()
    assert client.engine.records[0].outcome == "refused"
    assert client.engine.metrics()["vllm:admission_rejections_total"] == 1


async def test_without_retry_after_there_is_no_such_header(start):
    client = await start(quick(batch=1, queue=0, decode_tokens_per_s=10.0))
    running = client.post("chat", body("chat", "hi", limit=50, stream=True))
    async with running, client.post("chat", body("chat", "hi")) as response:
        assert response.status == 503
        assert "Retry-After" not in response.headers


async def held(client, count: int = 1) -> None:
    await until(lambda: client.engine.server.simulation.waiting == count)


async def test_a_held_request_gets_no_headers_until_there_is_room(start):
    client = await start(quick(batch=1, queue=0, hold_s=math.inf, decode_tokens_per_s=10.0))
    running = client.post("chat", body("chat", "hi", limit=200, ignore_eos=True, stream=True))
    first = await running.__aenter__()
    second = asyncio.ensure_future(client.ask("chat", body("chat", "ho", limit=1)))
    await held(client)
    assert client.engine.metrics()["vllm:num_requests_waiting"] == 1
    first.close()
    await second
    left, answered = client.engine.records
    assert (left.held_ns, answered.status, answered.outcome) == (None, 200, "complete")
    assert answered.held_ns < answered.queued_ns <= answered.admitted_ns


async def test_a_hold_that_ends_is_a_refusal(start):
    client = await start(
        quick(batch=1, queue=0, hold_s=0.05, refuse=429, retry_after_s=2.0, decode_tokens_per_s=10.0)
    )
    running = client.post("chat", body("chat", "hi", limit=50, stream=True))
    async with running, client.post("chat", body("chat", "ho", stream=True)) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "2")
    refused = client.engine.records[0]
    assert (refused.outcome, refused.queued_ns) == ("refused", None)
    assert refused.end_ns - refused.held_ns >= 50_000_000
    assert client.engine.metrics()["vllm:admission_rejections_total"] == 1


async def test_a_held_client_that_leaves_is_forgotten(start):
    client = await start(quick(batch=1, queue=0, hold_s=math.inf, decode_tokens_per_s=10.0))
    running = client.post("chat", body("chat", "hi", limit=200, ignore_eos=True, stream=True))
    response = await running.__aenter__()
    waiting = asyncio.ensure_future(client.ask("chat", body("chat", "ho")))
    await held(client)
    waiting.cancel()
    await held(client, 0)
    assert (client.engine.records[0].outcome, client.engine.records[0].queued_ns) == ("client_gone", None)
    response.close()


@pytest.mark.parametrize(("headers", "come_early"), [("early", True), ("late", False)])
async def test_headers_of_a_waiting_request_come_early_or_late(start, headers, come_early):
    client = await start(quick(batch=1, headers=headers, decode_tokens_per_s=10.0))
    running = client.post("chat", body("chat", "hi", limit=200, ignore_eos=True, stream=True))
    first = await running.__aenter__()
    second = asyncio.ensure_future(client.post("chat", body("chat", "ho", limit=1, stream=True)).__aenter__())
    await held(client)
    if come_early:
        assert (await second).status == 200
        assert client.engine.server.simulation.waiting == 1
    else:
        sent = [exchange.record.status for exchange in client.engine.server._exchanges.values()]
        assert sorted(sent, key=str) == [200, None]
    first.close()
    async with await second as response:
        await response.read()
    record = client.engine.records[-1]
    assert (record.status, record.outcome) == (200, "complete")


async def test_a_session_that_was_served_is_not_refused(start):
    client = await start(quick(batch=1, queue=0, protect_returning=True, decode_tokens_per_s=100.0))
    await client.ask("chat", body("chat", "hi", limit=1), **{"X-Session-ID": "served"})
    long = body("chat", "hi", limit=20, ignore_eos=True, stream=True)
    statuses = {}
    async with client.post("chat", long):
        for session in ("served", "new", None):
            headers = {} if session is None else {"X-Session-ID": session}
            async with client.post("chat", body("chat", "ho", limit=1, stream=True), **headers) as response:
                statuses[session] = response.status
    assert statuses == {"served": 200, "new": 503, None: 503}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@pytest.mark.parametrize(
    "sent",
    [b"", b"{", b"[]", b"\xff", b'{"model":1}', b'{"model":"m"}', b'{"model":"m","messages":5,"input":5}'],
)
async def test_a_malformed_body_gets_the_protocols_error(start, protocol, sent):
    client = await start(quick())
    async with client.post(protocol, sent) as response:
        assert response.status == 400
        answer = await response.read()
    kind = orjson.loads(answer)["error"]["type"]
    assert (kind, client.engine.records[0].outcome) == ("invalid_request_error", "malformed")


async def test_malformed_fields_that_only_engines_know_are_named(start):
    client = await start(quick())
    async with client.post("chat", body("chat", "hi", min_tokens="x")) as response:
        assert (response.status, "min_tokens" in await response.text()) == (400, True)


async def test_unknown_fields_are_ignored(start):
    client = await start(quick())
    reply = await client.ask("chat", body("chat", "hi", frobnicate={"a": [1]}))
    assert reply["object"] == "chat.completion"


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_body_above_the_limit_is_too_large(start, protocol):
    client = await start(quick(max_body_bytes=1000))
    async with client.post(protocol, body(protocol, "x" * 2000)) as response:
        assert response.status == 413
        assert "1000" in PROTOCOLS[protocol].read_error(await response.read())
    await until(lambda: bool(client.engine.records))
    assert (client.engine.records[0].status, client.engine.records[0].body_ns) == (413, None)


async def test_a_prompt_that_never_fits_is_refused_as_malformed(start):
    client = await start(quick(cache_blocks=2))
    async with client.post("chat", body("chat", "word " * 100)) as response:
        assert (response.status, "2 cache blocks" in await response.text()) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/messages", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("POST", "/metrics", 405),
        ("GET", "/nowhere", 404),
        ("POST", "/v1/message", 404),
    ],
)
async def test_unknown_paths_and_wrong_methods(start, method, path, status):
    client = await start(quick())
    async with client.session.request(method, client.engine.url + path) as response:
        assert response.status == status
        assert orjson.loads(await response.read())["error"]["message"].startswith(f"{method} {path}: ")
        assert ("Allow" in response.headers) == (status == 405)


@pytest.mark.parametrize(("encoding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
async def test_a_body_may_come_compressed(start, encoding, encode):
    """Codex compresses with zstd towards some providers."""
    client = await start(quick())
    sent = encode(orjson.dumps(body("responses", "hello")))
    async with client.post("responses", sent, **{"Content-Encoding": encoding}) as response:
        reply = orjson.loads(await response.read())
    assert usage_of("responses", reply["usage"])[0] == expected_tokens("hello")[0]


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 400), ("zstd", 400), ("br", 415)])
async def test_a_body_that_cannot_be_decoded_gets_the_protocols_error(start, encoding, status):
    client = await start(quick())
    async with client.post("anthropic", b"not encoded", **{"Content-Encoding": encoding}) as response:
        assert (response.status, orjson.loads(await response.read())["type"]) == (status, "error")
    assert (client.engine.records[0].status, client.engine.records[0].outcome) == (status, "malformed")


async def test_a_client_that_asks_for_a_websocket_is_told_to_go_on_without(start):
    """Codex takes 405 for a fault to be retried, 426 for an answer."""
    client = await start(quick())
    asked = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with client.session.get(client.engine.url + PATHS["responses"], headers=asked) as response:
        assert response.status == 426
        assert "WebSockets" in PROTOCOLS["responses"].read_error(await response.read())


async def test_agents_may_tell_much_about_themselves_in_a_header(start):
    client = await start(quick())
    async with client.post("responses", body("responses", "hi"), **{"X-Turn": "a" * 50_000}) as response:
        assert response.status == 200


async def test_what_is_no_http_is_told_in_one_line(start, caplog):
    client = await start(quick())
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.engine.url.rsplit(":", 1)[1]))
    with caplog.at_level(logging.ERROR):
        writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
        raw = await reader.read()
    writer.close()
    assert raw.startswith(b"HTTP/1.0 400 ")
    assert [(line.exc_info, "\n" in line.getMessage()) for line in caplog.records] == [(None, False)]


def random_json(draw: random.Random, depth: int = 0):
    """Values made of the words of the protocols, mostly in the wrong places."""
    words = [
        "model",
        "messages",
        "input",
        "role",
        "content",
        "type",
        "text",
        "tools",
        "name",
        "user",
        "assistant",
    ]
    words += [
        "system",
        "tool_use",
        "tool_result",
        "function",
        "function_call",
        "function_call_output",
        "call_id",
    ]
    words += [
        "arguments",
        "output",
        "thinking",
        "max_tokens",
        "stream",
        "min_tokens",
        "ignore_eos",
        "tool_calls",
    ]
    kind = draw.random()
    if depth > 5 or kind < 0.4:
        return draw.choice([*words, None, True, 0, -1, 1.5, 2**63, 1e300, "", "\u0000"])
    if kind < 0.65:
        return [random_json(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return {draw.choice(words): random_json(draw, depth + 1) for _ in range(draw.randint(0, 5))}


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_any_json_gets_an_answer_or_the_protocols_error(start, protocol):
    client = await start(quick(tool_call=True, reasoning_tokens=2))
    draw = random.Random(protocol)
    found = set()
    for _ in range(200):
        usual = body(protocol, "hi", "ho", stream=True)
        name = draw.choice([*usual, "tools", "system", "instructions"])
        sent = random_json(draw) if draw.random() < 0.3 else usual | {name: random_json(draw)}
        async with client.post(protocol, orjson.dumps(sent, default=str)) as response:
            found.add(response.status)
            answer = await response.read()
        assert response.status == 200 or orjson.loads(answer)["error"]["type"] == "invalid_request_error", (
            sent
        )
    assert found == {200, 400}


# Other routes


async def test_models_health_and_count_tokens(start):
    client = await start(quick(model="m/7b"))
    url = client.engine.url
    async with client.session.get(url + "/v1/models") as response:
        page = orjson.loads(await response.read())
    async with client.session.get(url + "/v1/models/m/7b") as response:
        assert orjson.loads(await response.read()) == page["data"][0]
    async with client.session.get(url + "/health") as response:
        assert response.status == 200
    async with client.session.post(
        url + "/v1/messages/count_tokens", data=orjson.dumps(body("anthropic", "hello " * 20, limit=None))
    ) as response:
        assert orjson.loads(await response.read()) == {"input_tokens": expected_tokens("hello " * 20)[0]}
    assert [model["id"] for model in page["data"]] == ["m/7b"]


@pytest.mark.parametrize(("sent", "status"), [(b"{}", 400), (b" " * 2000, 413)])
async def test_count_tokens_has_the_same_errors(start, sent, status):
    client = await start(quick(max_body_bytes=1000))
    async with client.session.post(client.engine.url + "/v1/messages/count_tokens", data=sent) as response:
        assert (response.status, orjson.loads(await response.read())["type"]) == (status, "error")


# Faults


def streamed_words(protocol: str, raw: bytes) -> list[str]:
    reader = PROTOCOLS[protocol].open_stream()
    for event in SseParser().feed(raw):
        reader.read(event)
    return "".join(reader.text).split()


async def read_until_cut(response: aiohttp.ClientResponse) -> bytes:
    """All that came; the stream must break off."""
    raw = b""
    try:
        async for chunk in response.content.iter_any():
            raw += chunk
    except aiohttp.ClientPayloadError:
        return raw
    pytest.fail("the stream ended as if it were whole")


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_a_cut_stream_has_exactly_the_tokens_before_it(start, protocol):
    client = await start(quick())
    whole = await client.ask(protocol, body(protocol, "hi", limit=10, ignore_eos=True))
    request = body(protocol, "hi", limit=10, ignore_eos=True, stream=True)
    async with client.post(protocol, request, **{"X-Aitrace-Fault": "cut=4"}) as response:
        raw = await read_until_cut(response)
    assert streamed_words(protocol, raw) == text_of(protocol, whole).split()[:4]
    await until(lambda: len(client.engine.records) == 2)
    record = client.engine.records[1]
    assert (record.outcome, record.fault, record.output_tokens) == ("fault", "cut=4", 4)


async def test_a_cut_before_the_first_token_leaves_only_the_headers(start):
    client = await start(quick())
    async with client.post(
        "chat", body("chat", "hi", stream=True), **{"X-Aitrace-Fault": "cut=0"}
    ) as response:
        raw = await read_until_cut(response)
    assert streamed_words("chat", raw) == []
    await until(lambda: bool(client.engine.records))
    assert (client.engine.records[0].first_token_ns, client.engine.records[0].status) == (None, 200)


async def test_a_cut_of_an_answer_in_one_piece_is_no_answer(start):
    client = await start(quick())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        async with client.post("chat", body("chat", "hi"), **{"X-Aitrace-Fault": "cut=4"}):
            pass
    await until(lambda: bool(client.engine.records))
    assert (client.engine.records[0].outcome, client.engine.records[0].status) == ("fault", None)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
async def test_an_error_event_takes_the_place_of_the_rest(start, protocol):
    client = await start(quick())
    raw = await client.stream(protocol, body(protocol, "hi"), **{"X-Aitrace-Fault": "error=3"})
    reader = PROTOCOLS[protocol].open_stream()
    for event in SseParser().feed(raw):
        reader.read(event)
    assert len("".join(reader.text).split()) == 3
    assert "told to fail" in (reader.error or "")


async def test_an_error_in_an_answer_in_one_piece_is_status_500(start):
    client = await start(quick())
    async with client.post(
        "anthropic", body("anthropic", "hi"), **{"X-Aitrace-Fault": "error=3"}
    ) as response:
        assert (response.status, orjson.loads(await response.read())["error"]["type"]) == (500, "api_error")
    assert (client.engine.records[0].outcome, client.engine.records[0].status) == ("fault", 500)


async def test_a_stall_holds_the_tokens_after_it(start):
    client = await start(quick())
    await client.stream("chat", body("chat", "hi"), **{"X-Aitrace-Fault": "stall=2:0.15"})
    record = client.engine.records[0]
    assert record.last_token_ns - record.first_token_ns >= 140_000_000
    assert (record.outcome, record.fault, record.output_tokens) == ("complete", "stall=2:0.15", 10)


async def test_a_refusal_by_fault(start):
    client = await start(quick())
    async with client.post("chat", body("chat", "hi"), **{"X-Aitrace-Fault": "refuse=529:7"}) as response:
        assert (response.status, response.headers["Retry-After"]) == (529, "7")
    assert client.engine.records[0].outcome == "refused"


async def test_slow_headers_come_late(start):
    client = await start(quick())
    begun = time.monotonic()
    async with client.post(
        "chat", body("chat", "hi", stream=True), **{"X-Aitrace-Fault": "slow-headers=0.15"}
    ):
        assert time.monotonic() - begun >= 0.15


async def test_a_fault_that_cannot_be_read_is_told(start):
    client = await start(quick())
    async with client.post("chat", body("chat", "hi"), **{"X-Aitrace-Fault": "explode"}) as response:
        assert (response.status, "explode" in await response.text()) == (400, True)


async def test_global_faults_strike_their_share_and_the_same_requests_under_the_same_seed(start):
    async def struck() -> list[bool]:
        client = await start(quick(fault=Fault(kind="refuse", status=503), fault_ratio=0.3, seed=4))
        found = []
        for _ in range(60):
            async with client.post("chat", body("chat", "hi")) as response:
                found.append(response.status == 503)
        return found

    first, again = await struck(), await struck()
    assert first == again
    assert 6 <= sum(first) <= 32  # 18 expected; outside with a chance of less than 1 in 1000


# Clients that leave


async def test_a_client_that_leaves_frees_its_place_at_once(start):
    client = await start(quick(batch=1, decode_tokens_per_s=10.0))
    leaver = client.post("chat", body("chat", "hi", limit=200, ignore_eos=True, stream=True))
    response = await leaver.__aenter__()
    await response.content.readany()
    waiting = asyncio.ensure_future(client.ask("chat", body("chat", "ho", limit=1)))
    await until(lambda: client.engine.server.simulation.waiting == 1)
    response.close()
    async with asyncio.timeout(5):  # the first answer would have taken 20 s
        await waiting
    left = client.engine.records[0]
    assert (left.outcome, left.status) == ("client_gone", 200)
    assert 1 <= left.output_tokens < 200


async def test_a_waiting_client_that_leaves_frees_its_place_in_the_queue(start):
    client = await start(quick(batch=1, queue=1, decode_tokens_per_s=10.0))
    running = client.post("chat", body("chat", "hi", limit=200, ignore_eos=True, stream=True))
    response = await running.__aenter__()
    queued = asyncio.ensure_future(client.ask("chat", body("chat", "ho")))
    await until(lambda: client.engine.server.simulation.waiting == 1)
    queued.cancel()
    await until(lambda: client.engine.server.simulation.waiting == 0)
    assert (client.engine.records[0].outcome, client.engine.records[0].admitted_ns) == ("client_gone", None)
    response.close()


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_held_once_all_clients_are_gone(start, seed):
    """Faults, refusals, and clients that leave in the queue, in prefill and in mid-stream."""
    draw = random.Random(seed)
    client = await start(
        quick(batch=3, queue=8, cache_blocks=150, prefill_tokens_per_s=50_000.0, decode_tokens_per_s=2000.0)
    )
    faults = ["cut=5", "error=0", "error=3", "stall=2:0.02", "refuse=429:1", "slow-headers=0.02", "explode"]

    async def visit() -> None:
        protocol = draw.choice(PROTOCOL_NAMES)
        text = f"conversation{draw.randint(0, 3)} " * draw.randint(1, 400)
        fault = {"X-Aitrace-Fault": draw.choice(faults)} if draw.random() < 0.3 else {}
        patience_s = draw.choice([0.001, 0.01, 0.03, 30.0])
        asked = body(protocol, text, limit=draw.randint(1, 40), stream=draw.random() < 0.7)
        try:
            async with asyncio.timeout(patience_s), client.post(protocol, asked, **fault) as response:
                await response.read()
        except (TimeoutError, aiohttp.ClientError):
            pass

    for _ in range(15):
        await asyncio.gather(*(visit() for _ in range(12)))
    simulation = client.engine.server.simulation
    # Some clients have left so lately that the engine has yet to notice.
    await until(lambda: simulation.running == simulation.waiting == 0 and simulation.next_at_ns() is None)
    await asyncio.sleep(0.1)
    assert simulation.cache.used_blocks == 0
    begun = [record for record in client.engine.records if record.prefill_ns is not None]
    counted = client.engine.metrics()
    assert counted["vllm:prefix_cache_queries_total"] == sum(record.prompt_tokens for record in begun) > 0
    assert counted["vllm:prefix_cache_hits_total"] == sum(record.cached_tokens for record in begun) > 0


async def test_a_client_that_leaves_before_its_body_is_whole_is_recorded(start):
    client = await start(quick())
    port = int(client.engine.url.rsplit(":", 1)[1])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    await until(lambda: bool(client.engine.records))
    record = client.engine.records[0]
    assert (record.outcome, record.body_ns, record.status) == ("client_gone", None, None)


async def test_old_clients_get_a_stream_that_ends_with_the_connection(start):
    client = await start(quick())
    port = int(client.engine.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = orjson.dumps(body("chat", "hi", stream=True))
    writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(sent), sent))
    raw = await reader.read()
    writer.close()
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower()
    assert rest.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")


# Records


async def test_the_times_of_a_record_are_in_order(start):
    client = await start(quick(prefill_tokens_per_s=1000.0, decode_tokens_per_s=500.0))
    before = time.monotonic_ns()
    request = body("chat", "word " * 30, limit=10, ignore_eos=True)
    await client.stream("chat", request, **{"X-Request-Id": "r-1", "X-Session-Id": "s-1"})
    await until(lambda: bool(client.engine.records))
    record = client.engine.records[0]
    times = [before, record.head_ns, record.body_ns, record.queued_ns, record.admitted_ns, record.prefill_ns]
    times += [record.first_token_ns, record.last_token_ns, record.end_ns, time.monotonic_ns()]
    assert times == sorted(times)
    assert (record.request_id, record.session, record.outcome) == ("r-1", "s-1", "complete")


async def test_time_to_first_token_is_uncached_tokens_over_the_prefill_rate(start):
    client = await start(quick(prefill_tokens_per_s=1000.0))
    request = body("chat", "word " * 100, limit=1)
    for _ in range(2):
        await client.stream("chat", request)
    await until(lambda: len(client.engine.records) == 2)
    tokens, cached = expected_tokens("word " * 100)
    waits_ms = [(r.first_token_ns - r.prefill_ns) / 1e6 for r in client.engine.records]
    assert tokens <= waits_ms[0] < tokens + 50
    assert tokens - cached <= waits_ms[1] < tokens - cached + 50


# The command


async def test_two_engines_cannot_share_a_port(start):
    client = await start(quick())
    port = int(client.engine.url.rsplit(":", 1)[1])
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
        await start(quick(port=port))


@pytest.fixture
async def run_command():
    """Starts the command as a process that does not outlive the test; gives the process and the URL it told."""
    processes = []

    async def run(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aitrace", "engine", "--port", "0", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on http://127.0.0.1:")
        return process, line.split()[-1]

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_serves_logs_and_ends_cleanly(tmp_path, run_command, number):
    """Also with a stream open, which it cuts."""
    log = tmp_path / "engine.jsonl"
    process, url = await run_command("--log", str(log), "--decode-rate", "20", "--prefill-rate", "unlimited")
    async with aiohttp.ClientSession() as session:
        data = orjson.dumps(body("chat", "hi", limit=1))
        async with session.post(url + PATHS["chat"], data=data) as response:
            assert response.status == 200
        await until(lambda: log.read_bytes().endswith(b"\n"))
        first = orjson.loads(log.read_bytes())
        data = orjson.dumps(body("chat", "hi", limit=200, ignore_eos=True, stream=True))
        async with session.post(url + PATHS["chat"], data=data) as response:
            await response.content.readany()
            process.send_signal(number)
            async with asyncio.timeout(10):
                _, talk = await process.communicate()
    assert process.returncode == 0
    assert (first["outcome"], first["output_tokens"]) == ("complete", 1)
    assert [orjson.loads(line)["outcome"] for line in log.read_bytes().splitlines()] == [
        "complete",
        "stopped",
    ]
    assert talk.decode().startswith(
        "2 requests (1 complete, 1 stopped); 12 prompt tokens, 0 of them cached; "
    )


async def test_a_log_that_cannot_be_written_is_told_and_leaves_the_clients_alone(run_command):
    process, url = await run_command("--log", "/dev/full", "--prefill-rate", "unlimited")
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(
                url + PATHS["chat"], data=orjson.dumps(body("chat", "hi", limit=1))
            ) as response:
                assert response.status == 200
    process.send_signal(signal.SIGTERM)
    _, talk = await process.communicate()
    assert (process.returncode, talk.decode().splitlines()[1:]) == (
        1,
        ["2 of them are not in the log: No space left on device"],
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--fault", "explode", "--fault-rate", "1"], "Error: fault 'explode' cannot be read"),
        (["--fault-rate", "1"], "Hint: Say which fault"),
        (["--port", "65536"], "Error: --port is 65536, expected 0 to 65535"),
        (["--step", "nan"], "'nan' is no number of milliseconds"),
        (["--step", "-1"], "'-1' is below 0"),
        (["--refuse", "500"], "'500' is not one of '429', '503', '529'"),
        (["--batch", "0"], "Error: --batch is 0, expected 1 or more"),
        (["--hold", "x"], "'x' is neither a number of seconds nor `until-free`"),
        (["--hold", "inf"], "'inf' is neither a number of seconds nor `until-free`"),
        (["--hold", "until-free"], "Error: --hold without --queue"),
        (["--queue", "x"], "'x' is neither a whole number nor `unlimited`"),
        (["--prefill-rate", "x"], "'x' is neither a number nor `unlimited`"),
        (["--answer-tokens", "5"], "'5' is not of the form MIN:MAX"),
        (["--log", "/nowhere/at/all"], "Error: cannot write '/nowhere/at/all': No such file or directory"),
    ],
)
def test_wrong_use_is_told_and_exits_with_2(arguments, expected):
    from click.testing import CliRunner

    from aitrace.cli import main

    result = CliRunner().invoke(main, ["engine", *arguments])
    assert result.exit_code == 2
    assert expected in result.stderr
