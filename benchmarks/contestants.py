"""Environments of the programs that the benchmarks compare with, each in one of its own.

They need what Stagelens must not bring, and often each other's other versions. Versions are
pinned, so that figures of two days compare. Made once with uv, and kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "litellm": ("litellm[proxy]==1.108.7", "opentelemetry-exporter-otlp==1.45.2"),
    "vllm-router": ("vllm-router==0.1.17",),
    "phoenix": ("arize-phoenix==20.26.1",),
    "guidellm": ("guidellm==0.8.1",),
    "sdks": ("logfire==5.4.0", "traceloop-sdk==0.62.4", "openlit==1.45.0",
             "pytest-benchmark>=5,<6", str(ROOT)),
}
WHOLE = "stagelens-contestant"
"""In an environment that is complete: the packages it was made of."""


def prepare(folder: Path, model: Path | None) -> dict[str, Path]:
    """The environments by name; one that cannot be made is told and left out."""
    found: dict[str, Path] = {}
    for name, packages in PACKAGES.items():
        if name == "guidellm" and model is None:
            print(f"{name}: left out, it needs --model's tokenizer", file=sys.stderr)
            continue
        env = folder / name
        try:
            make(env, packages)
            if name == "guidellm" and model is not None:
                shutil.copytree(model, env / "tokenizer", dirs_exist_ok=True,
                                ignore=shutil.ignore_patterns("*.safetensors"))  # fmt: skip
        except (OSError, subprocess.CalledProcessError) as problem:
            print(f"{name}: left out, it could not be installed ({problem})", file=sys.stderr)
            continue
        found[name] = env
    return found


def make(env: Path, packages: tuple[str, ...]) -> None:
    """An environment with ``packages``, unless it is there.

    Raises:
        OSError: uv is missing or the folder cannot be written.
        CalledProcessError: the packages could not be had.
    """
    whole, wanted = env / WHOLE, "\n".join(packages)
    if whole.is_file() and whole.read_text() == wanted:
        return
    print(f"installing {env.name} for comparison", file=sys.stderr, flush=True)
    shutil.rmtree(env, ignore_errors=True)
    uv = Path(sys.executable).with_name("uv")
    tool = str(uv) if uv.exists() else "uv"
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([tool, "venv", "--python", sys.executable, str(env)], check=True, **said)
    subprocess.run([tool, "pip", "install", "--python", str(env / "bin" / "python"), *packages],
                   check=True, env={**os.environ, "VIRTUAL_ENV": str(env)}, **said)  # fmt: skip
    whole.write_text(wanted)


def options_for(name: str, found: dict[str, Path]) -> dict[str, str]:
    """Options of a benchmark that name environments, as far as they are there."""
    given = {f"--{one}": str(env) for one, env in found.items() if one != "sdks"}
    if "phoenix" in found:
        given["--phoenix"] = str(found["phoenix"] / "bin" / "python")
    return given if name != "sdk" else {}
