"""Our dashboards in Grafana's form, by Grafana's own SDK (a development dependency).

Classic JSON: Grafana 10 to 13 load it. ``python -m dashboards.grafana.sdk`` writes the
files beside this one, which the program ships.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from grafana_foundation_sdk.builders import (
    barchart,
    common,
    dashboard,
    heatmap,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog import builder, variants
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from dashboards.grafana.boards.every import BOARDS
from dashboards.grafana.shipped import JSON_FOLDER
from dashboards.grafana.spec import FORMATS, Board, Panel, Variable

PLUGIN: Final = "grafana-clickhouse-datasource"
SOURCE: Final = models.DataSourceRef(type_val=PLUGIN, uid="${datasource}")
TAG: Final = "stagelens"
SCHEMA: Final = 39
QUERY_TYPES: Final = {0: "timeseries", 1: "table", 3: "traces"}


class Query(variants.Dataquery):
    """One query of the ClickHouse plugin, for which the SDK has no builder."""

    def __init__(self, sql: str, form: int) -> None:
        self._sql = sql
        self._form = form

    def to_json(self) -> dict[str, object]:
        return {
            "refId": "A",
            "datasource": SOURCE,
            "editorType": "sql",
            "format": self._form,
            "queryType": QUERY_TYPES[self._form],
            "rawSql": self._sql,
        }


class QueryBuilder(builder.Builder[variants.Dataquery]):
    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def build(self) -> variants.Dataquery:
        return Query(self._panel.sql, FORMATS[self._panel.kind])


def encode(board: Board) -> str:
    """The dashboard's file: sorted keys, so that a change of one panel is a small diff."""
    return str(JSONEncoder(sort_keys=True, indent=2).encode(_dashboard(board))) + "\n"


def _dashboard(board: Board) -> models.Dashboard:
    made = (
        dashboard.Dashboard(board.title).uid(board.uid).description(board.about).tags([TAG])
        .timezone("browser").time("now-1h", "now").refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Stagelens").type(models.DashboardLinkType.DASHBOARDS)
              .tags([TAG]).as_dropdown(True).keep_time(True).include_vars(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type(PLUGIN))
    )  # fmt: skip
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_panel(panel))
    whole = made.build()
    whole.schema_version = SCHEMA
    for number, one in enumerate(whole.panels or (), 1):
        one.id_val = number
    return whole


def _variable(one: Variable) -> Any:  # noqa: ANN401  three builders without a common base
    if one.sql:
        asked: dict[str, object] = {
            "refId": one.name, "editorType": "sql", "queryType": "sql", "rawSql": one.sql,
        }  # fmt: skip
        return (
            dashboard.QueryVariable(one.name).label(one.label).description(one.about)
            .datasource(SOURCE).query(asked).multi(one.many).include_all(one.many)
            .current(_current(one)).refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.DISABLED)
        )  # fmt: skip
    if one.options:
        return (
            dashboard.CustomVariable(one.name).label(one.label).description(one.about)
            .values(",".join(one.options)).multi(one.many).include_all(one.many)
            .current(_current(one))
        )  # fmt: skip
    return (
        dashboard.TextBoxVariable(one.name).label(one.label).description(one.about)
        .default_value(one.start).current(_current(one))
    )  # fmt: skip


def _current(one: Variable) -> models.VariableOption:
    if one.many:
        return models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return models.VariableOption(selected=True, text=one.start, value=one.start)


def _panel(one: Panel) -> Any:  # noqa: ANN401  one builder for each kind
    made = (
        _MAKERS[one.kind](one).title(one.title).description(one.about).datasource(SOURCE)
        .with_target(QueryBuilder(one)).span(one.width).height(one.height)
    )  # fmt: skip
    if one.repeat:
        made = made.repeat(one.repeat).repeat_direction("h").max_per_row(3)
    if one.kind != "traces":
        made = made.unit(one.unit)
        for column, unit in one.units.items():
            made = made.override_by_name(column, [models.DynamicConfigValue(id_val="unit", value=unit)])
    for column, url in one.links.items():
        link = {"title": "Open the trace", "url": url, "targetBlank": False}
        made = made.override_by_name(
            column, [models.DynamicConfigValue(id_val="links", value=[link])]
        )
    return made


def _timeseries(one: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel().line_width(1).fill_opacity(25 if one.stacked else 5).min(0)
        .show_points(common_models.VisibilityMode.AUTO)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
                 .sort(common_models.SortOrder.DESCENDING))
    )  # fmt: skip
    if one.points:
        made = made.draw_style(common_models.GraphDrawStyle.POINTS)
    if one.stacked:
        made = made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    return made


def _legend() -> common.VizLegendOptions:
    made = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.LIST)
    return made.placement(common_models.LegendPlacement.BOTTOM).show_legend(True)


def _stat(_: Panel) -> stat.Panel:
    return (
        stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.NONE)
    )  # fmt: skip


def _table(_: Panel) -> table.Panel:
    return table.Panel().show_header(True).filterable(True)


def _barchart(one: Panel) -> barchart.Panel:
    made = (
        barchart.Panel().orientation(common_models.VizOrientation.HORIZONTAL).fill_opacity(80)
        .legend(_legend())
    )  # fmt: skip
    return made.stacking(common_models.StackingMode.NORMAL) if one.stacked else made


def _heatmap(_: Panel) -> heatmap.Panel:
    axis = heatmap.YAxisConfig().unit("ms")
    return heatmap.Panel().calculate(True).y_axis(axis).calculation(
        common.HeatmapCalculationOptions().y_buckets(
            common.HeatmapCalculationBucketConfig().scale(
                common.ScaleDistributionConfig().type(common_models.ScaleDistribution.LOG).log(2)
            )
        )
    )


def _traces(_: Panel) -> dashboard.Panel:
    return dashboard.Panel().type("traces")


_MAKERS: Final[dict[str, Callable[[Panel], Any]]] = {
    "timeseries": _timeseries, "stat": _stat, "table": _table,
    "barchart": _barchart, "heatmap": _heatmap, "traces": _traces,
}  # fmt: skip


def main() -> None:
    """Write every dashboard's file."""
    for board in BOARDS:
        (JSON_FOLDER / f"{board.uid}.json").write_text(encode(board), encoding="utf-8")


if __name__ == "__main__":
    main()
