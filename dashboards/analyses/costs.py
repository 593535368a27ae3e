"""What requests and solved tasks cost.

Tokens: ``((input - cached) x input price + cached x cached price + output x output price)
/ 1e6`` of each request whose model has the prices and whose token counts are known (cached at
most the input, whatever the source told); a cost that a record itself carries goes before.
GPUs: ``price an hour x GPUs x window / 3600 s`` of each model that made requests: a GPU costs
while it idles.

A task is a trace with an outcome: a span ``outcome`` (``tracer.outcome``), of which the last
one counts. Its time runs from the first start to the last end of the trace's records, its
cost is that of the model requests in it. ``time per correct task = time of all tasks /
correct tasks``, and so for the cost: what failed has to be paid too.
"""

from __future__ import annotations

from typing import Final

from dashboards.filters import Where
from dashboards.models.goodput import Cost, Tasks
from dashboards.prices import OTHERS, Price, Prices
from dashboards.queries.base import QueryLimits, QueryStore, Row, run
from dashboards.times import NS_PER_S
from tracer import semconv

MOST_REASONS: Final = 10
_OUTCOMES: Final = """\
FROM {database:Identifier}.otel_traces
WHERE SpanName = {outcome:String} AND mapContains(SpanAttributes, {success_key:String})"""
_TRACES: Final = f"""\
SELECT TraceId FROM {{database:Identifier}}.requests
WHERE {{picked}} AND TraceId IN (SELECT TraceId {_OUTCOMES})"""  # noqa: S608  our own words alone
_TASKS_SQL: Final = """\
SELECT count() AS tasks, countIf(success) AS correct, avg(score) AS mean_score, sum(length) AS time,
  quantilesExactInclusiveIf(0.5, 0.95)(length, success) AS q, sum(spent) AS cost,
  countIf(isNull(spent)) AS unpriced,
  sumMapIf(map(reason, toUInt64(1)), NOT success) AS reasons
FROM (
  SELECT TraceId,
    toInt64(max(toUnixTimestamp64Nano(Timestamp) + toInt64(E2ENs)))
      - toInt64(min(toUnixTimestamp64Nano(Timestamp))) AS length,
    if(countIf(Operation != '' AND Source != 'app' AND isNull({cost})) > 0, NULL,
      sumIf({cost}, Operation != '' AND Source != 'app')) AS spent
  FROM {database:Identifier}.requests
  WHERE TraceId IN ({traces})
  GROUP BY TraceId
) AS r
INNER JOIN (
  SELECT TraceId, argMax(
      (SpanAttributes[{success_key:String}] = 'true',
       toFloat64OrNull(SpanAttributes[{score_key:String}]), SpanAttributes[{reason_key:String}]),
      Timestamp) AS last,
    last.1 AS success, last.2 AS score, last.3 AS reason
  FROM {database:Identifier}.otel_traces
  WHERE SpanName = {outcome:String} AND mapContains(SpanAttributes, {success_key:String})
    AND TraceId IN ({traces})
  GROUP BY TraceId
) AS o USING (TraceId)"""


def cost_columns(prices: Prices) -> tuple[list[str], dict[str, object]]:
    """What :func:`cost_of` needs beside ``Model`` and ``n`` of a row a model, and its parameters."""
    cost, params = _cost_sql(prices)
    columns = [
        "sum(OutputTokens) AS output", f"countIf(isNotNull({cost})) AS priced", f"sum({cost}) AS cost"
    ]  # fmt: skip
    return columns, params


def cost_of(rows: list[Row], prices: Prices, window_ns: int | None, good: int) -> Cost:
    """The cost of the requests in ``rows``, one a model; ``good`` is how many of them were good."""
    n = sum(int(row["n"]) for row in rows)
    priced = sum(int(row["priced"]) for row in rows)
    output = sum(int(row["output"] or 0) for row in rows)
    tokens = sum(float(row["cost"] or 0) for row in rows) if priced else None
    gpu, seconds = _gpu(rows, prices, window_ns)
    whole = tokens if priced == n else None  # a part of the requests has no cost a request
    return Cost(
        currency=prices.currency, priced=priced, not_priced=n - priced, tokens=tokens, gpu=gpu,
        gpu_seconds=seconds, tokens_per_request=_over(whole, n),
        tokens_per_good_request=_over(whole, good), gpu_per_request=_over(gpu, n),
        gpu_per_good_request=_over(gpu, good),
        gpu_per_million_output_tokens=_over(gpu, output / 1e6),
    )  # fmt: skip


def tasks_of(
    store: QueryStore, picked: Where, prices: Prices, limits: QueryLimits
) -> Tasks:
    """The tasks among the traces of ``picked``, and what a correct one took."""
    expression, params = _cost_sql(prices)
    keys = {
        "outcome": semconv.OUTCOME_SPAN, "success_key": semconv.OUTCOME_SUCCESS,
        "score_key": semconv.OUTCOME_SCORE, "reason_key": semconv.OUTCOME_REASON,
    }  # fmt: skip
    given = {**picked.params, **params, **keys}
    if not run(store, f"SELECT 1 AS one {_OUTCOMES} LIMIT 1", given, limits):
        return Tasks(
            tasks=0, correct=0, mean_score=None, time_ns=0, time_per_correct_ns=None,
            correct_p50_ns=None, correct_p95_ns=None, cost=None, cost_per_correct=None,
            failed_for={},
        )  # fmt: skip
    traces = _TRACES.replace("{picked}", picked.sql)
    sql = _TASKS_SQL.replace("{cost}", expression).replace("{traces}", traces)
    row = run(store, sql, given, limits)[0]
    tasks, correct = int(row["tasks"]), int(row["correct"])
    cost = float(row["cost"]) if tasks and not row["unpriced"] and row["cost"] is not None else None
    reasons = sorted((row["reasons"] or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    return Tasks(
        tasks=tasks, correct=correct, mean_score=row["mean_score"] if tasks else None,
        time_ns=int(row["time"]),
        time_per_correct_ns=round(int(row["time"]) / correct) if correct else None,
        correct_p50_ns=round(row["q"][0]) if correct else None,
        correct_p95_ns=round(row["q"][1]) if correct else None,
        cost=cost, cost_per_correct=_over(cost, correct),
        failed_for={name: int(count) for name, count in reasons[:MOST_REASONS]},
    )  # fmt: skip


def _cost_sql(prices: Prices) -> tuple[str, dict[str, object]]:
    """The cost of a request as SQL (NULL where it is not known), with its parameters."""
    lines = {
        model: priced
        for model, one in prices.models.items()
        if model != OTHERS and (priced := _tokens(one)) is not None
    }
    others = _tokens(prices.models.get(OTHERS))
    unpriced = [m for m, one in prices.models.items() if m != OTHERS and _tokens(one) is None]
    if not lines and others is None:
        return "Cost", {}
    params: dict[str, object] = {"priced": list(lines) or [""], "unpriced": unpriced or [""]}
    columns: list[str] = []
    for i, name in enumerate(("price_in", "price_cached", "price_out")):
        params[name] = [line[i] for line in lines.values()] or [0.0]
        params[f"{name}_else"] = others[i] if others else 0.0
        columns.append(
            f"transform(toString(Model), {{priced:Array(String)}}, {{{name}:Array(Float64)}}, "
            f"{{{name}_else:Float64}})"
        )
    params["has_lines"], params["has_others"] = int(bool(lines)), int(others is not None)
    known = (
        "(({has_lines:UInt8} AND has({priced:Array(String)}, toString(Model))) OR "
        "({has_others:UInt8} AND NOT has({unpriced:Array(String)}, toString(Model)))) "
        "AND isNotNull(InputTokens) AND isNotNull(OutputTokens)"
    )
    cached = "least(ifNull(CachedTokens, 0), assumeNotNull(InputTokens))"
    total = (
        f"((assumeNotNull(InputTokens) - {cached}) * {columns[0]} + {cached} * {columns[1]} "
        f"+ assumeNotNull(OutputTokens) * {columns[2]}) / 1e6"
    )
    return f"coalesce(Cost, if({known}, {total}, NULL))", params


def _tokens(price: Price | None) -> tuple[float, float, float] | None:
    """Input, cached and output price a million tokens; None where one is missing."""
    if price is None or price.input_per_million is None or price.output_per_million is None:
        return None
    cached = price.cached_input_per_million
    return (
        price.input_per_million,
        price.input_per_million if cached is None else cached,
        price.output_per_million,
    )


def _gpu(
    rows: list[Row], prices: Prices, window_ns: int | None
) -> tuple[float | None, float | None]:
    """GPU cost and GPU seconds of the models that made requests; None where a price is missing."""
    if window_ns is None or not rows:
        return None, None
    cost = seconds = 0.0
    for row in rows:
        price = prices.of(row["Model"])
        if price is None or price.gpu_per_hour is None:
            return None, None
        held = price.gpus * window_ns / NS_PER_S
        seconds += held
        cost += held / 3600 * price.gpu_per_hour
    return cost, seconds


def _over(amount: float | None, n: float) -> float | None:
    return amount / n if amount is not None and n else None
