"""Pure: every number of a report, defined once: name, unit, formula, population, function.

The definitions stand in `call_metrics`, `run_metrics`, `cache_metrics` and `time_metrics`; nothing is computed
elsewhere. docs/metrics.md is the same list in prose, and a test holds both in step.
"""

from reports.cache_metrics import CACHE_NUMBERS, CACHE_TABLES
from reports.call_metrics import DISTRIBUTIONS
from reports.metric import Metric, Number, Row, Sample
from reports.run_metrics import RUN_NUMBERS, RUN_TABLES
from reports.series import Line
from reports.time_metrics import SERIES

NUMBERS: tuple[Metric[Number], ...] = (*RUN_NUMBERS, *CACHE_NUMBERS)
TABLES: tuple[Metric[list[Row]], ...] = (*RUN_TABLES, *CACHE_TABLES)

METRICS: dict[str, Metric[Sample] | Metric[Number] | Metric[list[Row]] | Metric[list[Line]]] = {
    metric.name: metric for metrics in (DISTRIBUTIONS, NUMBERS, TABLES, SERIES) for metric in metrics
}
"""Every definition by name."""
