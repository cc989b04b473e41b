"""A coding agent for recordings: speaks as Claude Code does, through whatever its environment says.

    python fake_client.py calls NUMBER      a chain of calls with a tool between each two
    python fake_client.py session ROUNDS    prompts with tools, parallel tools and one sub-agent, at known times
    python fake_client.py get URL           one request that is no call; prints the answer
    python fake_client.py tty               says which of its standard streams are a terminal
    python fake_client.py wait              says `ready`, then waits; Ctrl-C: `interrupted` and exit status 7
    python fake_client.py stop              stops itself as a terminal program does at Ctrl-Z, then ends
    python fake_client.py exit NUMBER | kill NUMBER

`session` writes what it did, by its own clock, as JSON lines to the file that FAKE_LOG names. FAKE_MODEL is the model
that it asks for, FAKE_SYSTEM_BYTES the size of its system prompt, FAKE_PAUSE_S the time between two events of an answer.
"""

import asyncio
import os
import signal
import ssl
import sys
import time
import uuid
from pathlib import Path
from random import Random

import aiohttp
import orjson

WORDS = Random(7)


def say(line):
    """Without a buffer: a signal's handler may speak in the middle of another line."""
    os.write(1, f"{line}\n".encode())


def text(size):
    return " ".join(f"word{WORDS.randrange(10_000)}" for _ in range(size // 8))


SYSTEM = text(int(os.environ.get("FAKE_SYSTEM_BYTES", "4000")))
TOOLS = [
    {"name": name, "description": text(400), "input_schema": {"type": "object"}}
    for name in ("Agent", "Bash", "Read")
]


class Agent:
    """One agent of the session: its history and its headers."""

    def __init__(self, http, session, agent=None):
        self.http = http
        self.agent = agent
        self.messages = []
        self.headers = {
            "User-Agent": "claude-cli/2.1.332 (external, cli)",
            "X-Claude-Code-Session-Id": session,
            "x-claude-code-request-class": "subagent" if agent else "main",
            "anthropic-version": "2023-06-01",
            "x-api-key": "sk-" + "dummy-" + "0" * 24,
        }
        if agent:
            self.headers |= {"x-claude-code-agent-id": agent, "x-claude-code-agent-type": "general-purpose"}

    async def call(self, content, prompt_id, tools=(), durations=None, log=None):
        """Ask once; the ids of the tool calls that came back."""
        self.messages.append({"role": "user", "content": content})
        headers = {**self.headers, "x-claude-code-prompt-id": prompt_id}
        script = {"tools": tools}
        if "FAKE_PAUSE_S" in os.environ:
            script["pause_s"] = float(os.environ["FAKE_PAUSE_S"])
        headers["X-Script"] = orjson.dumps(script).decode()
        if durations is not None:
            spans = (f"{name}={round(1000 * span)}" for name, span in durations)
            headers["x-claude-code-prev-tool-durations"] = ";".join(spans)
        body = {
            "model": os.environ.get("FAKE_MODEL", "claude-test-1"),
            "max_tokens": 1000,
            "stream": True,
            "system": [{"type": "text", "text": SYSTEM}],
            "tools": TOOLS,
            "messages": self.messages,
        }
        base = os.environ.get("ANTHROPIC_BASE_URL", "https://api.example.test")
        asked_ns = time.monotonic_ns()
        async with self.http.post(
            f"{base}/v1/messages?beta=true", data=orjson.dumps(body), headers=headers
        ) as response:
            answer = await response.read()
        ended_ns = time.monotonic_ns()
        if response.status != 200:
            sys.exit(f"status {response.status}: {answer[:200]!r}")
        found = [orjson.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: ")]
        blocks = [event["content_block"] for event in found if event["type"] == "content_block_start"]
        self.messages.append({"role": "assistant", "content": [_spoken(block) for block in blocks]})
        if log is not None:
            log.append({"agent": self.agent, "asked_ns": asked_ns, "ended_ns": ended_ns})
        return [block["id"] for block in blocks if block["type"] == "tool_use"]


def _spoken(block):
    return {**block, "text": "some words of the answer"} if block["type"] == "text" else block


def results(ids):
    return [{"type": "tool_result", "tool_use_id": id_, "content": text(300)} for id_ in ids]


async def calls(http, number):
    agent, prompt, ids = Agent(http, str(uuid.uuid4())), str(uuid.uuid4()), None
    for index in range(number):
        tools = ["Bash"] if index < number - 1 else []
        ids = await agent.call(results(ids) if ids else text(200), prompt, tools)
    say("done")


async def run(name, span_s):
    """A tool: takes its time."""
    await asyncio.sleep(span_s)
    return name, span_s


async def session(http, rounds):
    log = []
    key = str(uuid.uuid4())
    main = Agent(http, key)
    for number in range(rounds):
        prompt = str(uuid.uuid4())
        [tool] = await main.call(text(200), prompt, ["Bash"], log=log)
        done = [await run("Bash", 0.05 + 0.03 * (number % 4))]
        pair = await main.call(results([tool]), prompt, ["Read", "Bash"], done, log)
        done = await asyncio.gather(run("Read", 0.08), run("Bash", 0.16))
        tools = ["Agent"] if number == 1 else []
        ids = await main.call(results(pair), prompt, tools, done, log)
        if ids:
            start_s = time.monotonic()
            await child(http, key, prompt, log)
            await main.call(results(ids), prompt, [], [("Agent", time.monotonic() - start_s)], log)
        await asyncio.sleep(0.3)
    return log


async def child(http, key, prompt, log):
    agent = Agent(http, key, "a0123456789abcdef")
    [tool] = await agent.call(text(300), prompt, ["Bash"], log=log)
    done = [await run("Bash", 0.12)]
    [tool] = await agent.call(results([tool]), prompt, ["Read"], done, log)
    done = [await run("Read", 0.2)]
    await agent.call(results([tool]), prompt, [], done, log)


async def get(http, url):
    async with http.get(url) as response:
        say(f"{response.status} {(await response.text())[:200]}")


async def speak(work):
    context = ssl.create_default_context()
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(trust_env=True, connector=connector) as http:
        return await work(http)


def wait():
    def interrupted(*_):
        say("interrupted")
        os._exit(7)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(8))
    say("ready")
    while True:
        time.sleep(1)


def main(what, *arguments):
    match what:
        case "calls":
            asyncio.run(speak(lambda http: calls(http, int(arguments[0]))))
        case "session":
            log = asyncio.run(speak(lambda http: session(http, int(arguments[0]))))
            Path(os.environ["FAKE_LOG"]).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in log))
        case "get":
            asyncio.run(speak(lambda http: get(http, arguments[0])))
        case "tty":
            say(" ".join(str(os.isatty(stream)) for stream in (0, 1, 2)))
        case "wait":
            wait()
        case "stop":
            say("stopping")
            os.kill(os.getpid(), signal.SIGSTOP)
            say("continued")
        case "exit":
            sys.exit(int(arguments[0]))
        case "kill":
            os.kill(os.getpid(), int(arguments[0]))
        case _:
            sys.exit(f"no such thing: {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
