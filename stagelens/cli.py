"""The command line. Exit 0: done, 1: failed, 2: asked wrongly; logs go to standard error."""

from __future__ import annotations

import logging
import sys
from io import StringIO
from pathlib import Path
from typing import Any

try:
    import click
except ImportError:  # the light SDK install has no command line
    sys.exit("stagelens: error: the command needs the server parts: pip install 'stagelens[server]'")

from stagelens.analysing import attribution, cache, goodput, interference, path, throughput
from stagelens.asking import compare, whatif
from stagelens.bench.command import bench
from stagelens.dashing import dashboards
from stagelens.doctor.command import doctor
from stagelens.documents import documents
from stagelens.errors import UserError
from stagelens.ingesting import ingest
from stagelens.output import OutputLost, give_up_stdout, watch_stdout
from stagelens.reading import report, requests, status, trace
from stagelens.storing import store


class _Interrupted(Exception):
    """Ctrl-C amid a command. Of a KeyboardInterrupt click makes an empty line and exit code 1."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="stagelens", prog_name="stagelens")
def cli() -> None:
    """Where did the time go? Tracing for LLM requests, from your code to the engine."""


@cli.command(context_settings={"ignore_unknown_options": False})
@click.option("--model", help="Model folder or name for the embedded vLLM engine.")
@click.option("--upstream", multiple=True, metavar="URL",
              help="Forward to this OpenAI-compatible server instead; repeatable.")
@click.option("--usage", is_flag=True, help="Ask upstreams for the usage of streams; hide it again.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (YAML).")
@click.option("--host", help="Address to listen on (127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the API (8000; 0 = any).")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of store and logs.")
@click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB.")
@click.option("--collector", help="OTLP/HTTP URL of a collector that runs elsewhere.")
@click.option("--otlp-port", type=click.IntRange(0, 65535), default=4318, show_default=True)
@click.option("--grpc-port", type=click.IntRange(0, 65535),
              help="OTLP/gRPC [default: 4317; any free one where --otlp-port is 0].")
@click.option("--api-port", type=click.IntRange(0, 65535), default=8090, show_default=True)
@click.option("--request-timeout", type=float, help="Longest a request may take, in seconds.")
@click.option("--first-token-timeout", type=float, help="Longest wait for an upstream's first token.")
@click.option("--max-request-bytes", type=int, help="Largest request (with --upstream).")
@click.option("--max-in-flight", type=int, help="Most requests at once (with --upstream).")
@click.option("--shutdown-timeout", type=int, help="Seconds running requests get at shutdown.")
@click.option("--warm-after", type=float, help="Seconds after start-up that count as cold (60).")
@click.option("--tag", multiple=True, metavar="KEY=VALUE", help="Tag every request; repeatable.")
@click.option("--access-log", is_flag=True, default=None, help="Log a line a request.")
@click.option("--ready-file", type=click.Path(path_type=Path), help="Write the URLs here as JSON.")
@click.argument("engine_flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- ENGINE FLAGS]")
def serve(config_file: Path | None, **given: Any) -> None:  # noqa: ANN401
    """Serve a model as an OpenAI-compatible API, or stand before one, and trace every request.

    Flags after -- go to vLLM: stagelens serve --model M -- --max-model-len 2048
    """
    from proxy.left_behind import leave
    from stagelens.serving import ServePorts
    from stagelens.serving import serve as run
    from stagelens.settings import load_config

    overrides = {
        "model": given["model"],
        "engine_flags": list(given["engine_flags"]) or None,
        "data_dir": given["data_dir"],
        "store": given["store"],
        "collector": given["collector"],
        "upstream": _upstream(given["upstream"], given["usage"], given["first_token_timeout"]),
        "access": {
            "max_request_bytes": given["max_request_bytes"],
            "max_in_flight": given["max_in_flight"],
        },
        "proxy": {
            "host": given["host"],
            "port": given["port"],
            "request_timeout_s": given["request_timeout"],
            "shutdown_timeout_s": given["shutdown_timeout"],
            "warm_after_s": given["warm_after"],
            "access_log": given["access_log"],
            "tags": _tags(given["tag"]),
        },
    }
    config = load_config(config_file, overrides)
    ports = ServePorts(given["otlp_port"], _grpc(given["grpc_port"], given["otlp_port"]), given["api_port"])
    try:
        code = run(config, ports, given["ready_file"], config_file)
    except KeyboardInterrupt:
        sys.stderr.write("stagelens: stopped before it served\n")
        code = 130
    leave(code)


def _upstream(
    urls: tuple[str, ...], usage: bool, first_token_s: float | None
) -> dict[str, Any] | None:
    told: dict[str, Any] = {}
    if urls:
        told["targets"] = [{"url": url} for url in urls]
    if usage:
        told["ask_usage"] = True
    if first_token_s is not None:
        told["first_token_timeout_s"] = first_token_s
    return told or None


def _tags(given: tuple[str, ...]) -> dict[str, str] | None:
    from proxy.recorder import parse_tags

    tags: dict[str, str] = {}
    for text in given:
        found = parse_tags(text)
        if len(found) != 1:
            raise UserError(f"--tag {text} is not KEY=VALUE (letters, digits, . _ - in KEY)", 2)
        tags.update(found)
    return tags or None


@cli.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings (YAML).")
@click.option("--store", help="Store: chdb:///PATH or clickhouse://USER@HOST:PORT/DB.")
@click.option("--cluster", help="Replicated and distributed tables on this ClickHouse cluster.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of store and logs.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--otlp-port", type=click.IntRange(0, 65535), default=4318, show_default=True)
@click.option("--grpc-port", type=click.IntRange(0, 65535),
              help="OTLP/gRPC [default: 4317; any free one where --otlp-port is 0].")
@click.option("--api-port", type=click.IntRange(0, 65535), default=8090, show_default=True)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Write the URLs here as JSON.")
@click.option("--with-parent", is_flag=True, hidden=True)
def collect(
    config_file: Path | None,
    store: str | None,
    cluster: str | None,
    data_dir: Path | None,
    host: str,
    otlp_port: int,
    grpc_port: int | None,
    api_port: int,
    ready_file: Path | None,
    with_parent: bool,
) -> None:
    """Receive OTLP, keep it in the store, serve the API."""
    from collectors.store.url import StoreUrl
    from dashboards.settings import read_token
    from proxy.server import run_loop
    from stagelens.collecting import run_collector
    from stagelens.paths import DataFolder, default_data_dir
    from stagelens.ready import check_ready
    from stagelens.settings import load_config

    check_ready(ready_file)
    on = {"store": {"cluster": cluster}}
    config = load_config(config_file, {"store": store, "data_dir": data_dir, "collect": on})
    token, url = read_token(config.api), config.store
    told = [ready_file] if ready_file is not None else []
    if url is None:
        folder = DataFolder(config.data_dir or default_data_dir())
        folder.prepare()
        url = folder.store_url
        told.append(folder.running)
    ports = otlp_port, _grpc(grpc_port, otlp_port), api_port
    run_loop(
        run_collector(
            config.collect, StoreUrl.parse(url), host, ports, told,
            with_parent=with_parent, prices=config.prices, token=token,
            asking=config.api, data_dir=config.data_dir,
        )
    )  # fmt: skip


def _grpc(told: int | None, otlp_port: int) -> int:
    return told if told is not None else 4317 if otlp_port else 0


for analysis in (attribution, cache, goodput, interference, path, throughput):
    cli.add_command(analysis)
cli.add_command(bench)
cli.add_command(compare)
cli.add_command(documents)
cli.add_command(dashboards)
cli.add_command(doctor)
cli.add_command(ingest)
cli.add_command(report)
cli.add_command(requests)
cli.add_command(status)
cli.add_command(store)
cli.add_command(trace)
cli.add_command(whatif)


def main() -> None:
    """Run the command line; a user's mistake is one line and an exit code."""
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="stagelens: %(levelname)s: %(message)s"
    )
    from dashboards.visible import visible

    watch_stdout()
    try:
        code = cli.main(prog_name="stagelens", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as problem:
        told = StringIO()
        problem.show(told)
        sys.stderr.write("\n".join(visible(line) for line in told.getvalue().split("\n")))
        sys.exit(problem.exit_code)
    except click.Abort:
        sys.exit(1)
    except (_Interrupted, KeyboardInterrupt):
        sys.stderr.write("stagelens: interrupted\n")
        sys.exit(130)
    except OutputLost as problem:
        give_up_stdout()
        sys.stderr.write(f"stagelens: error: standard output could not be written ({problem})\n")
        sys.exit(1)
    except Exception as problem:
        wrong = _user_mistake(problem)
        if wrong is None:
            raise
        sys.stderr.write(f"stagelens: error: {visible(str(problem))}\n")
        sys.exit(wrong)
    sys.exit(code if isinstance(code, int) else 0)


def _user_mistake(problem: Exception) -> int | None:
    """The exit code of an error that is told in one sentence; None for a fault of ours."""
    if isinstance(problem, UserError):
        return problem.exit_code
    names = {base.__name__ for base in type(problem).__mro__}
    if names & {"ProxyError", "StoreError"}:
        return int(getattr(problem, "exit_code", 1))
    if "DashboardError" in names:
        return 2 if names & {"BadValueError", "AmbiguousError"} else 1
    return None
