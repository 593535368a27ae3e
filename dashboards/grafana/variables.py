"""The choices that dashboards share."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.levels import STARTS
from dashboards.grafana.spec import Variable
from dashboards.grafana.sql import HOURS, IN_RANGE, MODEL_CALLS, PERCENTILES, TAGS

MOST_VALUES: Final = 1000
_WHERE: Final = f"FROM requests WHERE {IN_RANGE} AND {HOURS} AND {MODEL_CALLS}"
_COMMONEST: Final = f"ORDER BY count() DESC, value LIMIT {MOST_VALUES}"

MODEL: Final = Variable(
    "model", "Model", "Models of the requests in the time range, the commonest first",
    sql=f"SELECT Model AS value {_WHERE} AND Model != '' GROUP BY value {_COMMONEST}",
    many=True,
)  # fmt: skip
ROUTE: Final = Variable(
    "route", "Route", "Routes of the requests in the time range",
    sql=f"SELECT Route AS value {_WHERE} AND Route != '' GROUP BY value {_COMMONEST}",
    many=True,
)  # fmt: skip
TAG: Final = Variable(
    "tag", "Tag", "key=value: requests that have one of those chosen",
    sql=f"SELECT arrayJoin({TAGS}) AS value {_WHERE} GROUP BY value {_COMMONEST}",
    many=True,
)  # fmt: skip
PERCENTILE: Final = Variable(
    "percentile", "Percentile", "Which percentile single figures show",
    options=tuple(PERCENTILES), start="p95",
)  # fmt: skip
INSTANCE: Final = Variable(
    "instance", "Engine process", "Proxies whose engine sent steps in the time range",
    sql=f"SELECT ServiceInstance AS value FROM engine_steps WHERE {IN_RANGE} "
    f"GROUP BY value {_COMMONEST}",
    many=True,
)  # fmt: skip
STATUS: Final = Variable(
    "status", "Status", "How requests ended", options=("ok", "error", "cancelled"), many=True
)
TRACE: Final = Variable("traceId", "Trace id", "32 hexadecimal digits")
LIMIT_BOXES: Final = tuple(
    Variable(
        f"{name}_limit", f"{name.upper()} limit (ms)", "What is slower is missed; empty: no limit",
        start=f"{value:g}",
    )
    for name, value in STARTS.items()
)  # fmt: skip
COMMON: Final = (MODEL, ROUTE, TAG, PERCENTILE)
