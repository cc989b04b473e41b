"""Pure: every number of a report, defined once: name, unit, formula, population, function.

The definitions stand in `call_metrics`, `run_metrics`, `admission`, `holding`, `cache_metrics`, `steady`,
`identity_faults` and `time_metrics`; nothing is computed elsewhere. docs/metrics.md is the same list in prose, and a
test holds both in step.
"""

from reports.admission import ADMISSION_DISTRIBUTIONS, ADMISSION_NUMBERS, ADMISSION_TABLES
from reports.cache_metrics import CACHE_NUMBERS, CACHE_TABLES
from reports.call_metrics import CALL_DISTRIBUTIONS
from reports.holding import HOLDING_NUMBERS
from reports.identity_faults import IDENTITY_TABLES
from reports.metric import Metric, Number, Row, Sample
from reports.run_metrics import RUN_NUMBERS, RUN_TABLES
from reports.series import Line
from reports.steady import STEADY_NUMBERS
from reports.time_metrics import SERIES

DISTRIBUTIONS: tuple[Metric[Sample], ...] = (*CALL_DISTRIBUTIONS, *ADMISSION_DISTRIBUTIONS)
NUMBERS: tuple[Metric[Number], ...] = (
    *RUN_NUMBERS, *ADMISSION_NUMBERS, *HOLDING_NUMBERS, *CACHE_NUMBERS, *STEADY_NUMBERS,
)  # fmt: skip
TABLES: tuple[Metric[list[Row]], ...] = (*RUN_TABLES, *ADMISSION_TABLES, *CACHE_TABLES, *IDENTITY_TABLES)

METRICS: dict[str, Metric[Sample] | Metric[Number] | Metric[list[Row]] | Metric[list[Line]]] = {
    metric.name: metric for metrics in (DISTRIBUTIONS, NUMBERS, TABLES, SERIES) for metric in metrics
}
"""Every definition by name."""
