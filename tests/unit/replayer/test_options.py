import math

import pytest

from aitrace.errors import UsageError
from replayer.identity.identity_names import header_template
from replayer.planning.mid_start import StartRange
from replayer.planning.options import (
    LoadOptions,
    WarmUp,
    gap_caps_from_specs,
    json_from_options,
    warm_up_from_text,
)
from replayer.planning.pacing import arrival_from_spec


def test_a_cap_for_all_leaves_named_causes_their_own():
    caps_ns = gap_caps_from_specs(["all=60s", "user=30s"])
    assert (
        dict.fromkeys(("tool", "harness", "backoff", "unknown"), 60000000000) | {"user": 30_000_000_000}
        == caps_ns
    )


def test_a_cause_that_is_not_named_has_no_cap():
    assert gap_caps_from_specs(["tool=0s"]) == {"tool": 0}


def test_a_cap_without_a_unit_is_seconds():
    assert gap_caps_from_specs(["user=5"]) == gap_caps_from_specs(["user=5s"]) == {"user": 5_000_000_000}


@pytest.mark.parametrize("spec", ["user", "users=30s", "=30s", ""])
def test_a_cap_that_cannot_be_read_is_refused(spec):
    with pytest.raises(UsageError, match="cannot be read"):
        gap_caps_from_specs([spec])


@pytest.mark.parametrize("spec", ["user=", "user=-1s", "user=30s=1s"])
def test_a_cap_without_a_duration_is_refused(spec):
    with pytest.raises(UsageError, match="is not a duration"):
        gap_caps_from_specs([spec])


def test_a_cause_named_twice_is_refused():
    with pytest.raises(UsageError, match="'user' a second time"):
        gap_caps_from_specs(["user=30s", "user=40s"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"time_scale": -0.1}, "time scale is -0.1"),
        ({"time_scale": math.nan}, "time scale is nan"),
        ({"time_scale": math.inf}, "time scale is inf"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"trees": 0}, "number of trees is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"gap_caps_ns": {"user": -1}}, "gap caps are"),
        ({"concurrency": 2, "arrival": arrival_from_spec("together")}, "exclude each other"),
        ({"history": "live", "tool_messages": "native"}, "live history"),
        ({"duration_ns": 0}, "duration is 0"),
        ({"context_tokens": 0}, "context is 0"),
        ({"warm_up": WarmUp(text="0", length_ns=0)}, "the warm-up is empty"),
        ({"warm_up": WarmUp(text="0 trees", trees=0)}, "the warm-up is empty"),
        ({"warm_up": WarmUp(text="5", length_ns=5), "duration_ns": 5}, "the whole duration"),
        ({"warm_up": WarmUp(text="5 trees", trees=5), "trees": 5}, "takes all 5 trees"),
        ({"prime": True}, "nothing to prime"),
        ({"schedule": "absolute", "history": "live"}, "absolute schedule cannot have live history"),
        ({"schedule": "absolute", "gap_caps_ns": {"user": 1}}, "no gaps to cap"),
        (
            {"schedule": "absolute", "prime": True, "start_at": StartRange(low=0, high=1)},
            "no call that waits",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(fields, said):
    with pytest.raises(UsageError, match=said):
        LoadOptions(**fields)


def test_a_time_scale_of_zero_is_allowed():
    assert LoadOptions(time_scale=0).time_scale == 0


def test_a_run_keeps_every_option():
    kept = json_from_options(LoadOptions(arrival=arrival_from_spec("fixed:2/s"), gap_caps_ns={"user": 5}))
    assert set(LoadOptions.__dataclass_fields__) == set(kept)
    assert (kept["arrival"], kept["gap_caps_ns"]) == ("fixed:2/s", {"user": 5})


def test_lanes_leave_no_arrival_in_the_run():
    assert json_from_options(LoadOptions(concurrency=3))["arrival"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", WarmUp(text="5m", length_ns=300_000_000_000)),
        ("20", WarmUp(text="20", length_ns=20_000_000_000)),
        ("20 trees", WarmUp(text="20 trees", trees=20)),
        ("1tree", WarmUp(text="1tree", trees=1)),
    ],
)
def test_a_warm_up_is_a_time_or_a_number_of_trees(text, expected):
    assert warm_up_from_text(text) == expected


@pytest.mark.parametrize("text", ["20 calls", "-5m", "trees", ""])
def test_a_warm_up_that_is_neither_is_refused(text):
    with pytest.raises(UsageError, match="a time or a number of trees"):
        warm_up_from_text(text)


def test_a_warm_up_that_leaves_something_is_accepted():
    LoadOptions(warm_up=WarmUp(text="4", length_ns=4), duration_ns=5)
    LoadOptions(warm_up=WarmUp(text="4 trees", trees=4), trees=5)


def test_an_absolute_schedule_of_recorded_history_is_accepted():
    assert json_from_options(LoadOptions(schedule="absolute"))["schedule"] == "absolute"


def test_a_policy_is_kept_only_with_a_window():
    assert json_from_options(LoadOptions())["over_context"] is None
    assert json_from_options(LoadOptions(context_tokens=9))["over_context"] == "stop"


def test_a_run_keeps_the_headers_that_name_ids_and_of_others_the_names():
    templates = (header_template("X-A: {root}"), header_template("X-B: secret-word"))
    assert json_from_options(LoadOptions(headers=templates))["headers"] == ["X-A: {root}", "X-B: (not kept)"]
