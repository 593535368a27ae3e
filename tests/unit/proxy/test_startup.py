"""An engine that does not start is told in one sentence."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from proxy.engine.startup import answered, explain, stderr_to

KV = (
    "(EngineCore pid=1) ERROR core.py:1 ValueError: To serve at least one request with the "
    "model's max seq len (8192), 2.00 GiB KV cache is needed, which is larger than the available "
    "KV cache memory (1.0 GiB)."
)
GPU = "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
CPU = (
    "RuntimeError: Worker failed with error 'Available memory on node 0 (9.39/10.84 GiB) on kv cache "
    "allocation is less than requested memory for kv (900.0 GiB).', please check the stack trace"
)
VISION = "RuntimeError: operator torchvision::nms does not exist"
PYDANTIC = (
    "ValidationError: 1 validation error for ModelConfig\n  Value error, Unrecognized model in /m. "
    "Should have a `model_type` key [type=value_error, input_value=ArgsKwargs((), {})]\n    For more"
)
HUB = "OSError: We couldn't connect to the model hub to load the files, and couldn't find them"


@pytest.mark.parametrize(
    ("log", "says"),
    [(KV, "KV cache does not fit"), (CPU, "KV cache does not fit"),
     (GPU, "KV cache does not fit"), (OOM, "KV cache does not fit"),
     (VISION, "torchvision does not fit"), (HUB, "model was not found"),
     ("KeyError: 'odd'", "KeyError: 'odd'")],
)  # fmt: skip
def test_known_causes_get_their_way_out(tmp_path, log, says):
    """The innermost error of the engine's log decides; the log is named."""
    file = tmp_path / "engine.log"
    file.write_text(f"Traceback (most recent call last):\n  File x\n{log}\n")
    problem = explain(RuntimeError("Engine core initialization failed. See root cause above."), file)
    assert says in str(problem)
    assert str(file) in str(problem)
    assert "\n" not in str(problem)
    assert problem.exit_code == 1


def test_a_frame_around_a_message_is_taken_off(tmp_path):
    """pydantic's several lines become the one that matters."""
    said = str(explain(ValueError(PYDANTIC), tmp_path / "none.log"))
    assert "the model folder is not whole" in said
    assert "Unrecognized model in /m" in said
    assert "\n" not in said
    assert "ArgsKwargs" not in said


def test_a_missing_log_still_gives_a_sentence(tmp_path):
    """Without a log the exception itself is told."""
    assert "ValueError: odd" in str(explain(ValueError("odd"), tmp_path / "none.log"))


def test_what_is_started_inside_writes_to_the_log_and_ours_comes_back(tmp_path, capfd):
    """A child keeps the log as its standard error; after the block ours is on the terminal."""
    log = tmp_path / "engine.log"
    with stderr_to(log):
        subprocess.run(
            [sys.executable, "-c", "import sys; sys.stderr.write('from the child')"], check=True
        )
    os.write(2, b"from us")
    assert log.read_text() == "from the child"
    assert capfd.readouterr().err == "from us"


async def test_a_call_that_a_dead_engine_leaves_unanswered_is_given_up():
    """vLLM's own future never ends then; an answer that is there counts all the same."""
    engine = SimpleNamespace(errored=False)
    calls = [asyncio.get_running_loop().create_future() for _ in range(2)]
    waiting = [asyncio.create_task(answered(engine, call)) for call in calls]
    await asyncio.sleep(0)
    calls[0].set_result("told")
    engine.errored = True
    assert await waiting[0] == "told"
    with pytest.raises(RuntimeError, match="ended while it was starting"):
        await waiting[1]
    assert calls[1].cancelled()
