"""The recorder in somebody's own mitmproxy."""

import logging
from types import SimpleNamespace

import pytest
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import OptionsError
from mitmproxy.options import Options
from mitmproxy.proxy import server

from recorders.notes import WriterReport
from recorders.plain import add_options, log_last_words, options_from, prepare_proxy
from recorders.tally import Tally

REPORT = {
    "path": "x.aitrace", "calls": 2, "sessions": 1, "trees": 1, "dropped_calls": 0, "unrecorded_calls": 0,
    "trace_bytes": 10, "traffic_bytes": 1000, "leaks": (), "error": None,
}  # fmt: skip


@pytest.fixture
def proxy():
    options = Options()
    add_options(Loader(SimpleNamespace(options=options)))
    options.add_option("connection_strategy", str, "eager", "")
    return options


@pytest.mark.parametrize(
    ("modes", "capture", "expected"),
    [
        (["regular"], "auto", "forward"),
        (["reverse:http://host"], "auto", "reverse"),
        (["reverse:http://host", "regular"], "auto", "forward"),
        (["regular"], "reverse", "reverse"),
    ],
)
def test_the_proxys_mode_tells_how_clients_reach_the_endpoint(proxy, tmp_path, modes, capture, expected):
    proxy.update(aitrace_out=str(tmp_path / "x"), mode=modes, aitrace_capture=capture)
    options = options_from(proxy)
    assert (options.capture, options.privacy, options.path) == (expected, "hash", str(tmp_path / "x"))


def test_a_recording_needs_a_file(proxy):
    with pytest.raises(OptionsError, match=r"add `--set aitrace_out=FILE\.aitrace`"):
        options_from(proxy)


def test_a_file_that_exists_is_not_replaced(proxy, tmp_path):
    proxy.update(aitrace_out=str(tmp_path))
    with pytest.raises(OptionsError, match="exists, name a file that does not"):
        options_from(proxy)


def test_what_an_earlier_recording_left_is_not_replaced(proxy, tmp_path):
    (tmp_path / "x.partial").touch()
    proxy.update(aitrace_out=str(tmp_path / "x"))
    with pytest.raises(OptionsError, match=r"x\.partial' exists"):
        options_from(proxy)


def test_standard_output_is_no_file(proxy):
    proxy.update(aitrace_out="-")
    with pytest.raises(OptionsError, match="name a file"):
        options_from(proxy)


def test_a_file_needs_its_directory(proxy, tmp_path):
    proxy.update(aitrace_out=str(tmp_path / "none" / "x"))
    with pytest.raises(OptionsError, match="is no folder that you may write to"):
        options_from(proxy)


@pytest.mark.parametrize("name", ["aitrace_privacy", "aitrace_capture"])
def test_an_unknown_choice_is_refused(proxy, tmp_path, name):
    proxy.update(**{"aitrace_out": str(tmp_path / "x"), name: "some"})
    with pytest.raises(OptionsError, match=f"{name}: 'some' is none of"):
        options_from(proxy)


def test_the_proxy_connects_late_and_stays_patient(proxy):
    proxy.add_option("tcp_timeout", int, 600, "")
    prepare_proxy(proxy)
    assert (proxy.connection_strategy, proxy.tcp_timeout) == ("lazy", 24 * 3600)


def test_a_limit_of_the_user_stays(proxy):
    proxy.add_option("tcp_timeout", int, 600, "")
    proxy.update(tcp_timeout=7)
    prepare_proxy(proxy)
    assert proxy.tcp_timeout == 7


@pytest.mark.skipif("tcp_timeout" in Options(), reason="since mitmproxy 12.2.1 it is an option")
def test_a_proxy_without_that_option_is_patient_too(proxy, monkeypatch):
    monkeypatch.setitem(vars(server), "TCP_TIMEOUT", 600)
    prepare_proxy(proxy)
    assert server.TCP_TIMEOUT == 24 * 3600


def words(caplog, complaints=(), **changes):
    caplog.set_level(logging.INFO)
    tally = Tally()
    tally.count_failure(changes.pop("reason", "x"), is_recorded=True)
    log_last_words(WriterReport(**{**REPORT, **changes}), "reverse", tally, complaints)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_good_recording_ends_with_two_lines(caplog):
    (level, first), (_, last) = words(caplog)
    assert (level, last) == ("INFO", "aitrace: next: aitrace inspect x.aitrace")
    assert first.startswith("aitrace: recorded 2 calls of 1 session")


def test_a_loss_is_said_as_an_error(caplog):
    said = words(caplog, error="disk full", complaints=("OSError: 28",))
    assert ("ERROR", "aitrace: the trace is not whole: disk full") in said
    assert said[-1] == ("ERROR", "aitrace: OSError: 28")


def test_a_leak_is_said_as_an_error(caplog):
    assert words(caplog, leaks=("line 3: a key",))[0][0] == "ERROR"


def test_an_empty_recording_says_so(caplog):
    text = "aitrace: no call was recorded: nothing came through the recorder"
    assert words(caplog, calls=0) == [("ERROR", text)]


def test_a_certificate_that_is_not_trusted_is_said_with_the_proxys_own_option(caplog):
    said = words(caplog, failures={"connect": 2}, reason="h:1: certificate not trusted (--upstream-ca FILE)")
    assert said[0][1].endswith("certificate not trusted (--set ssl_verify_upstream_trusted_ca=FILE)")
