"""The command as a user runs it against a fake: its forms, its exit codes, both sides' figures."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest

from stagelens.bench.export import COLUMNS
from tests.fake_llm.server import Reply
from tests.support.load_target import answer, hanging_target, load_target, tags_of

MS = 1_000_000


async def bench(
    *options: str, interrupt: asyncio.Event | None = None, presses: int = 1,
    sent: signal.Signals = signal.SIGINT, hold: bool = False,
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error. With ``hold`` the signal comes again
    and again when the result (JSON) is told, until it has ended."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stagelens", "bench", *options, limit=2**20,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OPENAI_API_KEY": "sk-secret"},
    )  # fmt: skip
    if interrupt is not None:
        await interrupt.wait()
        for _ in range(presses):
            made.send_signal(sent)
    told = b""
    if hold:  # the whole result is out: nobody who holds the key loses it
        assert made.stdout is not None
        told = await asyncio.wait_for(made.stdout.readuntil(b"\n}\n"), 60)
        await _hold(made, sent)
    out, err = await asyncio.wait_for(made.communicate(), 60)
    out = told + out
    return made.returncode or 0, out.decode(), err.decode()


async def _hold(made: asyncio.subprocess.Process, sent: signal.Signals) -> None:
    while made.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(made.pid, sent)  # send_signal polls first, and takes the exit code from its waiter
        await asyncio.sleep(0.01)


QUICK = ("--warmup", "0", "--input", "20", "--output", "3", "--quiet")


async def test_a_sweep_tells_each_level_and_what_it_rests_on():
    """Two rates: JSON with both, their own runs, assumptions, machine and versions; no server side."""
    async with load_target(lambda a: answer(a, ttft_s=0.02, itl_s=0.01)) as fake:
        code, out, _ = await bench(
            "--url", fake.url, "--rate", "40,80", "--requests", "12", "--name", "n", "--goodput",
            "ttft=5,tpot=1", "--format", "json", *QUICK,
        )  # fmt: skip
        runs = {tags_of(a).get("run") for a in fake.requests if a.header("x-stagelens-tags")}
    told = json.loads(out)
    assert (code, told["name"], told["model"], told["interrupted"]) == (0, "n", "m", False)
    assert [level["run"] for level in told["levels"]] == ["n.rate40", "n.rate80"]
    assert {"n.rate40", "n.rate80"} <= runs
    for level in told["levels"]:
        figures = {one["measure"]: one for one in level["figures"]}
        assert level["counts"]["ok"] == level["good"] == 12
        assert figures["ttft"]["p50_ns"] >= 20 * MS
        assert figures["itl"]["n"] == 24
        assert figures["tpot"]["n"] == 12
        assert figures["e2e"]["p50_ns"] >= 40 * MS
        assert level["inputs_as_meant"] == level["outputs_as_meant"] == 12
    assert "no Stagelens stands before" in told["server_note"]
    text = " ".join(told["assumptions"])
    for part in ("Poisson", "prompts 20, answers 3", "Warm-up: none", "Seed 0", "lengths are exact"):
        assert part in text
    assert told["versions"]["stagelens"]
    assert "cores" in told["machine"]
    assert "sk-secret" not in out


@pytest.mark.parametrize("form", ["table", "csv", "html"])
async def test_each_form_has_every_request_or_figure(tmp_path, form):
    """A table to read, a line a request, a page of its own."""
    out = tmp_path / "out"
    async with load_target() as fake:
        code, _, err = await bench(
            "--url", fake.url, "--concurrency", "2", "--requests", "6", "--name", "n", "--format",
            form, "--out", str(out), *QUICK,
        )  # fmt: skip
    text = out.read_text()
    assert (code, err) == (0, "")
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert (len(rows), tuple(rows[0])) == (6, COLUMNS)
        assert all(int(row["e2e_ns"]) > 0 and row["measured"] == "True" for row in rows)
    elif form == "table":
        for part in ("run n: m at", "6 ok, 0 failed", "TTFT", "sent late", "* Load: closed loop"):
            assert part in text
    else:
        assert text.startswith("<!doctype html>")
        assert "Plotly.newPlot" in text
        assert "src=" not in text.split("<script>")[0]


async def test_the_page_tells_what_failed_and_why(tmp_path):
    """A run whose requests were refused does not look like a few quick ones."""
    out = tmp_path / "out.html"

    def script(asked):
        if len(fake.requests) > 6:
            return Reply([b"<b>too many</b>"], status=429, framing="length")
        return answer(asked)

    async with load_target(script) as fake:
        await bench("--url", fake.url, "--concurrency", "1", "--requests", "10", "--format", "html",
                    "--out", str(out), *QUICK)  # fmt: skip
    text = out.read_text().split("<script>")[0]
    refused = 10 - (6 - 3)
    assert f"10 sent (0 more as warm-up), 3 ok, {refused} failed, {refused} http_429" in text
    assert "http_429: &lt;b&gt;too many&lt;/b&gt;" in text
    assert "requests/s sent" in text


@pytest.mark.parametrize("form", ["table", "json", "csv", "html"])
async def test_what_a_server_names_and_says_commands_no_terminal_and_no_page(form):
    """Escapes, C1 controls, direction marks and half characters in a model's name, an end, an error."""
    odd = "\x1b[31m\x9b2J\u202e\x00\ud800<b>"

    def script(asked):
        if asked.target.endswith("/models"):
            body = json.dumps({"data": [{"id": odd}]}).encode()
            return Reply([body], content_type="application/json", framing="length")
        if len(fake.requests) % 2:
            return Reply([odd.encode("utf-8", "surrogatepass")], status=500, framing="length")
        body = {"choices": [{"message": {"content": odd}, "finish_reason": odd}]}
        return Reply([json.dumps(body).encode()], content_type="application/json", framing="length")

    async with load_target(script) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--concurrency", "1", "--requests", "6", "--no-stream",
            "--format", form, *QUICK,
        )  # fmt: skip
    written = out.split("<script>")[0] + out.rsplit("</script><script>", 1)[-1]
    assert (code, err) == (0, "")
    assert [one for one in written if not one.isprintable() and one != "\n"] == []
    assert "x1b[31m" in written
    assert form != "html" or "<b>" not in written


async def test_an_interrupt_ends_with_what_there_is():
    """Ctrl-C: exit code 130, and the answered requests are in the figures."""
    reached = asyncio.Event()

    async with hanging_target(reached) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--rate", "50", "--format", "json", *QUICK, interrupt=reached
        )
    told = json.loads(out)
    [level] = told["levels"]
    assert (code, told["interrupted"]) == (130, True)
    assert 5 <= level["counts"]["ok"] <= 9
    assert level["counts"]["interrupted"] >= 1
    assert "Traceback" not in err


async def test_a_search_without_requests_has_no_verdict():
    """A rate so low that none fell into its time is neither met nor missed."""
    async with load_target() as fake:
        code, out, _ = await bench(
            "--url", fake.url, "--find-max-goodput", "ttft=5", "--rate", "0.3", "--duration", "0.1",
            "--warmup", "0.1", "--input", "20", "--output", "3", "--quiet",
        )  # fmt: skip
    assert code == 0
    text = " ".join(out.split())
    assert "no rate that was tried meets ttft <= 5 s at p95 (at 0.3/s no request was measured" in text


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (("--rate", "1"), "url is missing: give --url", 2),
        (("--url", "http://127.0.0.1:9", "--rate", "1", "--concurrency", "1"), "give one of rate", 2),
        (("--url", "http://127.0.0.1:9", "--rate", "1"), "no server answers", 1),
        (("--url", "http://127.0.0.1:9", "--rate", "1", "--out", "/no/such/x"), "is in no folder", 2),
        (("--url", "http://127.0.0.1:9", "--rate", "1", "--out", "/"), "is a folder", 2),
    ],
)
async def test_a_mistake_is_one_sentence(options, said, code):
    """No traceback."""
    found, out, err = await bench(*options)
    assert (found, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


async def test_a_result_that_cannot_be_written_is_shown_instead():
    """The load was sent: its figures are not lost with a full disk."""
    async with load_target(answer) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--rate", "50", "--requests", "3", "--warmup", "0", "--quiet",
            "--format", "json", "--out", "/dev/full",
        )  # fmt: skip
    assert json.loads(out)["levels"][0]["counts"]["ok"] == 3
    assert "--out /dev/full could not be written (No space left on device)" in err
    assert code == 1


async def test_a_result_that_standard_output_does_not_take_is_one_line():
    """Exit code 1 as for `--out`, and no traceback."""
    async with load_target(answer) as fake:
        made = await asyncio.create_subprocess_shell(
            f"{sys.executable} -m stagelens bench --url {fake.url} --rate 50 --requests 3 "
            f"--format json {' '.join(QUICK)} >/dev/full",
            stderr=subprocess.PIPE,
        )
        _, err = await asyncio.wait_for(made.communicate(), 60)
    assert made.returncode == 1
    assert err == b"stagelens: error: standard output could not be written (No space left on device)\n"
