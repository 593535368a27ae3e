"""The packaged embedding model, and folders that are none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from proxy.errors import ProxyError
from proxy.pipelines.embed.kit import started
from proxy.pipelines.settings import LocalEmbedding


async def test_the_packaged_model_gives_the_vectors_of_sentence_transformers(
    monkeypatch: pytest.MonkeyPatch,
):
    """Similarities as sentence-transformers 6.2 gave them for this model; a batch and a long text
    change nothing, and no hub is asked.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    async with started(LocalEmbedding()) as embeds:
        assert embeds.model == "all-MiniLM-L6-v2"
        cat, kitten, sea = await embeds.embed(["a cat", "a kitten", "the sea"])
        [alone] = await embeds.embed(["a cat"])
        many = await embeds.embed(["a cat"] * 33 + ["word " * 2000])
    assert len(cat) == 384
    assert math.hypot(*cat) == pytest.approx(1, abs=1e-5)
    assert sum(a * b for a, b in zip(cat, kitten, strict=True)) == pytest.approx(0.76628, abs=1e-3)
    assert sum(a * b for a, b in zip(cat, sea, strict=True)) == pytest.approx(0.20038, abs=1e-3)
    assert alone == pytest.approx(cat, abs=1e-5)
    assert len(many) == 34
    assert many[32] == pytest.approx(cat, abs=1e-5)


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("other.txt", "", "is no model folder"),
        ("modules.json", [{"type": "x.Dense", "path": "1"}], "has a module Dense"),
        ("modules.json", [{"type": "x.Pooling", "path": "."}], "pools as"),
    ],
)
async def test_a_folder_that_cannot_be_run_is_one_sentence(
    tmp_path: Path, file: str, text: object, words: str
):
    """It names the folder and what it is not."""
    if file == "modules.json":
        (tmp_path / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    (tmp_path / file).write_text(json.dumps(text))
    with pytest.raises(ProxyError, match=words):
        async with started(LocalEmbedding(folder=str(tmp_path))):
            pass
