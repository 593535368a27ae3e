"""Kinds of values that a pipeline's settings hold, each refused with one sentence."""

from __future__ import annotations

import math
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"\$?(?:\.?[^.\[\]*'\"]+|\[\d{1,9}\])?(?:\.[^.\[\]*'\"]+|\[\d{1,9}\])*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HOST = re.compile(r"[^\s/@:*\[\]]+|\[[0-9A-Fa-f:.%]+\]|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_OURS = frozenset({
    "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "traceparent", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers that the client itself sends, and must send once."""


def web_url(url: str) -> str:
    """A URL that can be asked as it stands.

    Raises:
        ValueError: it cannot.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a URL is given as http://HOST[:PORT][/PATH] or https://…")
    if "@" in parts.netloc:
        raise ValueError("a URL holds no credentials: give them with headers_env")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("a URL is ASCII without spaces: encode its other characters (%20)")
    _ = parts.port  # raises the sentence where it is none
    if "#" in url:
        raise ValueError("a URL's part behind # is not sent: leave it out")
    return url


def base_url(url: str) -> str:
    """A URL that paths are put behind.

    Raises:
        ValueError: it has a query.
    """
    if "?" in web_url(url):
        raise ValueError("a path goes behind this URL: leave out what stands behind the ?")
    return url


def _of_form(form: re.Pattern[str], rule: str) -> AfterValidator:
    """Takes text that is wholly of ``form``; ``rule`` is the sentence for other text."""

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(rule)
        return text

    return AfterValidator(check)


def _header(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise ValueError("a header's name has letters, digits and - alone")
    if name.lower() in _OURS:
        raise ValueError(f"the header {name.lower()} is the proxy's own: leave it out")
    return name


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("a name has no line ends, and no spaces around it")
    return text


def _json(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("JSON has no such number")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _json(one)
    return value


def _host(text: str) -> str:
    host, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not (_HOST.fullmatch(text) or (_HOST.fullmatch(host) and port.isdecimal())):
        raise ValueError("a host is given as HOST or HOST:PORT, without http:// and *")
    return text


def called(name: str) -> str:
    """A tool's name as models and providers take it: theirs has letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9_\-]", "_", name)[:64]


Seconds = Annotated[float, Field(gt=0, le=86_400)]
"""At most a day."""
WebUrl = Annotated[str, AfterValidator(web_url)]
BaseUrl = Annotated[str, AfterValidator(base_url)]
_Variable = Annotated[str, _of_form(
    _VARIABLE, "name an environment variable (letters, digits, _), never the secret itself"
)]  # fmt: skip
Variables = dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], _Variable]
"""Our environment variables by what they are called elsewhere."""
HeadersEnv = dict[Annotated[str, AfterValidator(_header)], _Variable]
AnswerPath = Annotated[str, _of_form(
    _PATH, "a path has names and places alone ($.hits[0].text): no *, quotes or -1"
)]  # fmt: skip
ImportPath = Annotated[str, _of_form(
    _FUNCTION, "a function is given as module:name (shop.orders:lookup)"
)]  # fmt: skip
Printable = Annotated[str, Field(min_length=1), AfterValidator(_printable)]
JsonObject = dict[str, Annotated[JsonValue, AfterValidator(_json)]]
Host = Annotated[str, AfterValidator(_host)]
"""``HOST`` or ``HOST:PORT``."""
PipelineName = Annotated[Printable, Field(max_length=256)]
