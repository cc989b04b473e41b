"""The exposition, read back by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from replayer.engine.metrics import Counters, exposition
from replayer.engine.options import EngineOptions
from replayer.engine.simulation import Simulation, Work


def samples(counters: Counters, simulation: Simulation, options: EngineOptions):
    families = text_string_to_metric_families(exposition(counters, simulation, options))
    return [sample for family in families for sample in family.samples]


def test_counters_come_out_under_vllms_names():
    counters = Counters(query_tokens=100, hit_tokens=64, prompt_tokens=90, generation_tokens=7)
    values = {s.name: s.value for s in samples(counters, Simulation(EngineOptions()), EngineOptions())}
    assert (values["vllm:prefix_cache_queries_total"], values["vllm:prefix_cache_hits_total"]) == (100, 64)
    assert (values["vllm:prompt_tokens_total"], values["vllm:generation_tokens_total"]) == (90, 7)
    assert values["vllm:num_preemptions_total"] == 0


def test_gauges_show_the_state():
    options = EngineOptions(batch=1, cache_blocks=8, block_size=4)
    simulation = Simulation(options)
    for id_ in (1, 2, 3):
        simulation.submit(Work(id=id_, prompt_tokens=8, output_tokens=1, blocks=[id_ * 10, id_ * 10 + 1]), 0)
    values = {s.name: s.value for s in samples(Counters(), simulation, options)}
    assert (values["vllm:num_requests_running"], values["vllm:num_requests_waiting"]) == (1, 2)
    assert values["vllm:kv_cache_usage_perc"] == 0.25


def test_reasons_are_labels():
    counters = Counters()
    counters.finished["length"] = 3
    counters.rejected["max_num_queued_reqs"] = 2
    found = samples(counters, Simulation(EngineOptions()), EngineOptions())
    finished = {s.labels["finished_reason"]: s.value for s in found if s.name == "vllm:request_success_total"}
    rejected = {s.labels["reason"]: s.value for s in found if s.name == "vllm:admission_rejections_total"}
    assert finished == {"stop": 0, "length": 3, "abort": 0}
    assert rejected == {"max_num_queued_reqs": 2, "fault": 0}


def test_the_models_name_is_escaped():
    options = EngineOptions(model='a"b\\c\nd')
    assert {'a"b\\c\nd'} == {
        s.labels["model_name"] for s in samples(Counters(), Simulation(options), options)
    }


def test_the_shape_of_the_cache_is_told():
    for blocks, shown in ((None, "unlimited"), (7, "7")):
        options = EngineOptions(cache_blocks=blocks, block_size=32)
        found = samples(Counters(), Simulation(options), options)
        labels = next(s.labels for s in found if s.name == "vllm:cache_config_info")
        assert ("32", shown) == (labels["block_size"], labels["num_gpu_blocks"])
