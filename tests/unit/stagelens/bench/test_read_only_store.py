"""A store that may only be read: the load is sent and told, a replay is refused in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.store.errors import StoreError
from stagelens.bench import whole
from stagelens.bench.command import _check_out
from stagelens.bench.interrupt import Interrupts
from stagelens.bench.settings import BenchSettings
from stagelens.bench.whole import Where
from stagelens.errors import UserError
from tests.support.load_target import CLOCK
from tests.unit.stagelens.bench.test_after_the_load import SETTINGS, a_ran

WAY_OUT = "copy the folder to where you may write, or ask its collector with --collector URL"


@pytest.fixture(params=[".", "metadata", "store/5d8"])
def read_only(request, tmp_path, monkeypatch) -> Path:
    """A store of which one folder is another user's; root, who may write all, is told so too."""
    store = tmp_path / "d" / "store"
    (store / "store" / "5d8").mkdir(parents=True)
    (store / "metadata").mkdir()
    (store / "metadata" / "otel.sql").write_text("")
    shut, real = store / request.param, os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: real(path, mode) and not (Path(path) == shut and mode & os.W_OK)
    )
    return store


def test_a_replay_of_it_is_one_sentence_with_a_way_out(read_only):
    """Whichever of its folders it is, and no word of the engine's."""
    settings = BenchSettings(url="http://127.0.0.1:1", replay="first")
    for where in (Where(store=f"chdb://{read_only}"), Where(data_dir=read_only.parent)):
        with pytest.raises(StoreError) as told:
            whole._recorded(settings, where, CLOCK)
        assert str(told.value).startswith(f"store folder {read_only}")
        assert "is not writable, and the embedded store writes there even to be read" in str(told.value)
        assert str(told.value).endswith(WAY_OUT)


async def test_a_load_beside_it_is_told_without_server_side_figures(read_only):
    """The client's figures stand, and the note says why there are no others."""
    ran = await a_ran()
    where = Where(store=f"chdb://{read_only}")
    levels, note = whole._with_server_side(ran, SETTINGS, where, Interrupts())
    assert levels == [ran.levels[0][0]]
    assert note.startswith(f"No server-side figures: store folder {read_only}")
    assert note.endswith(WAY_OUT)


def test_a_folder_that_cannot_be_looked_into_is_told(tmp_path, monkeypatch):
    """Of a store and of a result: no traceback."""
    def shut(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", shut)
    monkeypatch.setattr(Path, "is_file", shut)
    settings = BenchSettings(url="http://127.0.0.1:1", replay="first")
    with pytest.raises(StoreError, match=r"cannot be read \(Permission denied\): check its rights"):
        whole._recorded(settings, Where(store=f"chdb://{tmp_path}/s"), CLOCK)
    with pytest.raises(UserError, match=r"cannot be written \(Permission denied\)"):
        _check_out(tmp_path / "out.json")
