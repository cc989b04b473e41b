import errno

import pytest

from recorders.tally import Tally, reason_from_error, reason_from_status


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"[Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', 9)", "connection refused"),
        (
            f"Multiple exceptions: [Errno 999] x, [Errno {errno.ECONNREFUSED}] Connect call failed",
            "connection refused",
        ),
        (f"[Errno {errno.EHOSTUNREACH}] No route", "host unreachable"),
        ("[Errno -2] Name or service not known", "name cannot be resolved"),
        ("[Errno -3] Temporary failure in name resolution", "name cannot be resolved"),
        (
            "Certificate verify failed: unable to get local issuer certificate",
            "certificate not trusted (--upstream-ca FILE)",
        ),
        (
            "Certificate verify failed: self-signed certificate",
            "certificate not trusted (--upstream-ca FILE)",
        ),
        ("Certificate verify failed: hostname mismatch", "certificate not trusted: hostname mismatch"),
        ("The remote server does not speak TLS.", "speaks no TLS (http:// instead of https://)"),
        ("server closed connection", "closed the connection without an answer"),
        ("something else\nand more", "something else"),
        ("x" * 200, "x" * 120),
        ("[Errno 999] odd", "[Errno 999] odd"),
    ],
)
def test_what_the_proxy_says_becomes_a_reason_with_the_place(text, reason):
    assert reason_from_error(text, "host", 9) == f"host:9: {reason}"


def test_an_address_of_ipv6_is_in_brackets():
    assert reason_from_error("x", "::1", 9) == "[::1]:9: x"


@pytest.mark.parametrize(
    ("status", "reason"), [(200, None), (101, None), (399, None), (400, "400 from /a"), (529, "529 from /a")]
)
def test_a_status_of_an_error_is_a_reason_with_the_path_and_without_the_query(status, reason):
    assert reason_from_status(status, "/a?key=secret") == reason


def test_requests_and_failures_are_counted_apart_by_route():
    tally = Tally()
    for is_recorded in (True, True, False):
        tally.count_request(is_recorded=is_recorded)
        tally.count_failure("x", is_recorded=is_recorded)
    assert (tally.requests, tally.recorded) == (3, 2)
    assert (tally.failures["x"], tally.other_failures["x"]) == (2, 1)
