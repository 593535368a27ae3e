"""TLS of both receivers; with authorities, clients must show a certificate of theirs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from collectors.store.errors import StoreError


class ReceiverTls(BaseModel):
    """Without a certificate the receivers speak in the clear; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    certfile: Path | None = None
    keyfile: Path | None = None
    ca_certs: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> ReceiverTls:
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile belong together: give both or none")
        if self.ca_certs is not None and self.certfile is None:
            raise ValueError("ca_certs needs certfile and keyfile")
        return self

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Key, certificate and authorities.

        Raises:
            StoreError: one of them cannot be read; exit code 2.
        """
        assert self.keyfile is not None
        assert self.certfile is not None
        authorities = None if self.ca_certs is None else _read(self.ca_certs)
        return _read(self.keyfile), _read(self.certfile), authorities

    def uvicorn_options(self) -> dict[str, Any]:
        """The same for the HTTP receiver."""
        if self.certfile is None:
            return {}
        self.read()
        options: dict[str, Any] = {"ssl_certfile": str(self.certfile), "ssl_keyfile": str(self.keyfile)}
        if self.ca_certs is not None:
            options |= {"ssl_ca_certs": str(self.ca_certs), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise StoreError(
            f"TLS file {file} cannot be read ({problem.strerror}): check collect.tls", 2
        ) from None
