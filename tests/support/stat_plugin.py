"""A real vLLM stat-logger plugin that writes vLLM's own figures of each finished request.

vLLM finds it by entry point, so it is laid out as an installed distribution in a
folder that goes on the server's PYTHONPATH.
"""

from __future__ import annotations

import json
from pathlib import Path

MODULE = """
import json, os
from vllm.v1.metrics.loggers import StatLoggerBase

class FinishedLog(StatLoggerBase):
    def __init__(self, vllm_config, engine_index=0):
        self._file = open(os.environ["STAGELENS_TEST_STATS"], "a", buffering=1)

    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
        for one in getattr(iteration_stats, "finished_requests", None) or ():
            self._file.write(json.dumps({
                "id": one.request_id, "queue": one.queued_time, "prefill": one.prefill_time,
                "decode": one.decode_time, "input": one.num_prompt_tokens,
                "output": one.num_generation_tokens, "cached": one.num_cached_tokens,
            }) + "\\n")

    def log(self):
        pass

    def log_engine_initialized(self):
        pass
"""


def install(folder: Path) -> Path:
    """Lay the plugin out in ``folder``; returns it for PYTHONPATH."""
    info = folder / "stagelens_test_stats-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "stagelens_test_stats.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stagelens-test-stats\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.stat_logger_plugins]\nfinished_log = stagelens_test_stats:FinishedLog\n"
    )
    return folder


def read(file: Path) -> dict[str, dict[str, float]]:
    """vLLM's figures by request id."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["id"]: row for row in rows}
