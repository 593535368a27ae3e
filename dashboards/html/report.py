"""`stagelens report --format html`: one file with all figures and plots, and no network.

Its policy (in the file itself) runs the two scripts whose hashes it names and nothing
else. All texts are written out and escaped: names, routes and tags are a stranger's input.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from dashboards.html.figures import Figure, figures, key_of
from dashboards.html.tables import Cell, bounds, named, shown, table, time
from dashboards.models.report import Distribution, Losses, Report, Slice
from dashboards.models.series import Series
from dashboards.queries.intervals import MOST_VALUES
from dashboards.queries.measures import LEVEL_NAMES
from dashboards.terminal.report import MEASURE_NAMES
from dashboards.terminal.text import rate
from dashboards.times import many, percent, to_text
from dashboards.visible import short

_BELOW: Final = (
    "Below each percentile: its 95 % interval; “?” is a bound that so few values do not have. "
    f"None for ITL and for more than {MOST_VALUES:,} values."
)
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Stagelens report</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
<script type="application/json" id="figures">{data}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""


def render_html(report: Report, series: Sequence[Series]) -> str:
    """The whole file. ``series`` are those of E2E and of TTFT over the same requests."""
    plots = figures(report, series)
    plotly, script = (
        _script("plotly.package_data", "plotly.min.js"),
        _script(__package__, "report.js"),
    )
    data = [{"data": one.data, "layout": one.layout} for one in plots]
    return _PAGE.format(
        policy=_policy(plotly, script),
        style=_text("dashboards.web", "static/style.css"),
        body="\n".join(_body(report, plots)),
        data=_json(data),
        plotly=plotly,
        script=script,
    )


def _text(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")


def _script(package: str, name: str) -> str:
    """A script with the line ends that a browser sees, since its hash is of those."""
    return _text(package, name).replace("\r\n", "\n").replace("\r", "\n")


def _policy(*scripts: str) -> str:
    hashes = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts)
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e")


def _body(report: Report, plots: Sequence[Figure]) -> Iterable[str]:
    made = shown(to_text(report.made_at_unix_ns))
    yield f"<h1>Stagelens report</h1>\n<p>Made at {made}; times in UTC.</p>"
    yield _lines(report.reading, "p")
    if report.overall.counts.total:
        yield _cards(report.overall)
        yield table("Percentiles by stage", _HEADS, _stage_rows(report.overall))
        yield f'<p class="quiet">{shown(_BELOW)}</p>'
    yield f"<h2>Losses</h2>\n<p>{shown(_lost(report.losses))}</p>"
    for n, one in enumerate(plots):
        note = f'<p class="quiet">{shown(one.note)}</p>' if one.note else ""
        title = _plain(one.title)
        yield (
            f"{named('h2', title)}{note}\n"
            f'<div class="chart" id="figure-{n}" role="img" aria-label="{shown(short(title))}"></div>'
        )
    if report.groups:
        yield named("h2", f"By {', '.join(report.by)}")
        yield table("Groups", _GROUP_HEADS, [_group_row(one) for one in report.groups])
    if report.groups_left_out.groups:
        left = report.groups_left_out
        yield f"<p>{many(left.groups, 'smaller group')} with {many(left.requests, 'request')} left out.</p>"
    yield f"<h2>What this rests on</h2>\n<ul>{_lines(report.assumptions, 'li')}</ul>"


def _plain(title: str) -> str:
    """A plot's title as text: it was made for plotly, which reads entities."""
    return title.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _lines(lines: Iterable[str], tag: str) -> str:
    return "\n".join(f"<{tag}>{shown(line)}</{tag}>" for line in lines)


def _cards(overall: Slice) -> str:
    counts, activity = overall.counts, overall.activity
    ttft, e2e = overall.measure("ttft"), overall.measure("e2e")
    facts = (
        (
            "Requests",
            f"{counts.total:,}",
            f"{counts.error:,} error, {counts.cancelled:,} cancelled",
        ),
        ("TTFT p50 / p95", f"{time(ttft.p50_ns)} / {time(ttft.p95_ns)}", f"n {ttft.n:,}"),
        ("E2E p50 / p95", f"{time(e2e.p50_ns)} / {time(e2e.p95_ns)}", f"n {e2e.n:,}"),
        (
            "Requests/s",
            rate(activity.requests_per_s),
            f"peak concurrency {activity.peak_concurrency:,}",
        ),
        (
            "Output tokens/s",
            rate(activity.output_tokens_per_s),
            f"known for {activity.output_tokens_known:,}",
        ),
        (
            "Cold / cached",
            f"{counts.cold:,} / {counts.cached:,}",
            f"cached not known for {counts.cached_unknown:,}",
        ),
    )
    cards = "".join(
        f'<div class="card"><dt>{name}</dt><dd>{_whole(value)}<small>{shown(note)}</small></dd></div>'
        for name, value, note in facts
    )
    return f'<dl class="cards">{cards}</dl>'


def _whole(value: str) -> str:
    """A card's figures, none of which is broken in two lines."""
    parts = value.split(" / ")
    return " / ".join(f'<span class="whole">{shown(part)}</span>' for part in parts)


_HEADS: Final = ("stage", *LEVEL_NAMES, "max", "n", "no data", "share of E2E", "of the slowest 5 %")
_GROUP_HEADS: Final = (
    "group",
    "n",
    "TTFT p50",
    "TTFT p95",
    "E2E p50",
    "E2E p95",
    "errors",
    "cancelled",
)


def _stage_rows(overall: Slice) -> list[list[str | Cell]]:
    rows: list[list[str | Cell]] = [
        [
            f"· {one.stage} (in {one.part_of})" if one.part_of else one.stage,
            *_distribution(one), _share(one.share), _share(one.slowest_share),
        ]
        for one in overall.stages
    ]  # fmt: skip
    rows += [[MEASURE_NAMES[one.measure], *_distribution(one), "", ""] for one in overall.measures]
    return rows


def _distribution(one: Distribution) -> list[str | Cell]:
    levels = [_level(one, p) for p in LEVEL_NAMES]
    return [*levels, time(one.max_ns), f"{one.n:,}", f"{one.no_data:,}"]


def _level(one: Distribution, percentile: str) -> Cell:
    """A percentile, and below it where the true one lies at 95 %."""
    found = one.interval(percentile)
    below = "" if found is None else bounds(found.low_ns, found.high_ns)
    return Cell(time(getattr(one, f"{percentile}_ns")), below)


def _group_row(group: Slice) -> list[str]:
    ttft, e2e = group.measure("ttft"), group.measure("e2e")
    times = (ttft.p50_ns, ttft.p95_ns, e2e.p50_ns, e2e.p95_ns)
    counts = group.counts
    return [
        key_of(group), f"{counts.total:,}", *map(time, times), f"{counts.error:,}", f"{counts.cancelled:,}",
    ]  # fmt: skip


def _lost(losses: Losses) -> str:
    if losses.spans_in_window is None:
        return "No sender told its losses."
    return (
        f"{many(losses.spans_in_window, 'span')} lost at {many(losses.senders, 'sender')} in this window."
    )


def _share(value: float | None) -> str:
    return "no data" if value is None else percent(value, 1)
