"""Pure: the text of a Prometheus page as values under names common to all engines.

Engines name the same thing differently, and one page can hold the metrics of several (a Dynamo worker passes its
engine's on). `ENGINES` lists what each calls it; for every common name the first engine that offers it wins.

    vllm:num_requests_running{engine="0"} 3.0      →  running = 3
    vllm:num_requests_running{engine="1"} 2.0         (+ 2: series of one name are added up, ratios averaged)

A rule may leave out series by one of their labels: llm-d counts what it refused and what it let in under one name.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

CommonName = Literal[
    "running",  # requests being worked on
    "waiting",  # requests that have no place yet
    "kv_usage_ratio",  # used part of the KV cache, 0 to 1
    "prefix_query_tokens",  # counter: prompt tokens looked up in the prefix cache
    "prefix_hit_tokens",  # counter: prompt tokens found there
    "external_hit_tokens",  # counter: prompt tokens found in a cache outside the engine (LMCache, host memory)
    "prompt_tokens",  # counter: prompt tokens taken in, cached ones included
    "output_tokens",  # counter: tokens generated
    "preemptions",  # counter: requests thrown out of the batch and redone
    "rejections",  # counter: requests refused for want of room
]


class PromTextError(Exception):
    """A page that is not in the Prometheus text format, or holds no metric of an engine known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How to get one common name from one engine's metrics."""

    add: tuple[str, ...]
    """Sample names whose values are added; all must be on the page."""
    subtract: tuple[str, ...] = ()
    """Sample names whose values are taken off; all must be on the page."""
    without: tuple[str, frozenset[str]] | None = None
    """A label, and its values with which a series does not count; None if all count."""

    def counts(self, sample: Sample) -> bool:
        """Whether a series belongs to what is added or taken off."""
        return self.without is None or sample.labels.get(self.without[0]) not in self.without[1]

    def can_be_told(self, series: Mapping[str, list[Sample]]) -> bool:
        """Whether the page has all that the rule names, its label included."""
        names = (*self.add, *self.subtract)
        if not all(name in series for name in names):
            return False
        label = None if self.without is None else self.without[0]
        return label is None or any(label in sample.labels for name in names for sample in series[name])


def _sum(*names: str) -> _Rule:
    return _Rule(add=names)


def _without(name: str, label: str, *values: str) -> tuple[_Rule, ...]:
    return (_Rule(add=(name,), without=(label, frozenset(values))),)


_Rules = Mapping[CommonName, tuple[_Rule, ...]]

_VLLM: _Rules = {
    "running": (_sum("vllm:num_requests_running"),),
    "waiting": (_sum("vllm:num_requests_waiting"),),
    # The `gpu_` names are those before 0.10.
    "kv_usage_ratio": (_sum("vllm:kv_cache_usage_perc"), _sum("vllm:gpu_cache_usage_perc")),
    "prefix_query_tokens": (
        _sum("vllm:prefix_cache_queries_total"),
        _sum("vllm:gpu_prefix_cache_queries_total"),
    ),
    "prefix_hit_tokens": (_sum("vllm:prefix_cache_hits_total"), _sum("vllm:gpu_prefix_cache_hits_total")),
    "external_hit_tokens": (_sum("vllm:external_prefix_cache_hits_total"),),
    "prompt_tokens": (_sum("vllm:prompt_tokens_total"),),
    "output_tokens": (_sum("vllm:generation_tokens_total"),),
    "preemptions": (_sum("vllm:num_preemptions_total"),),
    "rejections": (_sum("vllm:admission_rejections_total"),),
}

_SGLANG: _Rules = {
    "running": (_sum("sglang:num_running_reqs"),),
    "waiting": (_sum("sglang:num_queue_reqs"),),
    "kv_usage_ratio": (_sum("sglang:token_usage"),),
    # It has no counter of look-ups: every prompt token is looked up.
    "prefix_query_tokens": (_sum("sglang:prompt_tokens_total"),),
    "prefix_hit_tokens": (_sum("sglang:cached_tokens_total"),),
    # Where it tells the tiers of its cache apart, `device` is the GPU's own.
    "external_hit_tokens": _without("sglang:cached_tokens_total", "cache_source", "device"),
    "prompt_tokens": (_sum("sglang:prompt_tokens_total"),),
    "output_tokens": (_sum("sglang:generation_tokens_total"),),
    # `num_retracted_reqs`, one word away, is a gauge of the latest batch.
    "preemptions": (_sum("sglang:num_retracted_requests_total"),),
}

_LLAMA_CPP: _Rules = {
    "running": (_sum("llamacpp:requests_processing"),),
    "waiting": (_sum("llamacpp:requests_deferred"),),
    # `prompt_tokens_total` counts what was computed, without what came from the cache.
    "prefix_query_tokens": (_sum("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),),
    "prefix_hit_tokens": (_sum("llamacpp:prompt_tokens_cached_total"),),
    "prompt_tokens": (_sum("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),),
    "output_tokens": (_sum("llamacpp:tokens_predicted_total"),),
}

# A frontend's names come first, then those of a worker whose engine has no page of its own.
_DYNAMO: _Rules = {
    # A request is in the queue until its first token and in flight until its end, so the one contains the other.
    "running": (
        _Rule(
            add=("dynamo_frontend_inflight_requests",),
            subtract=("dynamo_frontend_queued_requests",),
        ),
        _Rule(
            add=("dynamo_frontend_active_requests",),
            subtract=("dynamo_frontend_queued_requests",),
        ),
        _sum("dynamo_engine_request"),
    ),
    "waiting": (_sum("dynamo_frontend_queued_requests"), _sum("dynamo_request_queue")),
    "kv_usage_ratio": (_sum("dynamo_component_gpu_cache_usage_percent"),),
    "prefix_query_tokens": (_sum("dynamo_frontend_input_sequence_tokens_sum"),),
    "prefix_hit_tokens": (_sum("dynamo_frontend_cached_tokens_sum"),),
    "prompt_tokens": (_sum("dynamo_frontend_input_sequence_tokens_sum"),),
    "output_tokens": (_sum("dynamo_frontend_output_sequence_tokens_sum"),),
    "rejections": (
        _sum("dynamo_frontend_model_rejection_total"),
        _sum("dynamo_rejection_request_total"),
    ),
}

# llm-d's endpoint picker, and the gateway API's inference extension that it comes from (the last names of each).
# What its flow control holds has not reached a model server yet; the queues of these are added to it.
_LLM_D: _Rules = {
    "running": (_sum("llm_d_epp_request_running"), _sum("inference_objective_running_requests")),
    "waiting": (
        _sum("llm_d_epp_flow_control_queue_size", "llm_d_epp_per_endpoint_queue_size"),
        _sum("llm_d_epp_flow_control_queue_size"),
        _sum("llm_d_epp_per_endpoint_queue_size"),
        _sum("inference_extension_flow_control_queue_size", "inference_pool_per_pod_queue_size"),
        _sum("inference_extension_flow_control_queue_size"),
        _sum("inference_pool_per_pod_queue_size"),
    ),
    "kv_usage_ratio": (
        _sum("llm_d_epp_average_kv_cache_utilization"),
        _sum("inference_pool_average_kv_cache_utilization"),
    ),
    "prefix_query_tokens": (
        _sum("llm_d_epp_request_input_tokens_sum"),
        _sum("inference_objective_input_tokens_sum"),
    ),
    "prefix_hit_tokens": (
        _sum("llm_d_epp_request_cached_tokens_sum"),
        _sum("inference_objective_prompt_cached_tokens_sum"),
    ),
    "prompt_tokens": (
        _sum("llm_d_epp_request_input_tokens_sum"),
        _sum("inference_objective_input_tokens_sum"),
    ),
    "output_tokens": (
        _sum("llm_d_epp_request_output_tokens_sum"),
        _sum("inference_objective_output_tokens_sum"),
    ),
    # A request whose client left was not refused.
    "rejections": _without(
        "llm_d_epp_flow_control_requests_total", "outcome", "Dispatched", "EvictedContextCancelled"
    ),
}

_SMG: _Rules = {
    "running": (_sum("smg_worker_requests_active"),),
    "waiting": (_sum("smg_admission_queue_depth"),),
    # The last one knows only what a queue refused, and is not there before it has refused something.
    "rejections": (
        *_without("smg_http_rate_limit_total", "result", "allowed"),
        *_without("smg_http_rate_limit_total", "decision", "allowed"),
        _sum("smg_admission_queue_rejected_total"),
    ),
}

ENGINES: Mapping[str, _Rules] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "llama.cpp": _LLAMA_CPP,
    "dynamo": _DYNAMO,
    "smg": _SMG,
    "llm-d": _LLM_D,
}
"""Rules by engine, in order of precedence; several rules of one name are its spellings, newest first."""

_SAMPLE_NAMES = frozenset(
    name
    for rules in ENGINES.values()
    for spellings in rules.values()
    for rule in spellings
    for name in (*rule.add, *rule.subtract)
)
_LINE_STARTS = tuple(sorted(_SAMPLE_NAMES))
_AVERAGED = frozenset({"kv_usage_ratio"})


def common_values(text: str) -> dict[str, float]:
    """Values under their common names; a name that the page cannot give is absent.

    Raises:
        PromTextError: The page has a line that cannot be read, or no known metric at all.
    """
    if text.lstrip()[:1] == "<":
        raise PromTextError("an HTML or XML page, no metrics")
    # A page has thousands of lines of histograms; parsing them would hold up the sending of calls.
    relevant = "\n".join(line for line in text.splitlines() if line.startswith(_LINE_STARTS))
    series = _series_by_name(relevant)
    values: dict[str, float] = {}
    for rules in ENGINES.values():
        for common, spellings in rules.items():
            value = _first_value(common, spellings, series)
            if value is not None:
                values.setdefault(common, value)
    if not values:
        raise PromTextError("no metric of an engine known here")
    return values


def _series_by_name(text: str) -> dict[str, list[Sample]]:
    try:
        families = list(text_string_to_metric_families(text + "\n"))
    except (ValueError, KeyError, IndexError) as error:
        # The parser has no error type of its own.
        raise PromTextError(f"not in the Prometheus text format: {error}") from error
    series: dict[str, list[Sample]] = {}
    for sample in (sample for family in families for sample in family.samples):
        if sample.name in _SAMPLE_NAMES and math.isfinite(sample.value):
            series.setdefault(sample.name, []).append(sample)
    return series


def _first_value(
    common: CommonName, spellings: tuple[_Rule, ...], series: Mapping[str, list[Sample]]
) -> float | None:
    for rule in spellings:
        if rule.can_be_told(series):
            added, taken = (
                _total(rule, (sample for name in names for sample in series[name]))
                for names in (rule.add, rule.subtract)
            )
            count = len(series[rule.add[0]]) if common in _AVERAGED else 1
            return max(0.0, added - taken) / count
    return None


def _total(rule: _Rule, samples: Iterable[Sample]) -> float:
    return sum((float(sample.value) for sample in samples if rule.counts(sample)), 0.0)
