"""What the installer hands on, keeps and refuses; no test installs anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import install

SCRIPT = Path(install.__file__)
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


def run(venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--venv", str(venv)],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_pip_settings_are_ranked_as_pip_ranks_them(tmp_path, monkeypatch):
    """The environment outranks the file's [install], and that its [global]; lists stay whole."""
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nfind-links =\n    /a\n    /b\nindex-url = https://global/\ntimeout = 1\n"
        "[install]\nindex-url = https://install/\ntimeout = 2\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TIMEOUT", "3")
    found = install._pip_settings(sys.executable)
    assert found["find-links"].split() == ["/a", "/b"]
    assert found["index-url"] == "https://install/"
    assert found["timeout"] == "3"


def test_uv_gets_what_pip_was_told(monkeypatch):
    """Indexes, folders, constraints, certificates and proxy have the names that uv reads."""
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "SSL_CERT_FILE", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    told = install._uv_settings(
        {"index-url": "https://one/", "extra-index-url": "https://two/ file:///three",
         "find-links": "/a\n/b", "cert": "/ca.pem", "proxy": "http://p:1", "no-index": "true"}
    )  # fmt: skip
    assert told["UV_DEFAULT_INDEX"] == "https://one/"
    assert told["UV_INDEX"] == "https://two/ file:///three"
    assert told["UV_FIND_LINKS"] == "/a,/b"
    assert told["SSL_CERT_FILE"] == "/ca.pem"
    assert told["ALL_PROXY"] == "http://p:1"
    assert told["NO_INDEX"] == "1"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_what_the_user_told_uv_stays(monkeypatch):
    """uv's own environment outranks pip's settings."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine/")
    assert install._uv_settings({"index-url": "https://one/"})["UV_DEFAULT_INDEX"] == "https://mine/"


def test_no_index_ends_in_a_sentence_and_no_whole_environment(tmp_path):
    """Without a package source: exit 1, one sentence at the end, and the next run starts over."""
    venv = tmp_path / "venv"
    done = run(venv, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 1
    assert "install: error: no package index can be reached" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads((venv / install.STAMP).read_text())["inputs"] == ""


def test_an_environment_that_is_not_ours_is_never_removed(tmp_path):
    """A folder without our stamp that does not work is left as it is, and named."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "mine").write_text("kept")
    done = run(venv, **NO_INDEX)
    assert done.returncode == 1
    assert f"{venv} was not made by this script" in done.stderr
    assert (venv / "mine").read_text() == "kept"


def test_a_whole_environment_is_taken_at_once(tmp_path, monkeypatch):
    """With the same inputs nothing is run; another place, and it is not taken."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(install.shutil, "which", lambda _: None)
    stamp = {"inputs": install._inputs(venv, "cpu"), "purpose": "dev", "made_by": "us"}
    (venv / install.STAMP).write_text(json.dumps(stamp))
    install.install(venv, "demo")
    assert json.loads((venv / install.STAMP).read_text()) == stamp
    assert install._inputs(tmp_path / "moved", "cpu") != stamp["inputs"]
    assert install._inputs(venv, "gpu") != stamp["inputs"]


def test_too_little_room_is_told_before_anything_is_made(tmp_path, monkeypatch):
    """The folder, what is free and what is needed; nothing is written."""
    monkeypatch.setitem(install.NEEDED_GB, "cpu", 10**9)
    with pytest.raises(install.InstallError, match="are needed: make room"):
        install._check_room(tmp_path / "venv", "cpu")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [(3, 10, 4), (3, 15, 0)])
def test_a_python_that_does_not_do_is_refused(monkeypatch, version):
    """The rule and the way out are in the sentence."""
    monkeypatch.setattr(install.sys, "version_info", version)
    with pytest.raises(install.InstallError, match=r"needs 3.11 to 3.14; give one with make PYTHON="):
        install._check_system()
