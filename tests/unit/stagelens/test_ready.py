"""The ready file: checked before anything starts, and deleted only by the process that wrote it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from stagelens.errors import UserError
from stagelens.ready import check_ready, read_ready, remove_ready, remove_stale, write_ready
from tests.unit.stagelens.test_cli_mistakes import stagelens, the_sentence

FOREIGN = ["", "precious\n", "[1]", "{}", '{"pid": true}', '{"pid": "7"}', json.dumps({"pid": os.getppid()})]


def ended() -> int:
    """The id of a process that is gone."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


@pytest.mark.parametrize("text", FOREIGN)
def test_what_another_wrote_stays(tmp_path, text):
    """No ready file, or that of a process that lives: neither end nor start deletes it."""
    file = tmp_path / "ready"
    file.write_text(text)
    remove_ready(file)
    remove_stale(file)
    assert file.read_text() == text


def test_ones_own_goes_and_so_does_a_dead_ones_at_a_start(tmp_path):
    """The end deletes what this process wrote; a start what a killed one left; a missing one is no fault."""
    file = tmp_path / "ready"
    for _ in range(2):
        remove_ready(file)
    remove_ready(None)
    write_ready(file, {"pid": os.getpid()})
    remove_ready(file)
    assert read_ready(file) is None
    write_ready(file, {"pid": ended()})
    remove_ready(file)
    assert file.exists()
    remove_stale(file)
    assert not file.exists()


def test_a_path_that_cannot_be_written_is_told_at_the_start(tmp_path):
    """A folder that is missing, a file in its place, a folder as the file, a name that is too long."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "no" / "x", tmp_path / "file" / "x", tmp_path, tmp_path / ("n" * 300)):
        with pytest.raises(UserError) as told:
            check_ready(path)
        assert told.value.exit_code == 2
        assert str(path) in str(told.value)
    check_ready(tmp_path / "file")
    check_ready(None)


@pytest.mark.parametrize("command", [("serve", "--upstream", "http://127.0.0.1:9"), ("collect",)])
def test_a_start_that_fails_leaves_the_ready_file_alone(tmp_path, command):
    """A port that is taken: the file that was there is as before; a path that is none: exit 2 at once."""
    file = tmp_path / "precious"
    file.write_text("precious")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = "--port" if command[0] == "serve" else "--otlp-port"
        told = (*command, port, taken.getsockname()[1], "--data-dir", tmp_path / "d")
        said = the_sentence(stagelens(*told, "--ready-file", file), 1)
    assert "port" in said
    assert file.read_text() == "precious"
    none = tmp_path / "no" / "x"
    said = the_sentence(stagelens(*command, "--data-dir", tmp_path / "e", "--ready-file", none), 2)
    assert str(none) in said
    assert not (tmp_path / "e").exists()
