import pytest

from replayer.promtext import PromTextError, common_values

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{reason="capacity",model_name="m"} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.234e+06
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 12.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 1234567.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 89.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
# TYPE vllm:admission_rejections_total counter
vllm:admission_rejections_total{reason="max_num_queued_reqs",model_name="m"} 5.0
vllm:admission_rejections_total{reason="max_num_queued_tokens",model_name="m"} 6.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 1.0
"""


def test_every_common_name_is_read_from_vllm():
    assert common_values(VLLM) == {
        "running": 5.0,
        "waiting": 7.0,
        "kv_usage_ratio": 0.625,
        "prefix_query_tokens": 1_234_000.0,
        "prefix_hit_tokens": 1000.0,
        "external_hit_tokens": 12.0,
        "prompt_tokens": 1_234_567.0,
        "output_tokens": 89.0,
        "preemptions": 4.0,
        "rejections": 11.0,
    }


def test_older_spellings_are_used_where_the_newer_are_missing():
    text = "vllm:gpu_cache_usage_perc 0.25\nvllm:gpu_prefix_cache_hits_total 9\n"
    assert common_values(text) == {"kv_usage_ratio": 0.25, "prefix_hit_tokens": 9.0}


def test_sglang_sums_cached_tokens_over_their_sources():
    text = """\
sglang:num_running_reqs{model_name="m"} 2.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.28
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:cached_tokens_total{model_name="m",cache_source="device"} 100.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 20.0
sglang:generation_tokens_total{model_name="m"} 7.0
sglang:num_retracted_reqs{model_name="m"} 99.0
sglang:num_retracted_requests_total{model_name="m"} 3.0
"""
    assert common_values(text) == {
        "running": 2.0,
        "waiting": 1.0,
        "kv_usage_ratio": 0.28,
        "prefix_query_tokens": 8_128_902.0,
        "prefix_hit_tokens": 120.0,
        "external_hit_tokens": 20.0,
        "prompt_tokens": 8_128_902.0,
        "output_tokens": 7.0,
        "preemptions": 3.0,
    }


def test_llama_cpp_counts_prompts_without_the_cached_part_so_it_is_added():
    text = """\
llamacpp:prompt_tokens_total 300
llamacpp:prompt_tokens_cached_total 700
llamacpp:tokens_predicted_total 40
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""
    values = common_values(text)
    assert values["prefix_query_tokens"] == 1000.0
    assert values["prefix_hit_tokens"] == 700.0
    assert (values["running"], values["waiting"]) == (1.0, 2.0)


@pytest.mark.parametrize("inflight", ["dynamo_frontend_inflight_requests", "dynamo_frontend_active_requests"])
def test_dynamo_in_flight_contains_the_queue(inflight):
    text = f'{inflight}{{model="m"}} 5\ndynamo_frontend_queued_requests{{model="m"}} 2\n'
    assert common_values(text) == {"running": 3.0, "waiting": 2.0}


def test_two_gauges_read_at_different_moments_never_give_less_than_none():
    text = "dynamo_frontend_inflight_requests 1\ndynamo_frontend_queued_requests 2\n"
    assert common_values(text)["running"] == 0.0


def test_a_rule_with_a_missing_part_gives_nothing():
    assert common_values("llamacpp:prompt_tokens_total 300\nllamacpp:requests_deferred 0\n") == {
        "waiting": 0.0
    }


def test_an_engine_wins_over_the_frontend_that_passes_its_metrics_on():
    text = 'dynamo_frontend_queued_requests 9\nvllm:num_requests_waiting{engine="0"} 4\n'
    assert common_values(text)["waiting"] == 4.0


def test_a_name_that_only_begins_like_a_known_one_is_not_taken():
    text = 'vllm:num_requests_waiting_by_reason{reason="deferred"} 4\nvllm:num_requests_running 1\n'
    assert common_values(text) == {"running": 1.0}


def test_values_that_are_no_numbers_are_left_out():
    assert common_values("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running 1\n") == {"running": 1.0}


def test_an_sglang_that_does_not_tell_its_tiers_apart_has_no_external_hits():
    assert common_values('sglang:cached_tokens_total{model_name="m"} 100.0\n') == {"prefix_hit_tokens": 100.0}


LLM_D = """\
llm_d_epp_request_running{model_name="m",priority="0"} 3
llm_d_epp_request_running{model_name="m",priority="1"} 2
llm_d_epp_flow_control_queue_size{fairness_id="a",priority="0"} 4
llm_d_epp_flow_control_queue_size{fairness_id="b",priority="0"} 1
llm_d_epp_per_endpoint_queue_size{name="pool",model_server_endpoint="x"} 2
llm_d_epp_average_kv_cache_utilization{name="pool"} 0.4
llm_d_epp_request_input_tokens_sum{model_name="m"} 900
llm_d_epp_request_cached_tokens_sum{model_name="m"} 300
llm_d_epp_request_output_tokens_sum{model_name="m"} 80
llm_d_epp_flow_control_requests_total{outcome="Dispatched",priority="0"} 50
llm_d_epp_flow_control_requests_total{outcome="RejectedCapacity",priority="0"} 6
llm_d_epp_flow_control_requests_total{outcome="EvictedTTL",priority="0"} 2
llm_d_epp_flow_control_requests_total{outcome="EvictedContextCancelled",priority="0"} 9
"""


def test_llm_ds_queue_is_what_it_holds_and_what_waits_at_the_model_servers():
    assert common_values(LLM_D) == {
        "running": 5.0,
        "waiting": 7.0,
        "kv_usage_ratio": 0.4,
        "prefix_query_tokens": 900.0,
        "prefix_hit_tokens": 300.0,
        "prompt_tokens": 900.0,
        "output_tokens": 80.0,
        "rejections": 8.0,
    }


def test_the_names_before_llm_d_are_read_too():
    text = """\
inference_objective_running_requests{model_name="m"} 3
inference_extension_flow_control_queue_size{priority="0"} 4
inference_pool_per_pod_queue_size{model_server_pod="x"} 2
inference_pool_average_kv_cache_utilization{name="pool"} 0.4
inference_objective_input_tokens_sum{model_name="m"} 900
"""
    assert common_values(text) == {
        "running": 3.0,
        "waiting": 6.0,
        "kv_usage_ratio": 0.4,
        "prefix_query_tokens": 900.0,
        "prompt_tokens": 900.0,
    }


def test_a_counter_of_outcomes_of_which_none_is_a_refusal_says_0():
    text = 'llm_d_epp_flow_control_requests_total{outcome="Dispatched"} 50\n'
    assert common_values(text) == {"rejections": 0.0}


@pytest.mark.parametrize("label", ["result", "decision"])
def test_smgs_refusals_are_told_with_and_without_a_queue(label):
    text = f'smg_http_rate_limit_total{{{label}="allowed"}} 5\nsmg_http_rate_limit_total{{{label}="rejected"}} 2\n'
    assert common_values(text) == {"rejections": 2.0}
    assert common_values('smg_admission_queue_rejected_total{reason="full"} 3\n') == {"rejections": 3.0}


def test_a_dynamo_worker_without_an_engines_page_tells_its_own():
    text = "dynamo_engine_request 4\ndynamo_request_queue 1\ndynamo_rejection_request_total 2\n"
    assert common_values(text + "dynamo_component_gpu_cache_usage_percent 0.5\n") == {
        "running": 4.0,
        "waiting": 1.0,
        "rejections": 2.0,
        "kv_usage_ratio": 0.5,
    }


@pytest.mark.parametrize("text", ["<html><body>hello</body></html>", "\n <!DOCTYPE html>", "<?xml ?>"])
def test_a_page_for_people_is_told_as_one(text):
    with pytest.raises(PromTextError, match="an HTML or XML page, no metrics"):
        common_values(text)


@pytest.mark.parametrize("text", ["", "go_goroutines 12\n"])
def test_a_page_without_known_metrics_is_an_error(text):
    with pytest.raises(PromTextError, match="no metric of an engine known here"):
        common_values(text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm:num_requests_running three\n",
        'vllm:num_requests_running{engine="0" 3.0\n',
        "vllm:num_requests_running\n",
    ],
)
def test_a_line_that_cannot_be_read_is_an_error(text):
    with pytest.raises(PromTextError, match="not in the Prometheus text format"):
        common_values(text)
