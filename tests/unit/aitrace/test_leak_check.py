"""Leaks in a file: which known strings count, and in which lines."""

import pytest

from aitrace.leak_check import leaks_in_file, raw_lines
from aitrace.schema import Call, CallTimes, Header, Prompt, Session, ToolCall
from aitrace.store import TraceWriter


@pytest.fixture
def path(tmp_path):
    def written(*, model="gpt-5.5", tool=None, agent=None, attribution=None, unknown=()):
        path = tmp_path / "x.aitrace"
        with TraceWriter(path) as writer:
            header = Header(
                producer="aitrace 0 record", unit="bytes", block_size=256, attribution=attribution
            )
            writer.write(header if not unknown else Header(**{**_fields(header), "unknown": unknown}))
            writer.write(Session(id=0, root=0, harness="opencode", agent=agent))
            tools = None if tool is None else (ToolCall(name=tool),)
            times = CallTimes(request_ns=0)
            writer.write(Call(id=0, session=0, model=model, prompt=Prompt(), tool_calls=tools, times=times))
        return path

    return written


def _fields(header):
    return {"producer": header.producer, "unit": header.unit, "block_size": header.block_size}


def test_a_clean_file_holds_nothing(path):
    assert leaks_in_file(path(attribution="jane@example.org, CC-BY-4.0"), {"prompt-1234567"}) == ()


def test_a_known_string_is_found_and_not_said(path):
    found = leaks_in_file(path(tool="prompt-1234567"), {"prompt-1234567"})
    assert any("a known string of 14 bytes" in leak for leak in found)
    assert not any("prompt" in leak for leak in found)


def test_what_looks_like_text_is_a_leak_too(path):
    found = leaks_in_file(path(agent="acme payroll"), ())
    assert found == ("line 2: what might be text, in session.agent",)


@pytest.mark.parametrize("name", ["acme-coder", "acme-coder-7b"])
def test_an_agent_may_be_named_after_a_model(path, name):
    assert leaks_in_file(path(model="acme-coder-7b"), {name}) == ()


def test_known_strings_are_not_looked_for_in_what_the_header_says_of_itself(path):
    sentence = "HTTP status of answers, whether they were streamed, and connections"
    assert leaks_in_file(path(unknown=(sentence,)), {"connections"}) == ()


def test_a_secret_in_the_header_is_found(path):
    secret = "-".join(("sk", "ant", "0123456789abcdef" * 2))
    assert "line 1: an API key of 39 bytes" in leaks_in_file(path(attribution=secret), ())


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    assert (leaks_in_file(tmp_path / "none", {"abcdefg"}), list(raw_lines(tmp_path / "none"))) == ((), [])


def test_there_is_an_end_to_findings(tmp_path):
    path = tmp_path / "x.aitrace"
    with TraceWriter(path) as writer:
        writer.write(Header(producer="aitrace 0 record", unit="bytes", block_size=256))
        for number in range(1500):
            writer.write(Session(id=number, root=number, agent="acme payroll"))
    assert len(leaks_in_file(path, ())) == 1000
