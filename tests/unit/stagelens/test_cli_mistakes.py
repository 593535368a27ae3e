"""A user's mistake is one clear sentence and an exit code, never a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

OWNER = """
import sys
from pathlib import Path
from collectors.store.lock import lock_folder
lock = lock_folder(Path({folder!r}))
print("ok", flush=True)
sys.stdin.read()
"""
HERE = {"PYTHONWARNINGS": "ignore"}


def stagelens(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stagelens", *map(str, arguments)],
        env={**os.environ, **HERE, **environment}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def the_sentence(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on standard error; no traceback, nothing on standard output."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.strip().splitlines() if line.startswith("stagelens: error")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that passes for a model until an engine looks at it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_no_model_and_an_unknown_model_folder(tmp_path):
    """Nothing to serve, and a path that is not there: exit 2."""
    assert "give --model" in the_sentence(stagelens("serve", "--data-dir", tmp_path), 2)
    done = stagelens("serve", "--model", "/no/such/model", "--data-dir", tmp_path)
    assert "/no/such/model does not exist" in the_sentence(done, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_names_nothing_and_a_path_with_escapes(tmp_path):
    """Empty, blank or with control characters: one printable sentence."""
    for nothing in ("", "  "):
        done = stagelens("serve", "--model", nothing, "--data-dir", tmp_path)
        assert "names nothing" in the_sentence(done, 2)
    done = stagelens("serve", "--model", "/no/\x1b[31mred", "--data-dir", tmp_path)
    assert "\x1b" not in done.stderr
    assert "/no/\\x1b[31mred does not exist" in the_sentence(done, 2)


def test_a_taken_port_names_it_before_anything_is_started(tmp_path, model):
    """The proxy's and the collector's port: exit 1, and the option that helps."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = stagelens("serve", "--model", model, "--port", port, "--data-dir", tmp_path / "d")
        assert f"port {port} on 127.0.0.1 is taken" in the_sentence(done, 1)
        done = stagelens(
            "serve", "--model", model, "--port", 0, "--otlp-port", port, "--api-port", 0,
            "--data-dir", tmp_path / "d",
        )  # fmt: skip
        said = the_sentence(done, 1)
        assert f"port {port} on 127.0.0.1 is taken" in said
        assert "--otlp-port" in said


def test_a_data_folder_that_is_a_file_or_cannot_be_written(tmp_path, model):
    """Exit 1 with the folder and the option that helps."""
    file = tmp_path / "file"
    file.write_text("")
    done = stagelens("serve", "--model", model, "--data-dir", file)
    assert f"data folder {file} is a file" in the_sentence(done, 1)
    done = stagelens("serve", "--model", model, "--data-dir", "/proc/no/such")
    assert "cannot be made" in the_sentence(done, 1)


def test_a_data_folder_owned_by_another_process_names_the_owner(tmp_path, model):
    """The collector's reason is passed on whole, with the owner's process id."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(folder=str(tmp_path / "d" / "store"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout.readline() == "ok\n"
    addresses = tmp_path / "d" / "collector.json"
    addresses.write_text('{"api": "http://127.0.0.1:9", "collector": "", "pid": 1}')
    try:
        for command in (
            ("serve", "--model", model, "--port", 0, "--otlp-port", 0, "--api-port", 0),
            ("collect", "--otlp-port", 0, "--api-port", 0),
            ("report",),
        ):
            store = () if command[0] != "report" else ("--store", f"chdb://{tmp_path}/d/store")
            data = ("--data-dir", tmp_path / "d") if not store else ()
            said = the_sentence(stagelens(*command, *data, *store), 1)
            assert f"is owned by process {owner.pid}" in said
        assert "127.0.0.1:9" in addresses.read_text()
    finally:
        owner.communicate("")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modell: x\n", "unknown setting modell"),
        ("proxy: {port: many}\n", "setting proxy.port = 'many'"),
        ("proxy: {colour: red}\n", "unknown setting proxy.colour"),
        ("collect: {store: {ttl_days: 0}}\n", "setting collect.store.ttl_days = 0"),
        ("collect: {store: {ttl_days: 30000}}\n", "setting collect.store.ttl_days = 30000"),
        ("[1, 2]\n", "must be a mapping"),
        ("a: [\n", "is not valid YAML"),
        ("{a: " * 2000 + "}" * 2000, "is nested too deeply"),
        ("proxy: {port: 0}\nproxy: {host: x}\n", "line 2: the key proxy is there twice"),
        ("proxy: {port: true}\n", "setting proxy.port = True"),
        ("proxy: {tags: {'a b': x}}\n", "setting proxy.tags"),
        ("proxy: {tags: {run: 'p,q'}}\n", "setting proxy.tags"),
        ("proxy: {tags: {" + ", ".join(f"t{n}: x" for n in range(17)) + "}}\n", "setting proxy.tags"),
    ],
)
def test_a_broken_config_names_file_key_and_rule(tmp_path, text, says):
    """Unknown keys, wrong values, no mapping, no YAML: exit 2."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    said = the_sentence(stagelens("serve", "--config", file), 2)
    assert says in said
    assert str(file) in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models: {m: {imput: 1}}", "models.m.imput cannot be used"),
        ("models: {}\nmodels: {m: {gpus: 1}}", "line 2: the key models is there twice"),
        ("{a: " * 2000, "is nested too deeply"),
        ("[1]", "must be a mapping"),
        (": [", "is not valid YAML"),
        (None, "cannot be read"),
    ],
)
def test_a_broken_price_file_is_read_as_strictly_as_a_config(tmp_path, text, says):
    """Exit 2, before any store is asked."""
    file = tmp_path / "prices.yaml"
    if text is not None:
        file.write_text(text)
    said = the_sentence(stagelens("goodput", "--ttft", "1s", "--prices", file), 2)
    assert says in said
    assert f"price file {file}" in said


def test_a_config_file_that_is_not_there(tmp_path):
    """Exit 2 with the path."""
    said = the_sentence(stagelens("serve", "--config", tmp_path / "none.yaml"), 2)
    assert "none.yaml cannot be read" in said


def test_reading_with_nothing_to_read_or_two_sources(tmp_path):
    """No collector, no store: what to do. Both given: choose one."""
    done = stagelens("report", "--data-dir", tmp_path)
    assert "there is nothing to read" in the_sentence(done, 1)
    done = stagelens("report", "--collector", "http://127.0.0.1:9", "--store", "chdb:///x")
    assert "give one of them" in the_sentence(done, 2)
    done = stagelens("report", "--collector", "http://127.0.0.1:9")
    assert "127.0.0.1:9" in the_sentence(done, 1)
    done = stagelens("report", "--store", f"chdb://{tmp_path}/gone")
    assert "does not exist" in the_sentence(done, 1)
    assert not (tmp_path / "gone").exists()


def test_wrong_values_of_reading_options(tmp_path):
    """An unknown dimension, a bad time, a bad tag: exit 2 with what is allowed."""
    for arguments, says in (
        (("--by", "colour"), "colour"),
        (("--since", "yesterday"), "yesterday"),
        (("--tag", "novalue"), "novalue"),
        (("--status", "odd"), "odd"),
    ):
        said = the_sentence(stagelens("report", *arguments, "--data-dir", tmp_path), 2)
        assert says in said


def test_unknown_commands_and_options_are_wrong_usage():
    """click's own words, exit 2."""
    assert stagelens("serf").returncode == 2
    assert stagelens("report", "--colour").returncode == 2
    assert stagelens("--help").returncode == 0
    assert stagelens("--version").stdout.startswith("stagelens")


def test_values_with_control_characters_are_shown_escaped():
    """Neither our own sentences nor click's let a terminal obey what a user or a file gave."""
    for arguments in (
        ("report", "--store", "chdb:///no/such/\x1b[31mred"),
        ("report", "--format", "\x1b[31mred"),
        ("\x1b[31mred",),
        ("serve", "--tag", "\x1b[31mred", "--model", "m"),
    ):
        done = stagelens(*arguments)
        assert done.returncode in {1, 2}
        assert "\x1b" not in done.stderr
        assert "x1b[31mred" in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "no limit was given"),
        (("--ttft", "soon"), "'soon'"),
        (("--e2e=-1s",), "'-1s'"),
        (("--tpot", "9999999999s"), "out of range"),
        (("--ttft", "1"), "'1'"),
    ],
)
def test_limits_of_goodput_that_are_none(tmp_path, options, told):
    """None, a word, below zero, out of range, without a unit: exit 2, and no store is made."""
    folder = tmp_path / "store"
    done = stagelens("goodput", *options, "--store", f"chdb:///{folder}")
    assert told in the_sentence(done, 2)
    assert not folder.exists()
