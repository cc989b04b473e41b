"""What of a trace goes into exports."""

from aitrace.testing import TraceBuilder, make_call
from reports.export.links import CallLink, SessionLink, links_from_lines


def links_of(trace, *more):
    return links_from_lines([trace.header, *trace.sessions, *trace.segments, *trace.calls, *more])


def test_sessions_keep_parent_and_agent():
    builder = TraceBuilder()
    main = builder.session()
    builder.session(parent=main, agent="Explore")
    assert links_of(builder.trace()).sessions == {
        0: SessionLink(parent=None, agent=None),
        1: SessionLink(parent=0, agent="Explore"),
    }


def test_calls_keep_what_they_waited_for():
    builder = TraceBuilder()
    main = builder.session()
    first = builder.call(main)
    builder.call(main)
    links = links_of(builder.trace())
    assert links.after == {1: (CallLink(call=first, relation="sequence", trigger="completion"),)}


def test_planned_calls_leave_out_what_a_replay_does_not_send():
    builder = TraceBuilder()
    builder.call(builder.session())
    counted, again = make_call(1, call_class="count_tokens"), make_call(2, retry_of=0)
    assert links_of(builder.trace(), counted, again).planned_calls == {0: 1}
