"""Numbers and tables of a report in plain Python, by their names; `plain_report` has what they are computed from."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from tests.e2e.plain_report import (
    BINS_S,
    COUNTERS,
    GAPS_S,
    MS,
    OVERLOAD,
    PARTS,
    PROMPTS,
    TREES,
    TURNS,
    Line,
    PlainReport,
    S,
    bucket,
    jain,
    quantile,
    ratio,
    wilson,
)

REFUSED = ("refused", "refused_in_stream")


class PlainNumbers(PlainReport):
    """All numbers and tables that are told of a run."""

    def numbers(self) -> dict[str, Any]:
        return {
            **self._counts(), **self._totals(), **self._readings(), **self._admission(), **self._holding(), **self._cache(),
            **self._steady(), **self._idle(), **self._fairness(), **self._fidelity(),
        }  # fmt: skip

    def tables(self) -> dict[str, list[Line]]:
        return {
            **self._call_tables(), **self._admission_tables(), **self._cache_tables(), **self._latency_tables(),
            **self._session_tables(), **self._time_tables(), **self._worker_tables(),
        }  # fmt: skip

    # Counts

    def _counts(self) -> dict[str, Any]:
        run, end, errors = self.run, self.end, Counter(call["error"] for call in self.calls)
        unstarted = {group: end.get(f"unstarted_{group}", 0) for group in ("calls", "sessions", "trees")}
        bound_ms = run["options"].get("max_lateness_ms") or 50.0
        return {
            **{f"planned_{group}": run[f"planned_{group}"] - unstarted[group] for group in unstarted},
            "unmeasured_calls": len(self.every) - len(self.calls),
            "unmeasured_sessions": len(self.every_session) - len(self.sessions),
            "unmeasured_trees": len(self.every_tree) - len(self.trees),
            "sent_calls": len(self.sent),
            "late_calls": sum(self.client_late_ms(call) > bound_ms for call in self.sent),
            "complete_calls": len(self.complete),
            "refused_calls": errors["refused"],
            "overload_calls": errors["refused"]
            + sum(
                call["error"] == "error_event" and bool(OVERLOAD.search(call["error_text"] or ""))
                for call in self.calls
            ),
            "stopped_calls": errors["client_abort"],
            "failed_calls": sum(
                count for error, count in errors.items() if error not in (None, "refused", "client_abort")
            ),
            "malformed_calls": errors["malformed"],
            "unparsed_events": sum(call.get("unparsed_events", 0) for call in self.sent),
            "unsent_calls": sum(call["unsent"] is not None for call in self.calls),
            "missing_calls": max(0, run["planned_calls"] - unstarted["calls"] - len(self.every)),
            "missing_sessions": max(
                0, run["planned_sessions"] - unstarted["sessions"] - len(self.every_session)
            ),
            "censored_sessions": sum(group["is_censored"] for group in self.sessions),
            "complete_sessions": sum(group["is_played"] for group in self.sessions),
            "lost_sessions": sum(group["is_lost"] for group in self.sessions),
            "complete_trees": sum(group["is_played"] for group in self.trees),
        }

    def _totals(self) -> dict[str, Any]:
        def total(name: str) -> int | None:
            known = [call[name] for call in self.complete if call[name] is not None]
            return sum(known) if known else None

        def over_plan(reported: str, planned: str) -> float | None:
            known = [call for call in self.complete if call[reported] is not None]
            return (
                ratio(sum(call[reported] for call in known), sum(call[planned] for call in known))
                if known
                else None
            )

        off = [
            abs(call["input"] / call["prompt_tokens"] - 1)
            for call in self.complete
            if call["input"] is not None and call["prompt_tokens"] > 0
        ]
        lag = self.end.get("loop_lag_p99_ns")
        return {
            "duration_s": self.duration_s,
            "input_tokens": total("input"),
            "output_tokens": total("output"),
            "output_tokens_per_s": ratio(total("output"), self.measured_s),
            "usage_ratio": ratio(
                sum(call["input"] is not None for call in self.complete), len(self.complete)
            ),
            "cache_usage_ratio": ratio(
                sum(call["cached"] is not None for call in self.complete), len(self.complete)
            ),
            "contradicting_usage_calls": sum(
                (call["cached"] or 0) > (math.inf if call["input"] is None else call["input"])
                or (call["reasoning"] or 0) > (math.inf if call["output"] is None else call["output"])
                for call in self.complete
            ),
            "prompt_size_ratio": over_plan("input", "prompt_tokens"),
            "prompt_size_error_ratio": quantile(off, 0.5),
            "output_size_ratio": over_plan("output", "output_tokens"),
            "loop_lag_p99_ms": None if lag is None else lag / MS,
            "cpu_ratio": ratio(self.end["cpu_ns"], self.end["ended_ns"]),
        }

    # The engine's readings

    def _pages(self) -> list[list[Line]]:
        pages: dict[str, list[Line]] = defaultdict(list)
        for scrape in self.scrapes:
            pages[scrape["url"]].append(scrape)
        return list(pages.values())

    def _readings(self) -> dict[str, Any]:
        longest, gaps = 0, []
        for page in self._pages():
            read = [scrape["at_ns"] for scrape in page if scrape.get("error") is None]
            moments = [page[0]["at_ns"], *read, max(page[-1]["at_ns"], self.end["ended_ns"])]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(moments)))
            gaps += [later["at_ns"] - earlier["at_ns"] for earlier, later in pairwise(page)]
        query, hit = self._growth("prefix_query_tokens"), self._growth("prefix_hit_tokens")
        gap_ns = quantile(gaps, 0.5)
        return {
            "scrapes": len(self.scrapes),
            "failed_scrapes": sum(scrape.get("error") is not None for scrape in self.scrapes),
            "longest_scrape_gap_s": longest / S if longest else None,
            "median_scrape_gap_s": None if gap_ns is None else gap_ns / S,
            "engine_query_tokens": query,
            "engine_hit_tokens": hit,
            "engine_hit_ratio": ratio(hit, query),
            "engine_preemptions": self._growth("preemptions"),
            "engine_rejections": self._growth("rejections"),
            "engine_restarts": sum(
                any(earlier["values"].get(name, 0) > later["values"].get(name, 0) for name in COUNTERS)
                for page in self._pages()
                for earlier, later in pairwise(scrape for scrape in page if scrape.get("error") is None)
            ),
        }

    def _growth(self, name: str) -> int | None:
        total, is_told = 0.0, False
        for page in self._pages():
            good = [scrape for scrape in page if scrape.get("error") is None]
            if not any(name in scrape["values"] for scrape in good):
                continue
            is_told = True
            if self.measured_from_ns is not None:
                before = [
                    s["at_ns"] for s in good if name in s["values"] and s["at_ns"] <= self.measured_from_ns
                ]
                good = [scrape for scrape in good if scrape["at_ns"] >= max(before, default=0)]
            values = [
                scrape["values"].get(name, 0.0 if place == 0 else None) for place, scrape in enumerate(good)
            ]
            known = [value for value in values if value is not None]
            if len(known) < 2 or any(later < earlier for earlier, later in pairwise(known)):
                return None
            total += known[-1] - known[0]
        return round(total) if is_told else None

    # Admission

    def _admission(self) -> dict[str, Any]:
        refused = [one for one in self.tries if one["outcome"] in REFUSED]
        refused_once = {one["call"]["index"] for one in refused}
        tried = {one["call"]["index"] for one in self.tries}
        stopped = [
            call
            for group in self.sessions
            for call in group["calls"]
            if call["tries"] and call["tries"][-1]["outcome"] == "stopped"
        ]
        lost = [
            call
            for group in self.sessions
            if group["is_lost"]
            for call in group["calls"]
            if call["is_complete"]
        ]
        return {
            "tries": len(self.tries),
            "refused_tries": len(refused),
            "refused_tries_ratio": ratio(len(refused), len(self.tries)),
            "refused_once_calls": len(refused_once),
            "refused_once_ratio": ratio(len(refused_once), len(tried)),
            "retried_calls": sum(
                any(one["sent_ns"] is not None or one["outcome"] != "stopped" for one in call["tries"][1:])
                for call in self.calls
            ),
            "backoff_s": sum(one["wait_ns"] for call in self.calls for one in call["tries"]) / S,
            "backoff_sessions": len(
                {
                    (call["instance"], call["session"])
                    for call in stopped
                    if call["sent_ns"] is None and len(call["tries"]) > 1
                }
            ),
            "waiting_sessions": len(
                {
                    (call["instance"], call["session"])
                    for call in stopped
                    if call["sent_ns"] is not None and call["first_token_ns"] is None
                }
            ),
            "lost_prefill_tokens": sum(map(self._prefill, lost)),
        }

    @staticmethod
    def _prefill(call: Line) -> int:
        tokens: int = (call["prompt_tokens"] if call["input"] is None else call["input"]) - (
            call["cached"] or 0
        )
        return max(0, tokens)

    def _fared(self, tries: list[Line]) -> Line:
        first = [one for one in tries if one is one["call"]["tries"][0] and one["outcome"] != "stopped"]
        refused = sum(one["outcome"] in REFUSED for one in first)
        low, high = wilson(refused, len(first)) if first else (None, None)
        let_in = [
            (one["headers_ns"] - one["sent_ns"]) / MS
            for one in tries
            if one["status"] == 200 and one["headers_ns"] is not None
        ]
        return {
            "calls": len(first),
            "refused_calls": refused,
            "refused_ratio": ratio(refused, len(first)),
            "refused_low_ratio": low,
            "refused_high_ratio": high,
            "tries": len(tries),
            "refused_tries": sum(one["outcome"] in REFUSED for one in tries),
            "given_up_calls": sum(one["outcome"] in REFUSED and one["is_last"] for one in tries),
            "headers_p50_ms": quantile(let_in, 0.5),
        }

    def _gap_edges(self) -> tuple[float, ...]:
        return (0.0, *(edge * self.scale for edge in GAPS_S)) if self.scale > 0 else (0.0,)

    def _gap_place(self, call: Line) -> int | None:
        gap_s = self.gap_s(call)
        return None if gap_s is None else bucket(gap_s, self._gap_edges())

    def _gap_names(self, place: int) -> Line:
        edges = (*self._gap_edges(), None)
        return {"gap_from_s": edges[place], "gap_to_s": edges[place + 1]}

    def _admission_tables(self) -> dict[str, list[Line]]:
        def place_of(one: Line) -> int | None:
            return None if one["call"]["is_first"] else self._gap_place(one["call"])

        outcomes = Counter(one["outcome"] for one in self.tries)
        return {
            "tries_by_outcome": [
                {
                    "outcome": outcome, "tries": count,
                    "calls": len({one["call"]["index"] for one in self.tries if one["outcome"] == outcome}),
                    "last_tries": sum(one["is_last"] for one in self.tries if one["outcome"] == outcome),
                }
                for outcome, count in outcomes.items()
            ],
            "admission_by_kind": [
                {"kind": kind, **self._fared(tries)}
                for kind, is_first in (("first", True), ("returning", False))
                if (tries := [one for one in self.tries if one["call"]["is_first"] == is_first])
            ],
            "admission_by_turn": [
                {**_whole_names("turn", TURNS, place), **self._fared(tries)}
                for place, tries in _bucketed(self.tries, lambda one: bucket(one["call"]["turn_index"], TURNS))
            ],
            "admission_by_gap": [
                {**self._gap_names(place), **self._fared(tries)} for place, tries in _bucketed(self.tries, place_of)
            ],
        }  # fmt: skip

    # Calls held back

    def _holding(self) -> dict[str, Any]:
        calls = [
            call for call in self.sent
            if call["headers_ns"] is not None and call["events"] is not None and call["status"] == 200
        ]  # fmt: skip
        times = [(call["headers_ns"] - call["sent_ns"]) / MS for call in calls]
        known = [
            (time, queue)
            for call, time in zip(calls, times, strict=True)
            if (queue := self._queue_at(call["dispatched_ns"])) is not None
        ]
        names = ("slow_headers_from_ms", "slow_headers_calls", "fast_headers_p50_ms", "slow_headers_p50_ms")
        return dict(zip(names, _two_groups(times), strict=True)) | {
            "headers_queue_correlation": _spearman([time for time, _ in known], [queue for _, queue in known])
        }

    def _queue_at(self, at_ns: int) -> float | None:
        """The queue on the line between the readings before and after, within 5 s of both; of one if only that is near."""
        total = None
        for page in self._pages():
            read = [(s["at_ns"], s["values"]["waiting"]) for s in page if "waiting" in s.get("values", {})]
            before = [point for point in read if point[0] <= at_ns and at_ns - point[0] <= 5 * S][-1:]
            after = [point for point in read if point[0] > at_ns and point[0] - at_ns <= 5 * S][:1]
            if before and after:
                (left, low), (right, high) = before[0], after[0]
                value = low + (high - low) * (at_ns - left) / (right - left)
            elif before or after:
                value = (before or after)[0][1]
            else:
                continue
            total = value if total is None else total + value
        return total

    # Cache

    def _cache_calls(self) -> list[Line]:
        reporting = [
            call for call in self.complete if call["cached"] is not None and call["input"] is not None
        ]
        return reporting or self.complete

    @property
    def bound(self) -> dict[int, tuple[float, float, float]]:
        """Of each call that was sent, the tokens of its prompt that prompts sent before had: own session, tree, others."""
        if not hasattr(self, "_bound"):
            self._bound = self._find_bound()
        return self._bound

    def _find_bound(self) -> dict[int, tuple[float, float, float]]:
        trace = self.trace
        prompts: list[tuple[int, ...]] = []
        for call in trace.calls:
            kept = () if call.prompt.base is None else prompts[call.prompt.base][: call.prompt.keep]
            prompts.append((*kept, *call.prompt.add))
        ids: dict[tuple[int, tuple[int, int]], int] = {}
        known: dict[Any, set[int]] = defaultdict(set)
        found = {}
        sent = [call for call in self.every if call["sent_ns"] is not None]
        for call in sorted(sent, key=lambda call: (call["sent_ns"], call["index"])):
            path, sizes, at = [], [], -1
            for segment in prompts[call["call"]]:
                for block in _blocks(trace.segments[segment], trace.header.block_size):
                    at = ids.setdefault((at, block), len(ids))
                    path.append(at)
                    sizes.append(block[1])
            owners = (
                (call["instance"], "session", call["session"]),
                (call["instance"], "tree", call["root"]),
                "all",
            )
            had = [
                sum(size for one, size in zip(path, sizes, strict=True) if one in known[owner])
                for owner in owners
            ]
            tokens = call["prompt_tokens"] if call["input"] is None else call["input"]
            share = tokens / sum(sizes) if sizes else 0.0
            found[call["index"]] = (had[0] * share, (had[1] - had[0]) * share, (had[2] - had[1]) * share)
            if call["error"] not in ("refused", "connect", "http_error"):
                for owner in owners:
                    known[owner].update(path)
        return found

    def _rates(self, calls: Iterable[Line]) -> Line:
        calls = list(calls)
        tokens = sum(call["prompt_tokens"] if call["input"] is None else call["input"] for call in calls)
        cached = [call["cached"] for call in calls if call["cached"] is not None]
        reported = sum(cached) if cached else None
        bound = round(sum(sum(self.bound[call["index"]]) for call in calls)) if calls else None
        return {
            "calls": len(calls), "input_tokens": tokens, "reported_tokens": reported, "bound_tokens": bound,
            "reported_ratio": ratio(reported, tokens), "bound_ratio": ratio(bound, tokens),
        }  # fmt: skip

    def _cache(self) -> dict[str, Any]:
        calls = self._cache_calls()
        rates = self._rates(calls)
        parts = [
            round(sum(self.bound[call["index"]][origin] for call in calls)) if calls else None
            for origin in range(3)
        ]
        reported, bound = rates["reported_tokens"], rates["bound_tokens"]
        return {
            "cache_calls": len(calls),
            "cache_input_tokens": rates["input_tokens"] if calls else None,
            "cache_reported_tokens": reported,
            "cache_reported_ratio": rates["reported_ratio"],
            "cache_bound_tokens": bound,
            "cache_bound_ratio": rates["bound_ratio"],
            **dict(
                zip(
                    (f"cache_bound_{origin}_tokens" for origin in ("session", "tree", "other")),
                    parts,
                    strict=True,
                )
            ),
            "cache_lost_tokens": None if None in (reported, bound) else bound - reported,
        }

    @staticmethod
    def _kind(call: Line) -> str:
        if call["turn_index"] > 0:
            return call["gap_cause"] if call["gap_cause"] in ("tool", "user") else "other"
        return "tree_start" if call["session"] == call["root"] else "agent_start"

    def _cache_tables(self) -> dict[str, list[Line]]:
        calls, edges = self._cache_calls(), self._gap_edges()
        by_gap, after_gap = [], []
        for kind in ("tool", "user", "other"):
            inside = [call for call in calls if self._kind(call) == kind]
            by_gap += [
                {"kind": kind, **self._gap_names(place), **self._rates(some)}
                for place, some in _bucketed(inside, self._gap_place)
            ]
        for kind in ("agent_start", "tree_start"):
            if inside := [call for call in calls if self._kind(call) == kind]:
                by_gap.append({"kind": kind, "gap_from_s": None, "gap_to_s": None, **self._rates(inside)})
        for edge in edges:
            later = [call for call in calls if call["turn_index"] > 0]
            after = [call for call in later if (gap := self.gap_s(call)) is not None and gap >= edge]
            if after:
                after_gap.append({"gap_from_s": edge, "sessions": _sessions(after), **self._rates(after)})
        depths: list[int] = []
        for session in self.trace.sessions:
            depths.append(0 if session.parent is None else depths[session.parent] + 1)
        turns = (0, 1, 2, 4, 8, 16, 32, 64, 128)
        return {
            "cache_by_gap": by_gap,
            "cache_after_gap": after_gap,
            "cache_by_turn": [
                {**_whole_names("turn", turns, place), **self._rates(some)}
                for place, some in _bucketed(calls, lambda call: bucket(call["turn_index"], turns))
            ],
            "cache_by_depth": [
                {"depth": depth, "sessions": _sessions(some), **self._rates(some)}
                for depth, some in _bucketed(calls, lambda call: depths[call["session"]])
            ],
            "by_identity_fault": self._by_fault(),
        }

    def _by_fault(self) -> list[Line]:
        faults = sorted({call["identity_fault"] for call in self.calls} - {None})
        rows = []
        for fault in (None, *faults) if faults else ():
            names = {(c["instance"], c["session"]) for c in self.calls if c["identity_fault"] == fault}
            tries = [one for one in self.tries if (one["call"]["instance"], one["call"]["session"]) in names]
            refused = {one["call"]["index"] for one in tries if one["outcome"] in REFUSED}
            sent = {one["call"]["index"] for one in tries}
            ttft = self.values(
                self.measures["ttft_service_ms"],
                [call for call in self.sent if call["identity_fault"] == fault],
            )
            rates = self._rates(call for call in self._cache_calls() if call["identity_fault"] == fault)
            measured = [
                group for group in self.sessions
                if (group["calls"][0]["instance"], group["calls"][0]["session"]) in names
            ]  # fmt: skip
            rows.append(
                {
                    "ids": fault or "honest", "sessions": len(measured),
                    "lost_sessions": sum(group["is_lost"] for group in measured),
                    "calls": len(sent), "refused_calls": len(refused), "refused_ratio": ratio(len(refused), len(sent)),
                    "cache_calls": rates["calls"], "reported_ratio": rates["reported_ratio"],
                    "bound_ratio": rates["bound_ratio"], "ttft_calls": len(ttft),
                    "ttft_service_p50_ms": quantile(ttft, 0.5), "ttft_service_p95_ms": quantile(ttft, 0.95, 40),
                }
            )  # fmt: skip
        return rows

    # The rest of the numbers

    def _steady(self) -> dict[str, Any]:
        start, end, level = self.steady

        def is_inside(one: Line) -> bool:
            return start <= one["sent_ns"] / S < end

        inside = [call for call in self.complete if is_inside(call)]
        ttft = self.values(self.measures["ttft_service_ms"], inside)
        tries = [one for one in self.tries if is_inside(one)]
        return {
            "steady_from_s": start,
            "steady_until_s": end,
            "steady_sessions": level,
            "steady_ratio": ratio(end - start, self.duration_s),
            "steady_calls": len(inside),
            "steady_ttft_service_p50_ms": quantile(ttft, 0.5),
            "steady_ttft_service_p95_ms": quantile(ttft, 0.95, 40),
            "steady_cache_reported_ratio": self._rates(filter(is_inside, self._cache_calls()))[
                "reported_ratio"
            ],
            "steady_refused_tries_ratio": ratio(sum(one["outcome"] in REFUSED for one in tries), len(tries)),
        }

    def _idle(self) -> dict[str, Any]:
        count, speed = self.idle
        base, slope, itl = speed or (None, None, None)
        return {
            "unloaded_calls": count,
            "unloaded_base_ms": base,
            "unloaded_prefill_tokens_per_s": 1000 / slope if slope else None,
            "unloaded_itl_ms": itl,
        }

    def _fairness(self) -> dict[str, Any]:
        slowdowns = self.distributions()["session_slowdown_ratio"]
        speeds = [row["speed"] for row in self.tree_speeds if row["speed"] is not None]

        def mean(steps: list[tuple[float, float, int]]) -> float | None:
            return ratio(sum(n * (b - a) for a, b, n in steps), sum(b - a for a, b, _ in steps))

        return {
            "trees_per_h": 3600 * sum(group["is_played"] for group in self.trees) / self.measured_s,
            "sessions_per_h": 3600 * sum(group["is_played"] for group in self.sessions) / self.measured_s,
            "calls_in_flight_mean": mean(self.in_flight),
            "calls_in_flight_max": max(number for _, _, number in self.in_flight),
            "sessions_active_mean": mean(self.active),
            "sessions_active_max": max(number for _, _, number in self.active),
            "slowdown_jain_ratio": jain(slowdowns),
            "slowdown_p95_over_p50": ratio(quantile(slowdowns, 0.95, 40), quantile(slowdowns, 0.5)),
            "tree_speed_jain_ratio": jain(speeds),
            "tree_speed_p95_over_p50": ratio(quantile(speeds, 0.95, 40), quantile(speeds, 0.5)),
            "workers": len({name for call in self.sent if (name := self._worker(call)) is not None}) or None,
        }

    def _fidelity(self) -> dict[str, Any]:
        capped = [gap for gap in self.gaps if gap["is_capped"]]
        return {
            "compared_gaps": len(self.gaps),
            "capped_gaps": len(capped),
            "capped_gaps_ratio": ratio(len(capped), len(self.gaps)),
            "capped_gaps_s": sum(gap["recorded_s"] - gap["planned_s"] for gap in capped),
        }

    # The rest of the tables

    def _call_tables(self) -> dict[str, list[Line]]:
        def is_overload(call: Line) -> bool:
            return call["error"] == "refused" or (
                call["error"] == "error_event" and bool(OVERLOAD.search(call["error_text"] or ""))
            )

        failed: dict[Any, list[Line]] = defaultdict(list)
        unsent: dict[Any, list[Line]] = defaultdict(list)
        classes: dict[Any, list[Line]] = defaultdict(list)
        for call in self.calls:
            classes[call["call_class"]].append(call)
            if call["error"] is not None:
                failed[call["error"], call["status"], is_overload(call)].append(call)
            if call["unsent"] is not None:
                unsent[call["unsent"]].append(call)
        return {
            "by_class": [
                {
                    "call_class": name, "calls": len(calls), "complete_calls": sum(call["is_complete"] for call in calls),
                    "ttft_service_p50_ms": quantile(
                        self.values(self.measures["ttft_service_ms"], [c for c in calls if c["sent_ns"] is not None]), 0.5
                    ),
                    "input_tokens": sum(call["input"] or 0 for call in calls if call["is_complete"]),
                    "output_tokens": sum(call["output"] or 0 for call in calls if call["is_complete"]),
                }
                for name, calls in classes.items()
            ],
            "errors_by_kind": [
                {
                    "error": error, "status": status, "overload": overload, "calls": len(calls),
                    "sessions": _sessions(calls), "retry_after_s": _middle(c["retry_after_ns"] for c in calls),
                    "example": next((call["error_text"] for call in calls if call["error_text"] is not None), None),
                }
                for (error, status, overload), calls in failed.items()
            ],
            "unsent_by_reason": [
                {"unsent": reason, "calls": len(calls), "sessions": _sessions(calls)} for reason, calls in unsent.items()
            ],
            "gaps_by_cause": [
                {
                    "cause": cause, "calls": len(gaps),
                    **{f"{name}_s": sum(gap[f"{name}_s"] for gap in gaps) for name in ("recorded", "planned", "played")},
                    "capped_calls": sum(gap["is_capped"] for gap in gaps),
                    "error_p50_ms": quantile([gap["error_ms"] for gap in gaps], 0.5),
                    "error_p95_ms": quantile([gap["error_ms"] for gap in gaps], 0.95, 40),
                    "error_max_ms": max(gap["error_ms"] for gap in gaps),
                }
                for cause in ("tool", "user", "harness", "backoff", "unknown")
                if (gaps := [gap for gap in self.gaps if gap["cause"] == cause])
            ],
        }  # fmt: skip

    def _latency_tables(self) -> dict[str, list[Line]]:
        def row(calls: list[Line]) -> Line:
            told: Line = {"calls": len(calls)}
            for name, of in self.measures.items():
                unit = "tokens_per_s" if name.endswith("tokens_per_s") else "ms"
                stem, values = name.removesuffix(f"_{unit}"), self.values(of, calls)
                told |= {
                    f"{stem}_n": len(values),
                    f"{stem}_p50_{unit}": quantile(values, 0.5),
                    f"{stem}_p95_{unit}": quantile(values, 0.95, 40),
                }
            return told

        def uncached(call: Line) -> int | None:
            if call["input"] is None or call["cached"] is None:
                return None
            return bucket(max(0, call["input"] - call["cached"]), PROMPTS)

        def prompt(call: Line) -> int:
            return bucket(call["prompt_tokens"] if call["input"] is None else call["input"], PROMPTS)

        later = [call for call in self.sent if call["turn_index"] > 0]
        starts = [call for call in self.sent if call["turn_index"] == 0]
        return {
            "latency_by_class": [
                {"call_class": name, **row([call for call in self.sent if call["call_class"] == name])}
                for name in {call["call_class"] for call in self.sent}
            ],
            "latency_by_turn": [
                {**_whole_names("turn", TURNS, place), **row(calls)}
                for place, calls in _bucketed(self.sent, lambda call: bucket(call["turn_index"], TURNS))
            ],
            "latency_by_prompt": [
                {**_whole_names("tokens", PROMPTS, place), **row(calls)}
                for place, calls in _bucketed(self.sent, prompt)
            ],
            "latency_by_uncached": [
                {**_whole_names("tokens", PROMPTS, place), **row(calls)}
                for place, calls in _bucketed(self.sent, uncached)
            ],
            "latency_by_gap": [
                *(
                    {"kind": "continuing", **self._gap_names(place), **row(calls)}
                    for place, calls in _bucketed(later, self._gap_place)
                ),
                *(
                    {"kind": self._kind(calls[0]), "gap_from_s": None, "gap_to_s": None, **row(calls)}
                    for _, calls in _bucketed(starts, lambda call: self._kind(call) == "tree_start")
                ),
            ],
        }

    def _session_tables(self) -> dict[str, list[Line]]:
        rows = [
            {"duration_s": row["group"]["duration_s"]} | {part: row["parts"][part] / S for part in PARTS}
            for row in self.parts
            if row["group"]["duration_s"] > 0
        ]
        whole = sum(row["duration_s"] for row in rows)
        rows.sort(key=lambda row: row["duration_s"])
        groups = min(10, len(rows))
        tenths = [
            [row for place, row in enumerate(rows) if place * groups // len(rows) == group]
            for group in range(groups)
        ]
        by_part = []
        for part in PARTS if rows else ():
            times, shares = [row[part] for row in rows], [row[part] / row["duration_s"] for row in rows]
            by_part.append(
                {
                    "part": part, "sessions": len(rows), "time_s": sum(times), "time_ratio": sum(times) / whole,
                    "share_p50_ratio": quantile(shares, 0.5), "share_p95_ratio": quantile(shares, 0.95, 40),
                    "share_max_ratio": max(shares), "p50_s": quantile(times, 0.5), "p95_s": quantile(times, 0.95, 40),
                }
            )  # fmt: skip
        return {
            "session_time_by_part": by_part,
            "session_time_by_duration": [
                {
                    "duration_from_s": tenth[0]["duration_s"], "duration_to_s": tenth[-1]["duration_s"],
                    "sessions": len(tenth),
                    **{f"{part}_ratio": sum(r[part] for r in tenth) / sum(r["duration_s"] for r in tenth) for part in PARTS},
                }
                for tenth in tenths
            ],
            "trees_by_size": [
                {**_whole_names("calls", TREES, place), **_even(trees)}
                for place, trees in _bucketed(self.tree_speeds, lambda row: bucket(row["calls"], TREES))
            ],
        }  # fmt: skip

    def _time_tables(self) -> dict[str, list[Line]]:
        tries = [one for call in self.every for one in call["tries"] if one["sent_ns"] is not None]
        length = max(self.duration_s, max((one["sent_ns"] for one in tries), default=0) / S)
        width = next(width for width in BINS_S if width * 60 >= length)
        known = (*REFUSED, "complete", "timeout_headers", "timeout_first_token", "timeout_stream", "stopped")
        rows = []
        for number in range(math.ceil(length / width) if tries else 0):
            inside = [one for one in tries if one["sent_ns"] / S // width == number]
            first = [one for one in inside if one["call"]["is_first"]]
            later = [one for one in inside if not one["call"]["is_first"]]
            rows.append(
                {
                    "from_s": number * width, "to_s": (number + 1) * width, "tries": len(inside),
                    "complete": sum(one["outcome"] == "complete" for one in inside),
                    "refused": sum(one["outcome"] in REFUSED for one in inside),
                    "timeout": sum(one["outcome"].startswith("timeout") for one in inside),
                    "stopped": sum(one["outcome"] == "stopped" for one in inside),
                    "failed": sum(one["outcome"] not in known for one in inside),
                    "tries_again": sum(one is not one["call"]["tries"][0] for one in inside),
                    "first_tries": len(first), "first_refused": sum(one["outcome"] in REFUSED for one in first),
                    "returning_tries": len(later), "returning_refused": sum(one["outcome"] in REFUSED for one in later),
                }
            )  # fmt: skip
        lost = [self._lost(group) for group in self.sessions if group["is_lost"]]
        assert len(lost) <= 200
        return {"tries_over_time": rows, "lost_sessions_by_session": lost}

    def _lost(self, group: Line) -> Line:
        calls = group["calls"]
        names = {name: calls[0][name] for name in ("instance", "root", "session")}
        tree = [
            call
            for call in self.calls
            if (call["instance"], call["root"]) == (names["instance"], names["root"])
        ]
        lost_ids = {
            (g["calls"][0]["instance"], g["calls"][0]["session"]) for g in self.sessions if g["is_lost"]
        }
        own = [call for call in calls if call["is_fatal"]]
        others = [
            call for call in tree if call["is_fatal"] and (call["instance"], call["session"]) in lost_ids
        ]
        fatal = min(own or others, key=lambda call: (call["end_ns"], call["index"]), default=None)
        return names | {
            "lost_by_session": fatal and fatal["session"],
            "turn_index": fatal and fatal["turn_index"],
            "call_class": fatal and fatal["call_class"],
            "outcome": fatal and fatal["tries"][-1]["outcome"],
            "status": fatal and fatal["status"],
            "tries": fatal and len(fatal["tries"]),
            "lost_s": fatal and fatal["end_ns"] / S,
            "complete_calls": sum(call["is_complete"] for call in calls),
            "unsent_calls": sum(call["unsent"] is not None for call in calls),
            "lost_prefill_tokens": sum(self._prefill(call) for call in calls if call["is_complete"]),
        }

    @staticmethod
    def _worker(call: Line) -> str | None:
        signals = call.get("signals", {})
        names = (
            "nvext.worker_id.prefill_worker_id", "nvext.worker_id.decode_worker_id", "x-smg-routed-worker-id",
            "x-gateway-destination-endpoint-served",
        )  # fmt: skip
        return next((str(signals[name]) for name in names if name in signals), None)

    def _worker_tables(self) -> dict[str, list[Line]]:
        workers = {self._worker(call) for call in self.sent}
        rows = []
        for worker in workers if workers != {None} else ():
            calls = [call for call in self.sent if self._worker(call) == worker]
            rates = self._rates(call for call in self._cache_calls() if self._worker(call) == worker)
            ttft = self.values(self.measures["ttft_service_ms"], calls)
            rows.append(
                {
                    "worker": worker, "calls": len(calls), "complete_calls": sum(call["is_complete"] for call in calls),
                    "sessions": _sessions(calls), "cache_calls": rates["calls"], "input_tokens": rates["input_tokens"],
                    "reported_ratio": rates["reported_ratio"], "ttft_service_n": len(ttft),
                    "ttft_service_p50_ms": quantile(ttft, 0.5), "ttft_service_p95_ms": quantile(ttft, 0.95, 40),
                }
            )  # fmt: skip
        processes = [
            {
                "process": number, "sent_calls": one["sent_calls"], "cpu_ratio": ratio(one["cpu_ns"], self.end["ended_ns"]),
                "loop_lag_p99_ms": None if one["loop_lag_p99_ns"] is None else one["loop_lag_p99_ns"] / MS,
                "late_bodies": one.get("late_bodies", 0), "lost": one.get("lost", False),
            }
            for number, one in enumerate(self.end.get("workers", ()), 1)
        ]  # fmt: skip
        return {"by_worker": rows, "client_processes": processes}


def _bucketed(things: Iterable[Line], place_of: Callable[[Line], int | None]) -> list[tuple[int, list[Line]]]:
    places: dict[int, list[Line]] = defaultdict(list)
    for thing in things:
        if (place := place_of(thing)) is not None:
            places[place].append(thing)
    return sorted(places.items())


def _whole_names(name: str, edges: Sequence[int], place: int) -> Line:
    return {
        f"{name}_from": edges[place],
        f"{name}_to": edges[place + 1] - 1 if place + 1 < len(edges) else None,
    }


def _sessions(calls: Iterable[Line]) -> int:
    return len({(call["instance"], call["session"]) for call in calls})


def _middle(waits_ns: Iterable[int | None]) -> float | None:
    """The median in s."""
    middle = quantile((wait for wait in waits_ns if wait is not None), 0.5)
    return None if middle is None else middle / S


def _even(trees: list[Line]) -> Line:
    slowdowns = [tree["slowdown"] for tree in trees if tree["slowdown"] is not None]
    speeds = [tree["speed"] for tree in trees if tree["speed"] is not None]
    return {
        "trees": len(trees),
        "slowdown_n": len(slowdowns), "slowdown_p50_ratio": quantile(slowdowns, 0.5),
        "slowdown_p95_ratio": quantile(slowdowns, 0.95, 40), "slowdown_jain_ratio": jain(slowdowns),
        "speed_n": len(speeds), "speed_p50_tokens_per_s": quantile(speeds, 0.5),
        "speed_p95_tokens_per_s": quantile(speeds, 0.95, 40), "speed_jain_ratio": jain(speeds),
    }  # fmt: skip


def _blocks(segment: Any, block_size: int) -> list[tuple[int, int]]:
    """Blocks of a segment with their sizes: all are full but the last."""
    blocks = [first + step for first, count in segment.blocks for step in range(count)]
    rest = segment.size - block_size * (len(blocks) - 1)
    return [(block, rest if place == len(blocks) - 1 else block_size) for place, block in enumerate(blocks)]


def _two_groups(times: list[float]) -> tuple[float | None, int | None, float | None, float | None]:
    nothing = (None, None, None, None)
    if len(times) < 20:
        return nothing
    ordered = sorted(max(time, 1e-3) for time in times)
    logs = [math.log(time) for time in ordered]

    def scatter(part: list[float]) -> float:
        return sum((value - sum(part) / len(part)) ** 2 for value in part)

    place = min(range(1, len(logs)), key=lambda split: scatter(logs[:split]) + scatter(logs[split:]))
    fast, slow = quantile(ordered[:place], 0.5) or 0.0, quantile(ordered[place:], 0.5) or 0.0
    third = (slow / fast) ** (1 / 3)
    between = sum(fast * third < time < slow / third for time in ordered)
    if min(place, len(ordered) - place) < 0.05 * len(ordered) or slow < max(50.0, 3 * fast):
        return nothing
    return nothing if between > 0.1 * len(ordered) else (ordered[place], len(ordered) - place, fast, slow)


def _spearman(left: list[float], right: list[float]) -> float | None:
    if len(left) < 3 or len(set(left)) == 1 or len(set(right)) == 1:
        return None

    def ranks(values: list[float]) -> list[float]:
        ordered = sorted(values)
        places: dict[float, list[int]] = defaultdict(list)
        for place, value in enumerate(ordered, 1):
            places[value].append(place)
        return [sum(places[value]) / len(places[value]) for value in values]

    x, y = ranks(left), ranks(right)
    mean = (len(x) + 1) / 2
    top = sum((a - mean) * (b - mean) for a, b in zip(x, y, strict=True))
    return top / math.sqrt(sum((a - mean) ** 2 for a in x) * sum((b - mean) ** 2 for b in y))
