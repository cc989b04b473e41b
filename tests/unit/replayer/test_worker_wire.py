"""Messages between the processes of a run come out as they went in."""

import pytest

from aitrace.results import RunEnd
from aitrace.testing import make_call_result
from replayer.scheduler import Progress
from replayer.workers.worker_wire import (
    STOP,
    Done,
    Ready,
    Sending,
    State,
    line_from_message,
    message_from_line,
    play_line,
    start_from_line,
    sum_of,
)

PROGRESS = Progress(**dict.fromkeys(Progress.__dataclass_fields__, 2))
END = RunEnd(
    ended_ns=5, interrupted=False, sent_calls=2, unsent_calls=0, cpu_ns=7, loop_lag_p99_ns=None, late_bodies=1
)


@pytest.mark.parametrize(
    "message",
    [
        Ready(),
        Sending(number=17),
        State(progress=PROGRESS, in_backoff=0, earlier_tries={}, left_ns=None),
        State(progress=PROGRESS, in_backoff=2, earlier_tries={"refused": 3}, left_ns=9),
        Done(end=END, adjustments={"opened_with_user": 3}),
        make_call_result(3, error="cut", error_text="a\nb"),
    ],
)
def test_a_message_is_one_line_that_states_it(message):
    line = line_from_message(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert message_from_line(line) == message


def test_what_is_no_message_is_refused():
    with pytest.raises(ValueError, match="no message"):
        message_from_line(b"Traceback\n")


def test_orders_are_told_apart():
    assert start_from_line(play_line(123).strip()) == 123
    assert start_from_line(STOP.strip()) is None


def test_counts_add_up():
    assert sum_of([PROGRESS, PROGRESS, PROGRESS]).calls_sent == 6
    assert sum_of([]).calls_sent == 0
