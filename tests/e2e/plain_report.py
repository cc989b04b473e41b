"""The numbers of a report once more, in plain Python from the lines of a run's files: the other side of a comparison.

Nothing here comes from `reports/`. Lists of dictionaries, loops and sorting take the place of its frames; the definitions
are those of docs/metrics.md. The trace is read with the program's own reader.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import orjson

from aitrace.store import read_trace

Line = dict[str, Any]
MS, S = 1e6, 1e9
TURNS = (0, 1, 2, 5, 10, 20, 50)
GAPS_S = (1, 10, 60, 300)
PROMPTS = (0, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
TREES = (1, 3, 10, 30, 100, 300)
BINS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0
)  # fmt: skip
OVERLOAD = re.compile(r"\((429|503|529)\)$|'code': (429|503|529)\b|overload", re.IGNORECASE)
PARTS = (
    "prefill",
    "decode",
    "tool_gap",
    "user_gap",
    "other_gap",
    "agents",
    "backoff",
    "failed_tries",
    "lateness",
)
COUNTERS = ("prefix_query_tokens", "prefix_hit_tokens", "preemptions", "rejections")


def read_lines(path: Path) -> list[Line]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def quantile(values: Iterable[float], ratio: float, least: int = 1) -> float | None:
    """Inverted CDF; None with fewer values than `least`."""
    ordered = sorted(values)
    return (
        ordered[max(0, math.ceil(round(ratio * len(ordered), 9)) - 1)]
        if len(ordered) >= max(1, least)
        else None
    )


def spread(values: Sequence[float]) -> Line:
    return {
        "n": len(values),
        "p50": quantile(values, 0.5),
        "p90": quantile(values, 0.9, 20),
        "p95": quantile(values, 0.95, 40),
        "p99": quantile(values, 0.99, 200),
        "max": max(values, default=None),
    }


def ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def bucket(value: float, edges: Sequence[float]) -> int:
    return max(place for place, edge in enumerate(edges) if value >= edge)


def wilson(hits: int, count: int) -> tuple[float, float]:
    z, share = 1.959964, hits / count
    middle, reach = (
        share + z * z / (2 * count),
        z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)),
    )
    whole = 1 + z * z / count
    return max(0.0, (middle - reach) / whole), min(1.0, (middle + reach) / whole)


def jain(values: Sequence[float]) -> float | None:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


class PlainReport:
    """A run directory, and what is to be said of it."""

    def __init__(self, directory: Path) -> None:
        lines = orjson.loads((directory / "run.json").read_bytes())
        self.run, self.end = lines["header"], lines["end"]
        self.trace = read_trace(directory / "trace.aitrace")
        self.every = sorted(read_lines(directory / "calls.jsonl"), key=lambda call: call["index"])
        for call in self.every:
            self._complete_line(call)
        self.scrapes = sorted(read_lines(directory / "scrapes.jsonl"), key=lambda scrape: scrape["at_ns"])
        self._find_first_calls()
        self.calls = [call for call in self.every if call["phase"] == "measured"]
        self.sent = [call for call in self.calls if call["sent_ns"] is not None]
        self.complete = [call for call in self.calls if call["is_complete"]]
        self.scale = self.run["time_scale"]

    def _complete_line(self, call: Line) -> None:
        """Fields that a line leaves out are None; times of the trace, tries and what became of the call are added."""
        for name in (
            "sent_ns", "due_ns", "end_ns", "headers_ns", "first_token_ns", "last_token_ns", "first_visible_ns", "planned_ns",
            "gap_ns", "gap_cause", "error", "error_text", "unsent", "status", "events", "longest_stall_ns", "new_connection",
            "dispatched_ns", "connected_ns", "uploaded_ns", "retry_due_ns", "retry_after_ns", "identity_fault",
        ):  # fmt: skip
            call.setdefault(name, None)
        call.setdefault("phase", "measured")
        usage = call.get("usage", {})
        call["input"], call["output"] = usage.get("input_tokens"), usage.get("output_tokens")
        call["cached"], call["reasoning"] = usage.get("cache_read_tokens"), usage.get("reasoning_tokens")
        call["is_complete"] = (
            call["sent_ns"] is not None
            and call["error"] is None
            and call["end_ns"] is not None
            and call["unsent"] is None
        )
        call["is_fatal"] = call["error"] not in (None, "client_abort") and call["call_class"] != "auxiliary"
        recorded = self.trace.calls[call["call"]]
        call["recorded"] = (recorded.times.request_ns, recorded.times.end_ns)
        call["tries"] = (
            [self._try(one, call) for one in (*call.get("attempts", ()), call)]
            if call["unsent"] is None
            else []
        )
        for one in call["tries"][:-1]:
            one["wait_ns"] = one["line"]["wait_ns"]
        if len(call["tries"]) > 1 and call["sent_ns"] is None and call["end_ns"] is not None:
            last = call["tries"][-2]
            last["wait_ns"] = min(last["wait_ns"], call["end_ns"] - last["end_ns"])

    def _try(self, line: Line, call: Line) -> Line:
        names = ("sent_ns", "headers_ns", "first_token_ns", "end_ns", "status")
        one = {name: line.get(name) for name in names}
        return one | {
            "line": line,
            "call": call,
            "outcome": self._outcome(line),
            "wait_ns": 0,
            "is_last": line is call,
        }

    def _outcome(self, line: Line) -> str:
        error = line.get("error")
        if error is None:
            return "complete"
        if error == "error_event" and OVERLOAD.search(line.get("error_text") or ""):
            return "refused_in_stream"
        if error == "timeout":
            if line.get("headers_ns") is None:
                return "timeout_headers"
            return "timeout_first_token" if line.get("first_token_ns") is None else "timeout_stream"
        return "stopped" if error == "client_abort" else error

    def _find_first_calls(self) -> None:
        """Whether no call of the session had a token when the call was first sent."""
        tokens: dict[tuple[int, int], int] = {}
        for call in self.every:
            for one in call["tries"]:
                if one["first_token_ns"] is not None:
                    name = (call["instance"], call["session"])
                    tokens[name] = min(tokens.get(name, one["first_token_ns"]), one["first_token_ns"])
        for call in self.every:
            sent = [one["sent_ns"] for one in call["tries"] if one["sent_ns"] is not None]
            call["first_sent_ns"] = min(sent, default=None)
            token_ns = tokens.get((call["instance"], call["session"]))
            call["is_first"] = None if not sent else token_ns is None or token_ns >= min(sent)

    # Sessions and trees

    def _groups(self, *names: str) -> list[Line]:
        groups: dict[tuple[int, ...], list[Line]] = defaultdict(list)
        for call in self.every:
            if call["phase"] != "prime":
                groups[tuple(call[name] for name in names)].append(call)
        return [self._group(calls) for calls in groups.values()]

    def _group(self, calls: list[Line]) -> Line:
        due = [call["due_ns"] for call in calls if call["due_ns"] is not None]
        ends = [call["end_ns"] for call in calls if call["end_ns"] is not None]
        lost = any(call["is_fatal"] or call["unsent"] == "session_lost" for call in calls)
        is_cut = any(
            call["error"] == "client_abort" or call["unsent"] in ("interrupted", "duration", "worker_lost")
            for call in calls
        )
        planned = [call["planned_ns"] for call in calls]
        expected = None
        if None not in planned and max(calls, key=lambda call: call["planned_ns"])["recorded"][1] is not None:
            expected_ns = [
                call["planned_ns"] + call["recorded"][1] - call["recorded"][0]
                for call in calls
                if call["recorded"][1] is not None
            ]
            expected = (max(expected_ns) - min(planned)) / S
        recorded = None
        if max(calls, key=lambda call: call["recorded"][0])["recorded"][1] is not None:
            recorded_ends = [call["recorded"][1] for call in calls if call["recorded"][1] is not None]
            recorded = (max(recorded_ends) - min(call["recorded"][0] for call in calls)) / S
        return {
            "calls": calls,
            "is_warm": any(call["phase"] == "warm_up" for call in calls),
            "is_played": all(call["is_complete"] for call in calls),
            "is_lost": lost,
            "is_censored": is_cut and not lost,
            "from_ns": min(due, default=None),
            "until_ns": max(ends, default=None),
            "duration_s": (max(ends) - min(due)) / S if ends and due else None,
            "expected_s": expected,
            "recorded_s": recorded,
        }

    @cached_property
    def every_session(self) -> list[Line]:
        return self._groups("instance", "root", "session")

    @cached_property
    def sessions(self) -> list[Line]:
        return [group for group in self.every_session if not group["is_warm"]]

    @cached_property
    def every_tree(self) -> list[Line]:
        return self._groups("instance", "root")

    @cached_property
    def trees(self) -> list[Line]:
        return [group for group in self.every_tree if not group["is_warm"]]

    @cached_property
    def duration_s(self) -> float:
        return self.end["ended_ns"] / S

    @cached_property
    def measured_from_ns(self) -> int | None:
        if len(self.calls) == len(self.every):
            return None
        return min(call["due_ns"] for call in self.calls if call["due_ns"] is not None)

    @cached_property
    def measured_s(self) -> float:
        return self.duration_s - (self.measured_from_ns or 0) / S

    @cached_property
    def tries(self) -> list[Line]:
        """Those that were sent, of measured calls."""
        return [one for call in self.calls for one in call["tries"] if one["sent_ns"] is not None]

    # Values of calls

    def values(self, of: Callable[[Line], float | None], calls: Iterable[Line] | None = None) -> list[float]:
        found = (of(call) for call in (self.sent if calls is None else calls))
        return [value for value in found if value is not None]

    @staticmethod
    def between(start: str, end: str, unit: float = MS) -> Callable[[Line], float | None]:
        return lambda call: (
            None if call[start] is None or call[end] is None else (call[end] - call[start]) / unit
        )

    @staticmethod
    def itl_ms(call: Line) -> float | None:
        if not call["is_complete"] or call["events"] is None or (call["output"] or 0) < 2:
            return None
        if call["first_token_ns"] is None or call["last_token_ns"] is None:
            return None
        return (call["last_token_ns"] - call["first_token_ns"]) / MS / (call["output"] - 1)

    @staticmethod
    def speed(call: Line) -> float | None:
        if not call["is_complete"] or call["output"] is None or call["last_token_ns"] is None:
            return None
        took_ns = call["last_token_ns"] - call["sent_ns"]
        return call["output"] / (took_ns / S) if took_ns > 0 else None

    @staticmethod
    def late_ms(call: Line) -> float:
        return (
            call["sent_ns"] - (call["due_ns"] if call["retry_due_ns"] is None else call["retry_due_ns"])
        ) / MS

    def client_late_ms(self, call: Line) -> float:
        opened = call["new_connection"] and call["connected_ns"] is not None
        return self.late_ms(call) - ((call["connected_ns"] - call["dispatched_ns"]) / MS if opened else 0.0)

    @cached_property
    def measures(self) -> dict[str, Callable[[Line], float | None]]:
        return {
            "ttft_service_ms": self.between("sent_ns", "first_token_ns"),
            "ttft_user_ms": self.between("due_ns", "first_token_ns"),
            "headers_ms": self.between("sent_ns", "headers_ns"),
            "itl_ms": self.itl_ms,
            "longest_stall_ms": lambda call: (
                None if call["longest_stall_ns"] is None else call["longest_stall_ns"] / MS
            ),
            "output_speed_tokens_per_s": self.speed,
        }

    def distributions(self) -> dict[str, list[float]]:
        played = [group for group in self.sessions if group["is_played"]]
        trees = [group for group in self.trees if group["is_played"]]
        found = {name: self.values(of) for name, of in self.measures.items()}
        found |= {
            "first_visible_ms": self.values(self.between("sent_ns", "first_visible_ns")),
            "call_duration_ms": self.values(self.between("sent_ns", "end_ns"), self.complete),
            "lateness_ms": self.values(self.late_ms),
            "client_lateness_ms": self.values(self.client_late_ms),
            "connect_ms": self.values(
                self.between("dispatched_ns", "connected_ns"),
                [call for call in self.sent if call["new_connection"]],
            ),
            "upload_ms": self.values(self.between("sent_ns", "uploaded_ns")),
            "headers_to_token_ms": self.values(
                self.between("headers_ns", "first_token_ns"),
                [call for call in self.sent if call["events"] is not None],
            ),
            "tries_per_call": [
                len(list(ones)) for _, ones in groupby(self.tries, key=lambda one: one["call"]["index"])
            ],
            "session_backoff_s": self._backoffs_s(),
            "session_unloaded_s": [
                row["unloaded_s"] for row in self.unloaded if row["unloaded_s"] is not None
            ],
            "session_unloaded_slowdown_ratio": [
                row["duration_s"] / row["unloaded_s"] for row in self.unloaded if row["unloaded_s"]
            ],
            "tree_output_tokens_per_s": [
                row["speed"] for row in self.tree_speeds if row["speed"] is not None
            ],
            "gap_error_ms": [gap["error_ms"] for gap in self.gaps],
            "tree_start_error_ms": [(sent - planned) / MS for planned, sent in self._starts()],
            "behind_schedule_s": self.values(self.between("planned_ns", "due_ns", S)),
        }
        for name, groups in (("session", played), ("tree", trees)):
            for kind in ("duration", "expected", "recorded"):
                values = [group[f"{kind}_s"] for group in groups if group[f"{kind}_s"] is not None]
                found |= {f"{name}_{kind}_s": values} if (name, kind) != ("tree", "recorded") else {}
            found[f"{name}_slowdown_ratio"] = [
                group["duration_s"] / group["expected_s"]
                for group in groups
                if (group["expected_s"] or 0) > 0
            ]
        return found

    def _backoffs_s(self) -> list[float]:
        tries = [[one for call in group["calls"] for one in call["tries"]] for group in self.sessions]
        return [sum(one["wait_ns"] for one in ones) / S for ones in tries if ones]

    def _starts(self) -> list[tuple[int, int]]:
        firsts: dict[tuple[int, int], Line] = {}
        for call in self.calls:
            firsts.setdefault((call["instance"], call["root"]), call)
        return [
            (call["planned_ns"], call["first_sent_ns"])
            for call in firsts.values()
            if self.run["open_loop"] and call["turn_index"] == 0 and call["session"] == call["root"]
            and call["planned_ns"] is not None and call["first_sent_ns"] is not None
        ]  # fmt: skip

    # Gaps as planned and as played

    @cached_property
    def _by_name(self) -> dict[tuple[int, int], Line]:
        return {(call["instance"], call["call"]): call for call in self.every if call["phase"] != "prime"}

    def gap_s(self, call: Line) -> float | None:
        """The gap as played before a call."""
        if call["first_sent_ns"] is None:
            return None
        moments, is_known = [], True
        for wait in self.trace.calls[call["call"]].after:
            other, recorded = self._by_name.get((call["instance"], wait.call)), self.trace.calls[wait.call]
            ends = wait.trigger == "completion" or (
                recorded.session == call["session"] and recorded.times.end_ns is None
            )
            at_ns = None if other is None else other["end_ns" if ends else "first_sent_ns"]
            if at_ns is None:
                is_known = False
            else:
                moments.append(at_ns)
        is_absolute = self.run["options"].get("schedule") == "absolute"
        if moments and (is_known or is_absolute):
            return max(0, call["first_sent_ns"] - max(moments)) / S
        if is_absolute or call["gap_ns"] is None:
            return None
        return max(0, call["first_sent_ns"] - call["due_ns"] + call["gap_ns"]) / S

    @cached_property
    def gaps(self) -> list[Line]:
        ended = {(call["instance"], call["call"]): call["end_ns"] for call in self.every}
        found = []
        for call in self.sent:
            after = self.trace.calls[call["call"]].after
            if len(after) != 1 or after[0].trigger != "completion":
                continue
            if self.trace.calls[after[0].call].session != call["session"] or call["gap_ns"] is None:
                continue
            end_ns = ended.get((call["instance"], after[0].call))
            if end_ns is None:
                continue
            played_ns = max(0, call["first_sent_ns"] - end_ns)
            recorded_ns = max(0, after[0].gap_ns or 0) * self.scale
            found.append(
                {
                    "cause": call["gap_cause"], "recorded_s": recorded_ns / S, "planned_s": call["gap_ns"] / S,
                    "played_s": played_ns / S, "error_ms": (played_ns - call["gap_ns"]) / MS,
                    "is_capped": call["gap_ns"] + 1 < recorded_ns,
                }
            )  # fmt: skip
        return found

    # What the time of sessions went into

    @cached_property
    def parts(self) -> list[Line]:
        """One row per complete session: ns of each part, and of each call what the estimate of an idle endpoint needs."""
        return [self._parts_of(group) for group in self.sessions if group["is_played"]]

    def _parts_of(self, group: Line) -> Line:
        parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        ordered = sorted(group["calls"], key=lambda call: (call["due_ns"], call["index"]))
        moment, answers = ordered[0]["due_ns"], []
        for call in ordered:
            idle = max(0, call["due_ns"] - moment)
            waits_for_agents = any(
                self.trace.calls[wait.call].session != call["session"]
                for wait in self.trace.calls[call["call"]].after
            )
            gap = min(idle, call["gap_ns"] or 0) if waits_for_agents else idle
            cause = call["gap_cause"] if call["gap_cause"] in ("tool", "user") else "other"
            parts[f"{cause}_gap"] += gap
            parts["agents"] += idle - gap
            first = call["end_ns"] if call["first_token_ns"] is None else call["first_token_ns"]
            head = max(0, call["sent_ns"] - max(call["due_ns"], moment))
            prefill = max(0, first - max(call["sent_ns"], moment))
            decode = max(0, call["end_ns"] - max(first, moment))
            waited = tried = 0
            for one in call["tries"][:-1]:
                again_ns = one["end_ns"] + one["wait_ns"]
                waited += max(again_ns, moment) - max(one["end_ns"], moment)
                if one["sent_ns"] is not None:
                    tried += max(one["end_ns"], moment) - max(one["sent_ns"], moment)
            parts["prefill"] += prefill
            parts["decode"] += decode
            parts["backoff"] += waited
            parts["failed_tries"] += tried
            parts["lateness"] += head - waited - tried
            answer = call["end_ns"] - call["sent_ns"]
            answers.append((call, (prefill + decode) / answer if answer else 0.0))
            moment = max(moment, call["end_ns"])
        name = group["calls"][0]
        return {"group": group, "parts": parts, "answers": answers, "tree": (name["instance"], name["root"])}

    @cached_property
    def idle(self) -> tuple[int, tuple[float, float, float] | None]:
        """How many calls had the endpoint for themselves; base and slope of their TTFT and their ITL, ms."""
        tries = [one for call in self.every for one in call["tries"] if one["sent_ns"] is not None]
        points = []
        for call in self.every:
            if (
                not call["is_complete"]
                or call["input"] is None
                or call["cached"] is None
                or self.itl_ms(call) is None
            ):
                continue
            own = call["tries"][-1]
            others = (one for one in tries if one is not own)
            if any(
                one["sent_ns"] < call["end_ns"] and (one["end_ns"] is None or one["end_ns"] > call["sent_ns"])
                for one in others
            ):
                continue
            uncached = max(0, call["input"] - call["cached"])
            points.append((uncached, (call["first_token_ns"] - call["sent_ns"]) / MS, self.itl_ms(call)))
        if len(points) < 20:
            return len(points), None
        mean_x = sum(x for x, _, _ in points) / len(points)
        mean_y = sum(y for _, y, _ in points) / len(points)
        spread_x = sum((x - mean_x) ** 2 for x, _, _ in points)
        slope = sum((x - mean_x) * (y - mean_y) for x, y, _ in points) / spread_x if spread_x else 0.0
        base = mean_y - slope * mean_x
        if slope <= 0:
            base, slope = mean_y, 0.0
        elif base < 0:
            base, slope = 0.0, sum(x * y for x, y, _ in points) / sum(x * x for x, _, _ in points)
        return len(points), (base, slope, quantile([itl for _, _, itl in points], 0.5) or 0.0)

    @cached_property
    def unloaded(self) -> list[Line]:
        speed, rows = self.idle[1], []
        for row in self.parts:
            own: float | None = sum(row["parts"][f"{cause}_gap"] for cause in ("tool", "user", "other")) / S
            for call, seen in row["answers"]:
                if speed is None or call["input"] is None or call["cached"] is None:
                    own = None
                    break
                output = max(1, call["output_tokens"] if call["output"] is None else call["output"])
                uncached = max(0, call["input"] - call["cached"])
                own += (speed[0] + speed[1] * uncached + speed[2] * (output - 1)) / 1000 * seen  # type: ignore[operator]
            rows.append(
                {"row": row, "own_s": own, "agents_s": row["parts"]["agents"] / S, "tree": row["tree"]}
            )
        for row in rows:
            agents = [
                other for other in rows
                if other["tree"] == row["tree"] and other["row"]["answers"][0][0]["session"] != row["tree"][1]
            ]  # fmt: skip
            told = [other for other in agents if other["own_s"] is not None]
            taken = sum(other["row"]["group"]["duration_s"] - other["agents_s"] for other in told)
            shrinks = sum(other["own_s"] for other in told) / taken if taken > 0 else 1.0
            row["duration_s"] = row["row"]["group"]["duration_s"]
            row["unloaded_s"] = None
            if row["own_s"] is not None and (told or not agents or not row["agents_s"]):
                row["unloaded_s"] = row["own_s"] + row["agents_s"] * shrinks
        return rows

    @cached_property
    def tree_speeds(self) -> list[Line]:
        rows = []
        for group in self.trees:
            if group["is_played"]:
                took_s = sum(call["end_ns"] - call["due_ns"] for call in group["calls"]) / S
                outputs = [call["output"] for call in group["calls"]]
                speed = None if None in outputs or not took_s else sum(outputs) / took_s
                slowdown = (
                    group["duration_s"] / group["expected_s"] if (group["expected_s"] or 0) > 0 else None
                )
                rows.append({"calls": len(group["calls"]), "speed": speed, "slowdown": slowdown})
        return rows

    # Levels over time

    def _level(self, spans: Iterable[tuple[int, int]]) -> list[tuple[float, float, int]]:
        """Steps of how many of the spans go on: from, until, number."""
        changes: dict[int, int] = defaultdict(int)
        for start, end in spans:
            changes[start] += 1
            changes[end] -= 1
        steps, number = [], 0
        for at, then in pairwise(sorted(changes)):
            number += changes[at]
            steps.append((at / S, then / S, number))
        return steps

    @cached_property
    def in_flight(self) -> list[tuple[float, float, int]]:
        last = round(self.duration_s * S)
        return self._level(
            (call["sent_ns"], last if call["end_ns"] is None else call["end_ns"])
            for call in self.every
            if call["sent_ns"] is not None
        )

    @cached_property
    def active(self) -> list[tuple[float, float, int]]:
        begun = (
            group
            for group in self.every_session
            if group["from_ns"] is not None and group["until_ns"] is not None
        )
        return self._level((group["from_ns"], group["until_ns"]) for group in begun)

    @cached_property
    def steady(self) -> tuple[float, float, int]:
        """The time near one number with most session time; of equal ones that whose number was held for longest."""
        held: dict[int, float] = defaultdict(float)
        for start, end, number in self.active:
            held[number] += end - start
        best, most = (0.0, 0.0, 0), 0.0
        for level in sorted((level for level in held if level), key=lambda level: (-held[level], level)):
            near = [
                step for step in self.active if step[2] >= 1 and abs(step[2] - level) <= max(1.0, 0.1 * level)
            ]
            runs: list[list[tuple[float, float, int]]] = []
            for step in near:
                if runs and runs[-1][-1][1] == step[0]:
                    runs[-1].append(step)
                else:
                    runs.append([step])
            for run in runs:
                spent = sum(number * (end - start) for start, end, number in run)
                if spent > most + 1e-9:
                    best, most = (run[0][0], run[-1][1], level), spent
        return best
