"""Documents as retrievers give them, and as the model gets them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.pipelines.problems import StageProblem
from proxy.pipelines.runs import Trace
from proxy.pipelines.text import clean
from tracer import semconv

MOST_WITHOUT = 1000
"""Documents without a text that are passed over: a list need have no end."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of text that was found."""

    text: str
    id: str = ""


class Retrieves(Protocol):
    """A retriever that is ready to work."""

    name: str
    top_k: int
    timeout_s: float
    skips: bool

    async def find(self, query: str, trace: Trace) -> list[Document]:
        """The best documents first; raises :class:`StageProblem` or anything else."""
        ...


def at_path(value: object, path: str) -> Any:  # noqa: ANN401
    """The member at a dotted path (``$.hits[0].text``; ``$`` or "" is ``value``); None if absent."""
    for name, index in _STEP.findall(path.removeprefix("$").removeprefix(".")):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value


def documents_of(
    found: object, trace: Trace, top_k: int, text_path: str = "text", id_path: str = "id"
) -> list[Document]:
    """The first ``top_k`` documents of a list of texts or mappings. Those without a text are left
    out, up to ``MOST_WITHOUT`` of them, and counted in the run's span.

    Raises:
        StageProblem: it is no list, or none of it has a text.
    """
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | dict):
        raise StageProblem("bad_answer", "the search gave no list of documents")
    made: list[Document] = []
    without = 0
    for one in found if top_k else ():
        text = one if isinstance(one, str) else at_path(one, text_path)
        if isinstance(text, str) and text.strip():
            name = None if isinstance(one, str) else at_path(one, id_path)
            made.append(Document(clean(text), "" if name is None else clean(str(name))))
        else:
            without += 1
        if len(made) == top_k or without > MOST_WITHOUT:
            break
    if without:
        trace.notes[semconv.DOCUMENTS_WITHOUT_TEXT] = without
    if without and not made:
        raise StageProblem("bad_answer", f"no document has a text at {text_path}")
    return made


def system_text(template: str, documents: list[Document]) -> str:
    """``template`` with the documents at ``{documents}``, or after it."""
    lines = [json.dumps({"id": d.id, "text": d.text}, ensure_ascii=False) for d in documents]
    block = "\n".join(lines)
    if "{documents}" in template:
        return template.replace("{documents}", block)
    if not documents:
        return template
    return f"{template}\n\nDocuments:\n{block}".strip()
