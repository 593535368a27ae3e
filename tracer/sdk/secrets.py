"""What is never recorded: keys and headers; and content, where it is not wanted.

By the names of fields wherever there are any, and by the shapes that keys have wherever
there are none. A key without a name and without a shape cannot be told from a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[hidden]"
_NAMES = (
    r"authorization|api[-_ ]?key|apikey|cookie|passw(?:or)?d|passphrase|secret(?!ar)|credentials?"
    r"|(?:access|auth|bearer|id|refresh|session|security|csrf|xsrf)[-_]?token|private[-_]?key|x-amz-signature|jwt"
)
_NAME = re.compile(rf"(?i){_NAMES}|^(?:token|auth|key|sig|signature)$")
_HEADERS = re.compile(r"(?i)^(?:(?:default|extra|request|response|http)[-_])?headers$")
_NAMED = re.compile(
    rf"""(?ix) ( [\w-]* (?:{_NAMES}) [\w-]* \\*["']? \s* (?: [:=] | ,(?=\s*b?["']) ) \s* )
    ( \\+["'].*?\\+["'] | b?"(?:[^"\\]|\\.)*" | b?'(?:[^'\\]|\\.)*'
    | (?:(?:bearer|basic|digest|negotiate)\s+)? [^\s"'&,;)}}\]]+ )"""
)
_WHOLE_LINE = re.compile(
    r"""(?ix) ( [\w-]* (?: authorization | cookie ) \\*["']? \s* [:=] \s* )
    (?: \\+["'].*?\\+["'] | b?(["']) .*? \2 | [^"'\r\n]+ )"""
)
_SHAPES = re.compile(
    r"\b(?:[Bb]earer|BEARER|[Bb]asic|BASIC|[Nn]egotiate)\s+(?=\S*?(?:[0-9=._~-]|[a-z][A-Z]|[A-Z]{5}))"
    r"[A-Za-z0-9+/=._~-]{6,}"
    r"|\b(?:sk|pk|rk|gsk|hf|gh[pousr]|xox[abpr]|glpat)[-_][A-Za-z0-9_-]{6,}"
    r"|\bAKIA[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
)
_CONTENT = re.compile(
    r"^(?:input\.value|output\.value|exception\.(?:message|stacktrace)|llm\.(?:prompts?|input_messages"
    r"|output_messages|completions|prompt_template|tools|invocation_parameters|function_call)(?:\.|$)"
    r"|gen_ai\.(?:prompt|completion|input|output|system_instructions|tool\.definitions"
    r"|tool\.call\.(?:arguments|result)|retrieval\.(?:query\.text|documents))(?:\.|$)"
    r"|(?:retrieval|reranker)\.(?:documents|input_documents|output_documents|query)(?:\.|$)"
    r"|embedding\.(?:embeddings|text)|tool\.(?:parameters|description)|tool_call\."
    r"|traceloop\.(?:entity\.(?:input|output)|association|prompt)|db\.(?:statement|query\.text)"
    r"|message\.|document\.|metadata$|(?:http|url)\.(?:url|full|target|query|request\.header|response\.header))"
)
_HEADER_ATTRIBUTE = re.compile(r"^http\.(?:request|response)\.header\.|^rpc\..*\.metadata\.")


def is_secret(name: object) -> bool:
    """Whether a field of this name holds a key."""
    if isinstance(name, bytes):
        name = name.decode("latin-1")
    return isinstance(name, str) and _NAME.search(name) is not None


def scrub(value: Any, depth: int = 0) -> Any:
    """``value`` without the fields that hold keys and headers, as deep as JSON is usual."""
    if isinstance(value, str):
        return scrub_text(value)
    if depth > 8 or isinstance(value, int | float | None):
        return value
    if isinstance(value, Mapping):
        return {
            k: HIDDEN if is_secret(k) or _is_headers(k) else scrub(v, depth + 1)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) == 2 and is_secret(value[0]):
            return [value[0], HIDDEN]
        return [scrub(one, depth + 1) for one in value]
    return value


def _is_headers(name: object) -> bool:
    return isinstance(name, str) and _HEADERS.match(name) is not None


def scrub_text(text: str) -> str:
    """``text`` without what looks like a key, with or without a name before it."""
    for pattern in (_WHOLE_LINE, _NAMED):
        text = pattern.sub(lambda found: found.group(1) + HIDDEN, text)
    return _SHAPES.sub(HIDDEN, text)


def without_secrets(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of another instrumentation without headers and keys."""
    return {
        name: scrub_text(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if not _HEADER_ATTRIBUTE.match(name) and not is_secret(name)
    }


def without_content(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same without prompts, answers, arguments, documents and exceptions' texts."""
    return {k: v for k, v in without_secrets(attributes).items() if not _CONTENT.match(k)}
