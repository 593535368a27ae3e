"""vLLM's own command-line arguments, checked before anything is started."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy.errors import ProxyError

OWNED = ("--model", "--host", "--port", "--uds")
"""Flags that `stagelens serve` sets itself."""


def quiet_environment() -> None:
    """Defaults that only apply where the user said nothing.

    The engine core must be spawned, not forked: the proxy runs threads.
    """
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def check_model(model: str) -> None:
    """A path must be a model folder; anything else is a name for the model hub.

    Raises:
        ProxyError: exit code 2, for a path that is not there or is no model.
    """
    if not model.strip() or "\0" in model:
        raise ProxyError(
            "--model names nothing: give a model folder or a model's name", exit_code=2
        )
    folder = Path(model)
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not list(folder.glob("params.json")):
            raise ProxyError(
                f"model folder {model} has no config.json: give a folder as saved by "
                "transformers' save_pretrained, or a model's name",
                exit_code=2,
            )
    elif folder.exists() and folder.suffix != ".gguf":
        raise ProxyError(f"model {model} is a file: a model is a folder or a name", exit_code=2)
    elif looks_like_path and not folder.exists():
        raise ProxyError(
            f"model folder {model} does not exist: check the path, or give a model's name",
            exit_code=2,
        )


def parse_engine_args(model: str, host: str, port: int, flags: Sequence[str]) -> Any:
    """vLLM's parsed arguments for ``flags``, with iteration details switched on.

    Raises:
        ProxyError: exit code 2, for a flag that vLLM does not know, that Stagelens
            owns, or that takes away the figures Stagelens needs.
    """
    owned = [f for f in flags if f.split("=")[0] in OWNED]
    if owned:
        raise ProxyError(
            f"engine flag {owned[0]} is set by stagelens itself: give it before the --",
            exit_code=2,
        )
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser(prog="stagelens serve … --"))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(
                ["--model", model, "--host", host, "--port", str(port), *flags]
            )
        validate_parsed_serve_args(args)
    except SystemExit as refusal:
        if not refusal.code:
            raise
        last = said.getvalue().strip().splitlines()[-1:] or ["unknown flag"]
        reason = last[0].split("error: ", 1)[-1]
        raise ProxyError(
            f"engine flags: {reason} (`vllm serve --help` lists them)", exit_code=2
        ) from None
    except (TypeError, ValueError) as refusal:
        raise ProxyError(f"engine flags: {refusal}", exit_code=2) from None
    return _check(args, asked_details="--enable-logging-iteration-details" in flags)


def _check(args: Any, *, asked_details: bool) -> Any:
    if args.disable_log_stats:
        raise ProxyError(
            "engine flag --disable-log-stats takes away the engine's stamps: leave it out, "
            "stage times come from them",
            exit_code=2,
        )
    if (getattr(args, "api_server_count", None) or 1) > 1:
        raise ProxyError(
            "engine flag --api-server-count must be 1: the proxy serves in its own process; "
            "run more proxies beside each other instead",
            exit_code=2,
        )
    if not asked_details:
        args.enable_logging_iteration_details = True
        _silence_iteration_log()
    return args


def _silence_iteration_log() -> None:
    """The details are wanted in the statistics, not as a line of log for each step."""
    import logging

    logging.getLogger("vllm.v1.metrics.loggers").addFilter(
        lambda record: "Iteration(" not in str(record.msg)
    )
