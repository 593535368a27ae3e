"""Who may send: bearer tokens, kept as hashes and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from collectors.receive.decode import BadBody
from collectors.store.errors import StoreError

LINE = re.compile(r"(?:[^:\s]+:)?([0-9a-fA-F]{64})")


class Tokens:
    """The door of both receivers. Without tokens everybody may send."""

    def __init__(self, hashes: Iterable[bytes]) -> None:
        self._hashes = tuple(hashes)

    def check(self, authorization: str) -> None:
        """Let ``Authorization: Bearer TOKEN`` in.

        Raises:
            BadBody: 401; the text says nothing of what was sent.
        """
        if not self._hashes:
            return
        scheme, _, token = authorization.strip().partition(" ")
        given = hashlib.sha256(token.strip().encode("latin-1", "replace")).digest()
        found = False
        for known in self._hashes:  # all of them, so that the time tells nothing
            found |= hmac.compare_digest(known, given)
        if not found or scheme.lower() != "bearer":
            raise BadBody(401, "a token is needed: Authorization: Bearer TOKEN")


def read_tokens(file: Path | None, extra: Iterable[str] = ()) -> Tokens:
    """Tokens by their hashes in ``file`` (lines NAME:SHA256) and plain ones in ``extra``.

    Raises:
        StoreError: the file cannot be read, or a line has another form; exit code 2.
    """
    hashes = [hashlib.sha256(token.encode()).digest() for token in extra]
    if file is None:
        return Tokens(hashes)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise StoreError(f"token file {file} cannot be read: check collect.tokens_file", 2) from None
    for number, text in enumerate(lines, 1):
        line = text.split("#", maxsplit=1)[0].strip()
        if not line:
            continue
        found = LINE.fullmatch(line)
        if found is None:
            raise StoreError(f"token file {file}, line {number} is not NAME:SHA256: mend it", 2)
        hashes.append(bytes.fromhex(found.group(1)))
    if not hashes:
        raise StoreError(f"token file {file} has no token: add a line NAME:SHA256", 2)
    return Tokens(hashes)
