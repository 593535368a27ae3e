"""An HTTP answer as text for a model: in its own characters, or what it is where it is no text."""

from __future__ import annotations

import codecs
import re
from email.message import Message

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_NO_CHARSETS = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Python's own, which no server means; some take the square of a text's length."""
_TEXT = re.compile(r"text/.*|.*[/+](?:json|xml|yaml|x-yaml|javascript|ndjson|x-ndjson|csv)")
_NEVER_TEXT = re.compile(r"(?:image|audio|video|font)/.*")
_TYPE = re.compile(r"[\w.+\-]{1,60}/[\w.+\-]{1,80}", re.ASCII)


def told(body: bytes, content_type: str) -> str:
    """``body`` as text. What is none is told by its kind and length: ``[image/png, 123 bytes]``."""
    kind, charset = _kind(content_type)
    bare = kind.lower()
    text = None
    if _TEXT.fullmatch(bare) or not _NEVER_TEXT.fullmatch(bare):
        text = _decoded(body, charset, sure=bool(charset) or bool(_TEXT.fullmatch(bare)))
    if text is None or "\0" in text:
        return f"[{kind}, {len(body)} byte{'' if len(body) == 1 else 's'}]"
    return text


def _decoded(body: bytes, charset: str, *, sure: bool) -> str | None:
    """The text; None where it is UTF-8 neither by its name nor by its bytes."""
    marked = next((name for mark, name in _MARKS if body.startswith(mark)), "")
    try:
        return body.decode(marked or charset or "utf-8", "replace" if sure else "strict")
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace") if sure else None


def _kind(content_type: str) -> tuple[str, str]:
    """The media type, and the charset where one that is known is named."""
    header = Message()
    header["content-type"] = content_type
    found = _TYPE.match(content_type.strip())
    charset = header.get_param("charset", "")
    try:
        name = codecs.lookup(str(charset)).name if charset else ""
    except (LookupError, ValueError):
        name = ""
    return found[0] if found else "application/octet-stream", "" if name in _NO_CHARSETS else name
