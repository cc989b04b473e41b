"""Pure: every number of a report, defined once: name, unit, formula, population, function.

The definitions stand in the modules that this one imports them from; nothing is computed elsewhere. docs/metrics.md
has the same list; `make docs` writes it there.
"""

from reports.cache.curve import CURVE_NUMBERS, CURVE_TABLES
from reports.cache.losses import LOSS_NUMBERS, LOSS_TABLES
from reports.cache.metrics import CACHE_NUMBERS, CACHE_TABLES
from reports.cache.places import PLACE_TABLES
from reports.cache.survival import SURVIVAL_NUMBERS, SURVIVAL_TABLES
from reports.measures.admission import ADMISSION_DISTRIBUTIONS, ADMISSION_NUMBERS, ADMISSION_TABLES
from reports.measures.admission_time import ADMISSION_TIME_TABLES
from reports.measures.call_metrics import CALL_DISTRIBUTIONS
from reports.measures.fairness import FAIRNESS_DISTRIBUTIONS, FAIRNESS_NUMBERS, FAIRNESS_TABLES
from reports.measures.fidelity import FIDELITY_DISTRIBUTIONS, FIDELITY_NUMBERS, FIDELITY_TABLES
from reports.measures.holding import HOLDING_NUMBERS
from reports.measures.identity_faults import IDENTITY_TABLES
from reports.measures.latency_metrics import LATENCY_TABLES
from reports.measures.run_metrics import RUN_NUMBERS, RUN_TABLES
from reports.measures.session_shares import SHARE_TABLES
from reports.measures.steady import STEADY_NUMBERS
from reports.measures.time_metrics import SERIES
from reports.measures.unloaded import UNLOADED_DISTRIBUTIONS, UNLOADED_NUMBERS
from reports.measures.worker_metrics import WORKER_NUMBERS, WORKER_TABLES
from reports.metric import Metric, Number, Row, Sample
from reports.series import Line

DISTRIBUTIONS: tuple[Metric[Sample], ...] = (
    *CALL_DISTRIBUTIONS, *ADMISSION_DISTRIBUTIONS, *UNLOADED_DISTRIBUTIONS, *FAIRNESS_DISTRIBUTIONS,
    *FIDELITY_DISTRIBUTIONS,
)  # fmt: skip
NUMBERS: tuple[Metric[Number], ...] = (
    *RUN_NUMBERS, *ADMISSION_NUMBERS, *HOLDING_NUMBERS, *CACHE_NUMBERS, *STEADY_NUMBERS,
    *SURVIVAL_NUMBERS, *LOSS_NUMBERS, *CURVE_NUMBERS, *UNLOADED_NUMBERS, *FAIRNESS_NUMBERS, *WORKER_NUMBERS, *FIDELITY_NUMBERS,
)  # fmt: skip
TABLES: tuple[Metric[list[Row]], ...] = (
    *RUN_TABLES, *ADMISSION_TABLES, *CACHE_TABLES, *IDENTITY_TABLES,
    *PLACE_TABLES, *SURVIVAL_TABLES, *LOSS_TABLES, *CURVE_TABLES,
    *LATENCY_TABLES, *SHARE_TABLES, *FAIRNESS_TABLES, *ADMISSION_TIME_TABLES, *WORKER_TABLES, *FIDELITY_TABLES,
)  # fmt: skip

AnyMetric = Metric[Sample] | Metric[Number] | Metric[list[Row]] | Metric[list[Line]]
METRICS: dict[str, AnyMetric] = {
    metric.name: metric for metrics in (DISTRIBUTIONS, NUMBERS, TABLES, SERIES) for metric in metrics
}
"""Every definition by name."""
