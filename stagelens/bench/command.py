"""`stagelens bench`: options to settings, a run, and its result in the wanted form."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from stagelens.errors import UserError
from stagelens.settings_file import read_mapping

if TYPE_CHECKING:
    from pydantic import ValidationError

    from stagelens.bench.interrupt import Interrupts
    from stagelens.bench.settings import BenchSettings
    from stagelens.bench.whole import Ended

KEY_VARIABLE = "OPENAI_API_KEY"
_LIST = "a number, or several with commas between"


@click.command()
@click.option("--url", help="Address of an OpenAI-compatible server, with or without /v1.")
@click.option("--model", help="Model to ask for [default: the only one that the server has].")
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), help="chat.")
@click.option("--name", help="Name of the run [default: bench-TIME].")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Tag requests; repeatable.")
@click.option("--load", "file", type=click.Path(path_type=Path), help="Settings of a load (YAML).")
@click.option("--rate", help=f"Open loop: requests a second, {_LIST}.")
@click.option("--concurrency", help=f"Closed loop: requests at once, {_LIST}.")
@click.option("--arrivals", type=click.Choice(["poisson", "constant", "gamma"]), help="poisson.")
@click.option("--burstiness", type=float, help="Deviation of gamma's gaps over their mean (2).")
@click.option("--replay", metavar="RUN|FROM..TO", help="Send what the store recorded again.")
@click.option("--speed", type=float, help="Replay so many times as fast (1).")
@click.option("--duration", "duration_s", type=float, help="Seconds a level is measured (30).")
@click.option("--requests", type=int, help="Measured requests (conversations) a level.")
@click.option("--warmup", "warmup_s", type=float, help="Seconds before that (5; 0 in a replay).")
@click.option("--warmup-requests", type=int, help="Requests before the measured ones (0).")
@click.option("--input", help="Prompt tokens: 256, uniform:16,512, lognormal:512,300, … (256).")
@click.option("--output", help="Answer tokens, written likewise (64).")
@click.option("--data", type=click.Path(path_type=Path), help="Prompts of a JSON or JSONL file.")
@click.option("--prefix-share", type=float, help="Share of prompts with a shared prefix (0).")
@click.option("--prefix-tokens", type=int, help="Length of a shared prefix (256).")
@click.option("--prefixes", type=int, help="How many different ones (1).")
@click.option("--turns", help="Turns of a conversation, written like lengths (1).")
@click.option("--think", "think_s", type=float, help="Seconds between an answer and the next turn.")
@click.option("--stream/--no-stream", default=None, help="Ask for streams (yes).")
@click.option("--ignore-eos/--no-ignore-eos", default=None, help="Force answers' lengths (yes).")
@click.option("--body", help="JSON object laid over each request's body.")
@click.option("--timeout", "timeout_s", type=float, help="Longest wait for an answer (600 s).")
@click.option("--ca", type=click.Path(path_type=Path), help="Certificates to trust besides (PEM).")
@click.option("--seed", type=int, help="0.")
@click.option("--goodput", metavar="LIMITS", help="Count requests within ttft=0.5,tpot=0.05 (s).")
@click.option("--find-max-goodput", metavar="LIMITS", help="Search the highest rate within them.")
@click.option("--percentile", type=float, help="At which the limits must hold (95).")
@click.option("--precision", type=float, help="End the search at this share between rates (0.05).")
@click.option("--key-env", default=KEY_VARIABLE, show_default=True, help="Variable of the key.")
@click.option("--collector", help="API of the server's collector (http://127.0.0.1:8090).")
@click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the store.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv", "html"]),
              default="table", show_default=True)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="File for the result.")
@click.option("--quiet", is_flag=True, help="No progress on standard error.")
def bench(file: Path | None, key_env: str, **given: Any) -> None:  # noqa: ANN401
    """Send a realistic load to an OpenAI-compatible server and tell how it was answered.

    Give one of --rate, --concurrency, --replay and --find-max-goodput. Every request is
    tagged run=NAME, so that report, compare and whatif work on it where Stagelens serves.
    """
    from stagelens.bench.interrupt import Interrupts

    with Interrupts() as interrupts:
        try:
            ended = _ended(file, key_env, given, interrupts)
        except (KeyboardInterrupt, asyncio.CancelledError):
            _leave(interrupts, "stopped before there was anything to tell")
        try:
            code = _tell(ended, given["form"], given["out"])
        except KeyboardInterrupt:
            _leave(interrupts, "interrupted")
        if ended.result.interrupted:
            interrupts.deafen()
            code = interrupts.exit_code
    sys.exit(code)


def _leave(interrupts: Interrupts, said: str) -> NoReturn:
    interrupts.deafen()
    sys.stderr.write(f"stagelens: {said}\n")
    sys.exit(interrupts.exit_code)


def _tell(ended: Ended, form: str, out: Path | None) -> int:
    """0, or 1 where the file that was asked for could not be written."""
    text = ended.shown(form)
    written = out is not None and _written(out, text)
    if not written:
        click.echo(text, nl=False)
        sys.stdout.flush()
    return int(out is not None and not written)


def _ended(file: Path | None, key_env: str, given: dict[str, Any], interrupts: Interrupts) -> Ended:
    from stagelens.bench.whole import Where, run_bench

    settings = make_settings(file, given)
    where = Where(given["collector"], given["store"], given["data_dir"])
    name = settings.name or f"bench-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    if given["out"] is not None:
        _check_out(given["out"])
    return run_bench(settings, name, _key(key_env), where, given["quiet"], interrupts)


def _key(variable: str) -> str | None:
    """Without the line end that files and shells leave behind a key.

    Raises:
        UserError: it is no key, or the one variable that was asked for is not there.
    """
    key = os.environ.get(variable, "").strip()
    if not key and variable != KEY_VARIABLE:
        raise UserError(f"--key-env {variable}: the variable is not set: set it, or leave the option out", 2)
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{variable} holds what no key can: check the variable", 2)
    return key or None


def _check_out(out: Path) -> None:
    """Before the load, so that no result is in vain."""
    try:
        in_folder, is_folder = out.parent.is_dir(), out.is_dir()
    except OSError as problem:
        said = f"--out {out} cannot be written ({problem.strerror}): choose another place"
        raise UserError(said, 2) from None
    if not in_folder:
        raise UserError(f"--out {out} is in no folder: make it first", 2)
    if is_folder:
        raise UserError(f"--out {out} is a folder: name a file in it", 2)
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise UserError(f"--out {out} cannot be written: choose another place", 2)


def _written(out: Path, text: str) -> bool:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        sys.stderr.write(f"stagelens: --out {out} could not be written ({problem.strerror}): here it is\n")
        return False
    return True


def make_settings(file: Path | None, given: dict[str, Any]) -> BenchSettings:
    """The file's settings with the options that were given laid over them.

    Raises:
        UserError: exit code 2, naming the setting, its value and the rule.
    """
    from pydantic import ValidationError

    from stagelens.bench.settings import BenchSettings

    told = _read(file) if file is not None else {}
    for name in BenchSettings.model_fields:
        if (value := given.get(name)) not in (None, ()):
            told[name] = value
    if isinstance(body := told.get("body"), str):
        told["body"] = _json(body)
    for name in ("rate", "concurrency"):
        if isinstance(told.get(name), (str, int, float)):
            told[name] = str(told[name]).split(",")
    if isinstance(told.get("tags"), tuple):
        told["tags"] = _pairs(told["tags"])
    _lay_limits(told, given)
    try:
        return BenchSettings.model_validate(told)
    except ValidationError as problem:
        raise UserError(_first(problem), 2) from None


def _lay_limits(told: dict[str, Any], given: dict[str, Any]) -> None:
    search = given.get("find_max_goodput")
    if search and given.get("goodput"):
        raise UserError("--find-max-goodput holds the limits: leave --goodput out", 2)
    if search:
        told["find_max"] = True
    if search or isinstance(told.get("goodput"), str):
        told["goodput"] = _limits(search or told["goodput"])


def _read(file: Path) -> dict[str, Any]:
    told = read_mapping(file, "load file")
    if told is None:
        raise UserError(f"load file {file} must be a mapping of settings (key: value)", 2)
    return told


def _json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        raise UserError(f"--body {text!r} is no JSON object", 2) from None


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--tag {text} is not KEY=VALUE", 2)
        found[key] = value
    return found


def _limits(text: str) -> dict[str, float]:
    from stagelens.bench.limits import parse_limits

    try:
        return parse_limits([text])
    except ValueError as problem:
        raise UserError(str(problem), 2) from None


def _first(problem: ValidationError) -> str:
    errors = problem.errors(include_url=False)
    first = min(errors, key=lambda one: one["type"] == "missing")
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown setting {key} of a load: docs/bench.md lists those that there are"
    if first["type"] == "missing":
        return f"{key} is missing: give --{key}"
    said = first["msg"].removeprefix("Value error, ")
    return f"{key} = {first['input']!r}: {said}" if key else f"{said} (stagelens bench --help)"
