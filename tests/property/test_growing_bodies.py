"""A body that was begun with what an earlier one had is the same as one that was written anew."""

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.identity import BlockIdentity
from aitrace.protocols import PROTOCOLS
from aitrace.testing import TraceBuilder
from replayer.planning.options import LoadOptions
from replayer.planning.plan import build_plan
from replayer.requests import MAX_CACHE_BYTES, RequestBuilder
from replayer.text import TextSource

SEGMENTS = st.lists(
    st.sampled_from(
        [
            (3, "user", "text"),
            (4, "assistant", "text"),
            (0, "assistant", "text"),
            (2, "assistant", "tool_use"),
            (2, "assistant", "tool_use"),
            (5, "tool", "tool_result"),
            (5, "tool", "tool_result"),
            (2, "system", "system"),
            (6, "system", "tool_definition"),
        ]
    ),
    min_size=1,
    max_size=5,
)
CALLS = st.lists(
    st.tuples(
        SEGMENTS,
        st.integers(0, 5),  # which earlier call is continued, counted back; 0 for a new history
        st.integers(0, 9),  # segments dropped at its end
        st.sampled_from(["same", "same", "same", "child"]),
    ),
    min_size=2,
    max_size=12,
)


def trace_of(calls):
    """One tree: each call goes on from an earlier one, or starts anew, in the session of that one or in a child."""
    builder = TraceBuilder()
    main = builder.session()
    start = [builder.segment(4, "system", "tool_definition"), builder.segment(3, "system", "system")]
    done = [(builder.call(main, [*start, builder.segment(2)]), main, 3)]
    for segments, back, dropped, where in calls:
        base, session, size = done[-min(back or 1, len(done))]
        if where == "child":
            session = builder.session(parent=session)
        added = [builder.segment(*segment) for segment in segments]
        keep = 0 if back == 0 else max(1, size - dropped * (dropped > 6))
        if keep:
            call = builder.call(session, added, base=base, keep=keep, after=[base])
        else:
            call = builder.call(session, added, base=None, after=[base])
        done.append((call, session, keep + len(added)))
    return builder.trace()


@settings(max_examples=150, deadline=None)
@given(
    calls=CALLS,
    protocol=st.sampled_from(sorted(PROTOCOLS)),
    way=st.sampled_from([("user", "recorded"), ("native", "recorded"), ("user", "live")]),
    cache=st.sampled_from([MAX_CACHE_BYTES, 2000]),
)
def test_a_body_is_the_same_whether_it_was_begun_or_written_anew(calls, protocol, way, cache):
    trace = trace_of(calls)
    tool_messages, history = way
    load = LoadOptions(trees=2, tool_messages=tool_messages, history=history)
    growing, plain = (
        RequestBuilder(
            trace,
            BlockIdentity(trace),
            TextSource(0, 1.0),
            load,
            PROTOCOLS[protocol],
            max_cache_bytes=size,
        )
        for size in (cache, 0)
    )
    for planned in build_plan(trace, load).every_call():
        bodies = [builder.build(planned, model="m", output_forced=True) for builder in (growing, plain)]
        assert orjson.loads(bodies[0])["model"] == "m"
        assert bodies[0] == bodies[1]
        for builder in (growing, plain):
            builder.note_answer(planned.index, f"answer {planned.index}" * (planned.index % 3))
    assert growing.counts == plain.counts
