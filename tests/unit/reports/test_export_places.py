"""Where calls are on a timeline."""

from aitrace.testing import make_call_result
from reports.export.places import Places, Track


def call(index, start_ns, end_ns, **fields):
    times = {"due_ns": start_ns, "dispatched_ns": start_ns, "sent_ns": start_ns, "end_ns": end_ns}
    return make_call_result(index, **{"gap_ns": None, "call": index, **times, **fields})


def test_trees_have_processes_and_sessions_tracks_in_order_of_their_start():
    places = Places(
        [
            call(0, 50, 60, session=3, root=3),
            call(1, 20, 30, session=1),
            call(2, 0, 10),
            call(3, 70, 80, session=1),
        ]
    )
    shown = [(track.process, track.thread, track.root, track.session) for track in places.tracks]
    assert shown == [(1, 1, 0, 0), (1, 2, 0, 1), (3, 3, 3, 3)]


def test_the_same_tree_played_twice_is_two():
    places = Places([call(0, 0, 10), call(1, 5, 10, call=0, instance=2)])
    assert [track.process for track in places.tracks] == [1, 2]
    assert places.of_call(1, 0).start_ns == 0
    assert places.of_call(2, 0).start_ns == 5


def test_calls_of_a_session_that_overlap_are_on_tracks_of_their_own():
    places = Places([call(0, 0, 10), call(1, 5, 20), call(2, 10, 15), call(3, 16, 18)])
    assert [places.of_line(line).track.lane for line in range(4)] == [0, 1, 0, 0]
    assert places.tracks[1] == Track(process=1, thread=2, instance=1, root=0, session=0, lane=1)


def test_a_gap_begins_where_nothing_else_of_its_track_is():
    places = Places([call(0, 10, 20), call(1, 50, 60, gap_ns=30), call(2, 70, 80, gap_ns=40)])
    assert [places.of_line(line).gap_start_ns for line in range(3)] == [10, 20, 60]


def test_a_gap_never_begins_before_the_run():
    assert Places([call(0, 10, 20, gap_ns=99)]).of_line(0).gap_start_ns == 0


def test_calls_that_never_began_have_no_place():
    places = Places([call(0, 0, 10), call(1, 5, 6, unsent="duration")])
    assert places.of_line(1) is None
    assert [places.of_call(1, 1), places.of_call(1, 7), places.of_call(9, 0)] == [None, None, None]


def test_a_call_that_only_primed_is_no_end_of_an_arrow():
    places = Places([call(0, 0, 10, call=4, phase="prime"), call(7, 20, 30, call=4)])
    assert places.of_call(1, 4).start_ns == 20
    assert places.index_of_call(1, 4) == 7
    assert places.index_of_call(1, 3) is None


def test_a_run_without_calls_has_no_tracks():
    assert Places([]).tracks == ()


def test_a_line_that_a_run_has_written_since_has_no_place():
    assert Places([call(0, 0, 10)]).of_line(1) is None
