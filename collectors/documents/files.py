"""Text files, and the chunks that they are cut into."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from collectors.documents.model import BadDocumentsValue

SUFFIXES: Final = (".md", ".markdown", ".rst", ".txt", ".text", ".adoc", ".org")
"""What is taken of a folder; a file that is named itself may have any name."""
MOST_BYTES: Final = 64 << 20
_BREAKS: Final = (
    re.compile(r"\n[ \t]*\n\s*"),  # paragraphs
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])\s+"),  # sentences
    re.compile(r"\s+"),
)


def text_files(given: Sequence[Path]) -> list[Path]:
    """The files that are named and the text files below the folders that are, each once.

    Raises:
        BadDocumentsValue: one is not there or no regular file, or a folder holds no text file.
    """
    found: dict[Path, None] = {}
    for path in given:
        if path.is_dir():
            inside = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
            if not inside:
                raise BadDocumentsValue(
                    f"folder {path} holds no text file ({', '.join(SUFFIXES)}): name files"
                )
            found.update(dict.fromkeys(inside))
        elif path.is_file():
            found[path] = None
        elif path.exists():
            raise _not_regular(path)  # a pipe would be waited for
        else:
            raise BadDocumentsValue(f"{path} does not exist: check the path")
    return list(found)


def _not_regular(path: Path) -> BadDocumentsValue:
    return BadDocumentsValue(
        f"{path} is not a regular file (a pipe, a device or a socket): write its text into a file"
    )


def read_text(file: Path) -> str:
    """The file's text.

    Raises:
        BadDocumentsValue: it is no regular file, cannot be read, is too large, is no UTF-8 text or
            has no words.
            or has no words.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _not_regular(file)
        with file.open("rb") as source:
            data = source.read(MOST_BYTES + 1)
    except OSError as problem:
        raise BadDocumentsValue(f"{file} cannot be read ({problem.strerror}): check it") from None
    if len(data) > MOST_BYTES:
        raise BadDocumentsValue(f"{file} is larger than {MOST_BYTES >> 20} MiB: divide it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise BadDocumentsValue(f"{file} is no UTF-8 text: turn it into text first")
    if not text.strip():
        raise BadDocumentsValue(f"{file} is empty: leave it out")
    return text


def chunks_of(text: str, size: int, overlap: int) -> list[str]:
    """Pieces of at most ``size`` characters, cut between paragraphs, lines, sentences or words.

    Each begins with the last whole pieces of the one before, up to ``overlap`` characters.
    """
    chunks: list[str] = []
    held: list[str] = []
    for piece in _pieces(text.replace("\r\n", "\n"), size, 0):
        if held and len("".join(held)) + len(piece) > size:
            chunks.append("".join(held))
            held = _tail(held, min(overlap, size - len(piece)))
        held.append(piece)
    chunks.append("".join(held))
    return [chunk.strip() for chunk in chunks if chunk.strip()]


def _pieces(text: str, size: int, level: int) -> Iterator[str]:
    """``text`` whole, cut at the coarsest breaks that make its pieces short enough."""
    if len(text) <= size // 4 or (len(text) <= size and level > 1):
        yield text
    elif level == len(_BREAKS):
        yield from (text[at : at + size] for at in range(0, len(text), size))
    else:
        at = 0
        for found in _BREAKS[level].finditer(text):
            yield from _pieces(text[at : found.end()], size, level + 1)
            at = found.end()
        if at < len(text):
            yield from _pieces(text[at:], size, level + 1)


def _tail(pieces: Sequence[str], most: int) -> list[str]:
    kept: list[str] = []
    for piece in reversed(pieces):
        if sum(map(len, kept)) + len(piece) > most:
            break
        kept.insert(0, piece)
    return kept
