"""Make the environment `.venv` with everything the demo or the tests need.

Run by any Python >= 3.11 with nothing installed. Uses uv (a minute at most) where pip
can get it and pip (some minutes) where it cannot. PyTorch's CPU build brings three
packages along that do not fit it and stop transformers from importing: they are left
out. A second run with the same inputs does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNFIT = ("torchvision", "torchaudio", "torchcodec")
NEEDED_GB = {"cpu": 5, "gpu": 20}
CHECK = (
    "import importlib.util as u, sys\n"
    "import transformers, vllm, chdb, clickhouse_connect, stagelens\n"
    "bad = [n for n in %r if u.find_spec(n)]\n"
    "sys.exit('these do not fit the CPU build of torch: ' + ', '.join(bad) if bad else 0)\n"
)


class InstallError(Exception):
    """One sentence: the thing, the rule, the way out."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="purpose", choices=("demo", "dev"), default="demo")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    options = parser.parse_args()
    try:
        install(options.venv, options.purpose)
    except InstallError as problem:
        print(f"install: error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("install: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


def install(venv: Path, purpose: str) -> None:
    """Make ``venv`` whole for ``purpose``, or leave it without its stamp."""
    if sys.version_info < (3, 11):  # noqa: UP036  run before anything is installed
        raise InstallError(
            f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed; "
            "give one with make PYTHON=/path/to/python3.11"
        )
    backend = "gpu" if shutil.which("nvidia-smi") and _gpu_answers() else "cpu"
    stamp = venv / "stagelens-install.json"
    wanted = {"inputs": _inputs(backend), "purpose": purpose}
    have = _read(stamp)
    if have.get("inputs") == wanted["inputs"] and have.get("purpose") in (purpose, "dev"):
        return
    _check_disk(venv, backend)
    began = time.monotonic()
    say(f"making {venv} for the {backend.upper()} (about 3.5 GB on a CPU; a minute or so)")
    stamp.unlink(missing_ok=True)
    python = _make_venv(venv)
    extras = f"{backend},{'dev' if purpose == 'dev' or have.get('purpose') == 'dev' else 'demo'}"
    if _run([python, "-m", "pip", "install", "--quiet", "uv>=0.8"], quiet=True):
        _with_uv(python, extras, backend)
    else:
        say("uv is not to be had: installing with pip, which takes some minutes")
        _with_pip(python, extras, backend)
    say("checking that the engine's libraries import")
    unfit = UNFIT if backend == "cpu" else ()
    if not _run([python, "-c", CHECK % (unfit,)]):
        raise InstallError(f"{venv} was made but its libraries do not import: delete it, try again")
    purpose = "dev" if "dev" in extras else "demo"
    stamp.write_text(json.dumps({**wanted, "purpose": purpose}))
    say(f"ready in {time.monotonic() - began:.0f} s")


def _with_uv(python: str, extras: str, backend: str) -> None:
    command = [
        python, "-m", "uv", "pip", "install", "--python", python,
        "--index-strategy", "unsafe-best-match", "--editable", f"{ROOT}[{extras}]",
    ]  # fmt: skip
    places, indexes = _pip_sources(python)
    for place in places:
        command += ["--find-links", place]
    for name, value in indexes:
        command += [name, value]
    overrides = ROOT / ".venv-overrides.txt"
    if backend == "cpu":
        overrides.write_text("".join(f"{n} ; sys_platform == 'never'\n" for n in UNFIT))
        command += ["--override", str(overrides)]
        if not _has_cpu_torch(places):
            command += ["--torch-backend", "cpu"]
    try:
        if not _run(command):
            raise InstallError(
                "the packages could not be installed (see above): check the network and pip's "
                "configuration, then run it again"
            )
    finally:
        overrides.unlink(missing_ok=True)


def _with_pip(python: str, extras: str, backend: str) -> None:
    if not _run([python, "-m", "pip", "install", "--editable", f"{ROOT}[{extras}]"]):
        raise InstallError(
            "pip could not install the packages (see above): check the network; the CPU build of "
            "torch comes from PyTorch's own CPU index (PIP_EXTRA_INDEX_URL)"
        )
    if backend == "cpu":
        _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNFIT])


def _pip_sources(python: str) -> tuple[list[str], list[tuple[str, str]]]:
    """What pip is told of other places for packages, which uv does not read by itself."""
    told = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    places: list[str] = []
    indexes: list[tuple[str, str]] = []
    for line in told.splitlines():
        found = re.fullmatch(r"(?:global|install|:env:)\.([a-z-]+)='(.*)'", line.strip())
        if not found:
            continue
        values = shlex.split(found.group(2))
        if found.group(1) == "find-links":
            places += [v for v in values if v not in places]
        elif found.group(1) == "index-url":
            indexes += [("--default-index", v) for v in values]
        elif found.group(1) == "extra-index-url":
            indexes += [("--index", v) for v in values if not v.startswith("file:")]
    return places, list(dict.fromkeys(indexes))


def _has_cpu_torch(places: list[str]) -> bool:
    return any(list(Path(p).glob("torch-*+cpu-*.whl")) for p in places if Path(p).is_dir())


def _make_venv(venv: Path) -> str:
    python = venv / "bin" / "python"
    if not python.exists() and not _run([sys.executable, "-m", "venv", str(venv)]):
        raise InstallError(
            f"{venv} could not be made: Python's venv module is needed (Debian: python3-venv)"
        )
    return str(python)


def _check_disk(venv: Path, backend: str) -> None:
    free = shutil.disk_usage(venv.parent).free / 1e9
    if free < NEEDED_GB[backend]:
        raise InstallError(
            f"{venv.parent} has {free:.1f} GB free and {NEEDED_GB[backend]} GB are needed: make room"
        )


def _gpu_answers() -> bool:
    return _run(["nvidia-smi", "-L"], quiet=True)


def _inputs(backend: str) -> str:
    text = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(text + backend.encode() + sys.version.encode()).hexdigest()[:16]


def _read(stamp: Path) -> dict[str, str]:
    try:
        return dict(json.loads(stamp.read_text()))
    except (OSError, ValueError):
        return {}


def _run(command: list[str], *, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        return subprocess.run(
            command, stdout=output, stderr=output, env=environment, cwd=ROOT, check=False
        ).returncode == 0
    except OSError:
        return False


def say(text: str) -> None:
    print(f"install: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
