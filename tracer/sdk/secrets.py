"""What is never recorded: keys and headers; and content, where it is not wanted.

By the names of fields wherever there are any, and by the shapes that keys have wherever
there are none. A key without a name and without a shape cannot be told from a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tracer.sdk.kinds import is_a
from tracer.sdk.sizes import fits

HIDDEN = "[hidden]"
MOST_DEPTH = 8
"""Levels that are looked through; what lies below is not recorded."""
_NAMES = (
    r"authorization|api[-_ ]?key|apikey|cookie|passw(?:or)?d|passphrase|secret(?!ar)|credentials?"
    r"|(?:access|auth|bearer|id|refresh|session|security|csrf|xsrf)[-_]?token|private[-_]?key|x-amz-signature|jwt"
    r"|subscription[-_]?key|basic[-_]?auth"
)
_NAME = rf"(?i){_NAMES}|^(?:token|auth|key|sig|signature|pwd|pass|bearer)$"
_HEADERS = r"(?i)^(?:(?:default|extra|request|response|http)[-_])?headers$"
_PATTERNS = (
    r"""(?x) ( (?: authorization | cookie ) \\{0,8}["']? \s{0,9} [:=] \s{0,9} )
    (?: \\{1,8}["'].*?\\{1,8}["'] | b?(["']) .*? \2 | [^"'\r\n]+ )""",
    rf"""(?x) ( (?:{_NAMES}|(?<=["'])(?:pwd|pass|bearer)(?=\\{{0,8}}["'])) [\w-]{{0,64}} \\{{0,8}}["']?
    \s{{0,9}} (?: [:=] | ,(?=\s{{0,9}}b?["']) ) \s{{0,9}} )
    ( \\{{1,8}}["'].*?\\{{1,8}}["'] | b?"(?:[^"\\]|\\.)*" | b?'(?:[^'\\]|\\.)*'
    | \[[^\]]{{0,4096}}\]? | \{{[^}}]{{0,4096}}\}}?
    | (?:(?:bearer|basic|digest|negotiate)\s{{1,9}})? [^\s"'&,;)}}\]]+ )""",
    r"""(?x) ( (?: (?<=["'])(?:token|auth|key|sig|signature)\\{0,8}["']\s{0,9}:
    | (?<![\w-])(?:token|auth|key|sig|signature|pwd|pass|bearer)\s?=(?!=) ) \s{0,9} )
    ( \\{1,8}["'].*?\\{1,8}["'] | b?"(?:[^"\\]|\\.)*" | b?'(?:[^'\\]|\\.)*' | [^\s"'&,;)}\]]+ )""",
    r"([?&;](?:token|auth|key|sig|signature|pwd|pass)=)[^&;\s\"'#]+",
    rf"((?:{_NAMES})[\w-]{{0,64}}(?:%22)?%3[ad](?:%22)?)[^%&\s\"']+",
    rf"(<(?:[\w:-]{{0,32}})(?:{_NAMES})[\w-]{{0,32}}>)[^<]+(?=</)",
    rf"""(name=\\?["'][\w-]{{0,32}}(?:{_NAMES})[\w-]{{0,32}}\\?["'][^>]{{0,200}}?value=\\?["'])[^"'\\]+""",
)  # fmt: skip
"""Each keeps its first group. They are looked for in lower case, where the first letters of the names
are found quickly; repeats have an end, so that a long text without a space takes no longer than one
with them."""
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_SHAPES = (
    r"\b(?:[Bb]earer|BEARER|[Bb]asic|BASIC|[Nn]egotiate)\s+(?=\S{0,256}?(?:[0-9=._~-]|[a-z][A-Z]|[A-Z]{5}))"
    r"[A-Za-z0-9+/=._~-]{6,}"
    r"|\b(?:sk|pk|rk|gsk|hf|gh[pousr]|github_pat|xox[abpr]|glpat)[-_][A-Za-z0-9_-]{6,}"
    r"|\bAKIA[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<=://)[^/\s:@]{0,256}:[^/\s@]{1,256}(?=@)"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
)
_CONTENT = (
    r"^(?:input\.value|output\.value|exception\.(?:message|stacktrace)|llm\.(?:prompts?|input_messages"
    r"|output_messages|completions|prompt_template|tools|invocation_parameters|function_call)(?:\.|$)"
    r"|gen_ai\.(?:prompt|completion|input|output|system_instructions|tool\.definitions"
    r"|tool\.call\.(?:arguments|result)|retrieval\.(?:query\.text|documents))(?:\.|$)"
    r"|(?:retrieval|reranker)\.(?:documents|input_documents|output_documents|query)(?:\.|$)"
    r"|embedding\.(?:embeddings|text)|tool\.(?:parameters|description)|tool_call\."
    r"|traceloop\.(?:entity\.(?:input|output)|association|prompt)|db\.(?:statement|query\.text)"
    r"|message\.|document\.|metadata$|(?:http|url)\.(?:url|full|target|query|request\.header|response\.header))"
)
_HEADER_ATTRIBUTE = r"^http\.(?:request|response)\.header\.|^rpc\..*\.metadata\."


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled with its first use: all of them take a tenth of what importing the SDK may take."""
    return re.compile(pattern)


def is_secret(name: object) -> bool:
    """Whether a field of this name holds a key."""
    if is_a(name, bytes):
        name = name.decode("latin-1")  # type: ignore[attr-defined]
    return is_a(name, str) and _compiled(_NAME).search(str(name)) is not None


class Room:
    """How many more characters there is room for; ``over`` once something was left out."""

    def __init__(self, most: int) -> None:
        self.left, self.over = most, False

    def take(self, text: str) -> str:
        kept = text[: max(0, self.left)]
        self.over = self.over or len(kept) < len(text)
        self.left -= len(kept) + 1
        return kept

    def is_full(self) -> bool:
        self.over = self.over or self.left <= 0
        return self.left <= 0


def scrub(value: Any, room: Room | None = None, depth: int = 0) -> Any:
    """``value`` without the fields that hold keys and headers, as deep as JSON is usual.

    As much of it as there is ``room`` for.
    """
    room = room or Room(2**62)
    if is_a(value, str):
        return scrub_text(room.take(value))
    if is_a(value, bytes | bytearray):
        return scrub_text(room.take(value[: max(0, room.left) + 4].decode("utf-8", "replace")))
    room.left -= 2
    if value is None or is_a(value, int | float):
        return value
    if depth > MOST_DEPTH:
        room.over = True
        return HIDDEN
    if is_a(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if is_a(value, Mapping):
        return _scrub_fields(value, room, depth)
    if is_a(value, list | tuple):
        if 2 <= len(value) <= 3 and is_secret(value[0]):  # a header may have its kind between
            return [value[0], HIDDEN]
        return [scrub(one, room, depth + 1) for one in value if not room.is_full()]
    if fits(value):
        return value
    room.over = True
    return f"<{type(value).__name__}>"


def _scrub_fields(value: Mapping[Any, Any], room: Room, depth: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for name, one in value.items():
        if room.is_full():
            break
        hidden = is_secret(name) or _is_headers(name)
        found[name] = HIDDEN if hidden else scrub(one, room, depth + 1)
        room.left -= len(name) if isinstance(name, str) else 1
    return found


def _is_headers(name: object) -> bool:
    return isinstance(name, str) and _compiled(_HEADERS).match(name) is not None


def scrub_text(text: str) -> str:
    """``text`` without what looks like a key, with or without a name before it."""
    for pattern in _PATTERNS:
        text = _without(text, _compiled(pattern))
    return _compiled(_SHAPES).sub(HIDDEN, text)


def _without(text: str, pattern: re.Pattern[str]) -> str:
    """``text`` with all but the first group of what is found in it hidden, whatever its case."""
    low = text.lower() if text.isascii() else text.translate(_LOWER)  # both of the same length
    pieces, at = [], 0
    for found in pattern.finditer(low):
        pieces += [text[at : found.end(1)], HIDDEN]
        at = found.end()
    return "".join([*pieces, text[at:]]) if pieces else text


def without_secrets(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of another instrumentation without headers and keys."""
    return {
        name: _clean(value)
        for name, value in attributes.items()
        if not _compiled(_HEADER_ATTRIBUTE).match(name) and not is_secret(name)
    }


def _clean(value: Any) -> Any:
    """An attribute's value: a text, or several."""
    if isinstance(value, str):
        return scrub_text(value)
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return without_secrets(value) if isinstance(value, Mapping) else value


def without_content(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same without prompts, answers, arguments, documents and exceptions' texts."""
    return {k: v for k, v in without_secrets(attributes).items() if not _compiled(_CONTENT).match(k)}
