from reports.testing import make_up_run


def test_a_made_up_run_repeats_itself_by_seed():
    assert make_up_run(seed=3) == make_up_run(seed=3)
    assert make_up_run(seed=3) != make_up_run(seed=4)


def test_no_call_is_due_before_what_it_waits_for_has_ended():
    run = make_up_run(trees=4, calls=10)
    ends = {call.call: call.end_ns for call in run.calls}
    waits = [(call, dependency) for call in run.calls for dependency in run.trace.calls[call.call].after]
    assert len(waits) > 20
    assert [call.index for call, wait in waits if call.due_ns < ends[wait.call]] == []


def test_what_waits_for_a_refused_call_is_not_sent():
    run = make_up_run(refused_ratio=0.2)
    failed = {call.call for call in run.calls if call.error or call.unsent}
    waiting = {
        call.call for call in run.calls if {wait.call for wait in run.trace.calls[call.call].after} & failed
    }
    assert {call.call for call in run.calls if call.unsent} == waiting != set()


def test_the_header_and_the_end_count_what_is_there():
    run = make_up_run(refused_ratio=0.1)
    assert run.header.planned_calls == len(run.calls) == run.end.sent_calls + run.end.unsent_calls
    assert run.end.ended_ns == max(call.end_ns for call in run.calls if call.end_ns)
