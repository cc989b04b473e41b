import numpy as np

from reports.series import Line, level_over_time, thinned


def level(*intervals):
    starts, ends = zip(*intervals, strict=True) if intervals else ((), ())
    line = level_over_time(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), name="x")
    return dict(zip(line.at_s.tolist(), line.values.tolist(), strict=True))


def test_the_level_counts_what_has_begun_and_not_ended():
    s = 10**9
    assert level((0, 3 * s), (s, 2 * s)) == {0.0: 1, 1.0: 2, 2.0: 1, 3.0: 0}


def test_an_end_and_a_start_at_one_moment_cancel_out():
    assert level((0, 10**9), (10**9, 2 * 10**9)) == {0.0: 1, 1.0: 1, 2.0: 0}


def test_no_intervals_have_no_level():
    assert level() == {}


def test_thinning_keeps_the_peaks_and_the_first_moment():
    values = np.ones(1000)
    values[437] = 9
    line = thinned(Line(name="x", at_s=np.arange(1000.0), values=values), points=10)
    assert line.at_s.size == 10
    assert (line.at_s[0], line.values.max()) == (0.0, 9.0)


def test_a_short_line_is_left_alone():
    line = Line(name="x", at_s=np.arange(5.0), values=np.arange(5.0))
    assert thinned(line, points=5) is line
