import math

import pytest

from aitrace.errors import UsageError
from replayer.options import LoadOptions, gap_caps_from_specs, json_from_options
from replayer.pacing import arrival_from_spec


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
