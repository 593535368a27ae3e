"""All dashboards, in the order of their files."""

from __future__ import annotations

from typing import Final

from dashboards.grafana.boards import engine, explorer, overview, slo, trace

BOARDS: Final = (overview.BOARD, explorer.BOARD, trace.BOARD, engine.BOARD, slo.BOARD)
