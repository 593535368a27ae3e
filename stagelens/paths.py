"""Where Stagelens keeps its data, and that it can."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stagelens.errors import UserError

if TYPE_CHECKING:
    from collectors.store.url import StoreUrl


def default_data_dir() -> Path:
    """``$STAGELENS_DATA_DIR``, else the XDG data folder, else ``~/.local/share/stagelens``."""
    if given := os.environ.get("STAGELENS_DATA_DIR"):
        return Path(given)
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "stagelens"


def spool_folder(url: StoreUrl, data_dir: Path | None = None) -> Path:
    """Beside an embedded store; for a server, in the data folder, one for each address."""
    if url.path is not None:
        return url.path.with_name(url.path.name + ".spool")
    name = re.sub(r"[^A-Za-z0-9.-]", "-", f"{url.host}-{url.port}-{url.database}")
    return (data_dir or default_data_dir()) / "spool" / name


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder with the embedded store and the logs."""

    root: Path

    @property
    def store_url(self) -> str:
        return f"chdb://{self.root.resolve() / 'store'}"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def running(self) -> Path:
        """Where a running collector says its addresses; absent when none runs."""
        return self.root / "collector.json"

    def prepare(self) -> None:
        """Make the folders, readable by their owner alone.

        Raises:
            UserError: it is a file, or cannot be made or written.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.logs.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise UserError(
                f"data folder {self.root} is a file: give another folder with --data-dir"
            ) from None
        except OSError as problem:
            raise UserError(
                f"data folder {self.root} cannot be made ({problem.strerror}): "
                "give one that you may write with --data-dir"
            ) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise UserError(
                f"data folder {self.root} is not writable: give one that is with --data-dir"
            )
