"""The provider that makes the spans: the one that is there, or one of ours."""

from __future__ import annotations

import uuid
from typing import Any

from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

from tracer import semconv
from tracer.export import SCOPE
from tracer.ids import IdSource, RandomIds


class SpanIds(IdGenerator):
    """The SDK's own ids come from the module ``random``, which programs seed."""

    def __init__(self, ids: IdSource | None = None) -> None:
        self._ids = ids or RandomIds()

    def generate_span_id(self) -> int:
        return self._ids.span_id()

    def generate_trace_id(self) -> int:
        return self._ids.trace_id()


_own_provider: TracerProvider | None = None
OUR_INSTANCES: dict[str, str] = {}


def provider_of(service_name: str | None) -> tuple[TracerProvider, Resource]:
    """The provider that is set up, or one of ours; and the resource that we send."""
    global _own_provider
    found = otel.get_tracer_provider()
    if isinstance(found, TracerProvider) and found is not _own_provider:
        return found, found.resource.merge(_resource_of(found.resource, service_name))
    resource = Resource.create({semconv.SERVICE_NAME: service_name} if service_name else {})
    resource = resource.merge(_resource_of(resource, None))
    if _own_provider is None:
        _own_provider = TracerProvider(resource=resource, id_generator=SpanIds())
        if isinstance(found, otel.ProxyTracerProvider):  # else it is another's, and stays
            otel.set_tracer_provider(_own_provider)
    return _own_provider, resource


def _resource_of(known: Resource, service_name: str | None) -> Resource:
    """What ``known`` lacks: the name that was asked for, and an id of this process."""
    added: dict[str, Any] = {}
    if service_name:
        added[semconv.SERVICE_NAME] = service_name
    if not known.attributes.get(semconv.SERVICE_INSTANCE_ID):
        added[semconv.SERVICE_INSTANCE_ID] = OUR_INSTANCES["id"] = uuid.uuid4().hex
    return Resource(added)


def tracer_of(provider: TracerProvider) -> otel.Tracer:
    """The provider's tracer; of one that was joined, without the ids that seeding repeats."""
    made = provider.get_tracer(SCOPE)
    if type(getattr(made, "id_generator", None)) is RandomIdGenerator:
        made.id_generator = SpanIds()  # type: ignore[attr-defined]
    return made


def is_ours(provider: TracerProvider) -> bool:
    return provider is _own_provider


def instance_is_ours(resource: Resource) -> bool:
    """Whether this process's id was made here; a forked one then needs its own."""
    return OUR_INSTANCES.get("id") == resource.attributes.get(semconv.SERVICE_INSTANCE_ID)
