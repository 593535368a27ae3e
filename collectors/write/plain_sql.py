"""How ClickHouse reads a file of OTLP trace requests into the rows of ``otel_traces``.

The same rows as ``collectors.receive.rows`` makes, for bodies that ``collectors.receive.plain``
let pass: nothing to refuse or repair, attributes that are scalars or lists of scalars.
"""

# ruff: noqa: S608  only our own words are put together here
from __future__ import annotations

from typing import Final

from collectors.receive.attributes import MOST_ATTRIBUTES, NAME_LIMIT, TEXT_LIMIT

_SCALAR: Final = (
    "optional string string_value=1; optional bool bool_value=2; "
    "optional int64 int_value=3; optional double double_value=4;"
)
SCHEMA: Final = f"""syntax = "proto3";
message Scalar {{ {_SCALAR} }}
message ArrayValue {{ repeated Scalar values=1; }}
message AnyValue {{ {_SCALAR} optional ArrayValue array_value=5; }}
message KeyValue {{ string key=1; AnyValue value=2; }}
message Resource {{ repeated KeyValue attributes=1; }}
message Scope {{ string name=1; string version=2; }}
message Event {{ fixed64 time_unix_nano=1; string name=2; repeated KeyValue attributes=3; }}
message Link {{ bytes trace_id=1; bytes span_id=2; string trace_state=3; repeated KeyValue attributes=4; }}
message Status {{ string message=2; int32 code=3; }}
message Span {{
  bytes trace_id=1; bytes span_id=2; string trace_state=3; bytes parent_span_id=4; string name=5;
  int32 kind=6; fixed64 start_time_unix_nano=7; fixed64 end_time_unix_nano=8;
  repeated KeyValue attributes=9; repeated Event events=11; repeated Link links=13; Status status=15;
}}
message ScopeSpans {{ Scope scope=1; repeated Span spans=2; }}
message ResourceSpans {{ Resource resource=1; repeated ScopeSpans scope_spans=2; }}
message Request {{ repeated ResourceSpans resource_spans=1; }}
"""
_VALUE: Final = (
    "string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64), "
    "double_value Nullable(Float64)"
)
_PAIRS: Final = (
    f"Array(Tuple(key String, value Tuple({_VALUE}, array_value Tuple(values Array(Tuple({_VALUE}))))))"
)
_SPAN: Final = (
    "Tuple(trace_id String, span_id String, trace_state String, parent_span_id String, name String, "
    "kind Int32, start_time_unix_nano UInt64, end_time_unix_nano UInt64, "
    f"attributes {_PAIRS}, events Array(Tuple(time_unix_nano UInt64, name String, attributes {_PAIRS})), "
    f"links Array(Tuple(trace_id String, span_id String, trace_state String, attributes {_PAIRS})), "
    "status Tuple(message String, code Int32))"
)
STRUCTURE: Final = (
    f"resource_spans Array(Tuple(resource Tuple(attributes {_PAIRS}), "
    f"scope_spans Array(Tuple(scope Tuple(name String, version String), spans Array({_SPAN})))))"
)

SETTINGS: Final = {
    "max_block_size": 1 << 24,
    "short_circuit_function_evaluation": "disable",
    "compile_expressions": 0,
    "query_plan_merge_expressions": 0,
    "output_format_json_escape_forward_slashes": 0,
}

AMBIGUOUS: Final = 395
"""ClickHouse's code for what this SELECT gives up on: attributes in attributes, bytes, an attribute
without a value (an empty list looks the same here), a key twice, text over its limit. The
bodies of such a batch are read in Python."""
_XS: Final = "assumeNotNull(xs)"
_SPELLED: Final = f"match({_XS}, '[\\\\x00-\\\\x07\\\\x0b\\\\x0e-\\\\x1f]|\\\\x{{2028}}|\\\\x{{2029}}')"
"""Whether a text in a list holds what ClickHouse escapes otherwise than Python: it is given up on."""


def _double(value: str) -> str:
    """As Python writes it in the range that people use: 1.0, 0.5."""
    whole = f"{value} = round({value}) AND abs({value}) < 1e15"
    return f"if({whole}, concat(toString(toInt64(if({whole}, {value}, 0.))), '.0'), toString({value}))"


def _text(at: str, string: str, other: str, never: str) -> str:
    """The text of the value whose members begin with ``at``; where ``never`` is, it throws.

    Nothing is evaluated lazily: a branch costs little for a member that is not there.
    """
    return (
        f"multiIf(isNotNull({at}s) AND throwIf({never}) = 0, {string}, "
        f"isNotNull({at}i), toString(assumeNotNull({at}i)), "
        f"isNotNull({at}d), {_double(f'assumeNotNull({at}d)')}, "
        f"isNotNull({at}b), if(assumeNotNull({at}b), 'true', 'false'), {other})"
    )


def _none(at: str) -> str:
    return " AND ".join(f"isNull({at}{kind})" for kind in "sidb")


def _members(value: str) -> str:
    return ", ".join(f"{value}.{kind}_value" for kind in ("string", "int", "double", "bool"))


_ITEM: Final = _text("x", f"toJSONString({_XS})", "''", f"{_none('x')} OR (isNotNull(xs) AND {_SPELLED})")
_ITEMS: Final = (
    f"arrayMap((xs, xi, xd, xb) -> {_ITEM}, a.string_value, a.int_value, a.double_value, a.bool_value)"
)
_LIST: Final = f"concat('[', arrayStringConcat({_ITEMS}, ', '), ']')"
_ANY: Final = _text("v", "assumeNotNull(vs)", _LIST, f"{_none('v')} AND empty(a)")


def _map(pairs: str) -> str:
    """Pairs as a map of text."""
    values = (
        f"arrayMap((vs, vi, vd, vb, a) -> {_ANY}, {_members(f'{pairs}.value')}, "
        f"{pairs}.value.array_value.values)"
    )
    return f"CAST(({pairs}.key, {values}), 'Map(LowCardinality(String), String)')"


def _id(of: str, size: int) -> str:
    """An id as text; empty when it is none."""
    return f"if(length({of}) = {size} AND {of} != repeat(char(0), {size}), lower(hex({of})), '')"


def _over(pairs: str) -> str:
    """Whether attributes are over a limit, or have a key twice."""
    return (
        f"length({pairs}) > {MOST_ATTRIBUTES} OR arrayUniq({pairs}.key) != length({pairs}) "
        f"OR arrayExists(k -> length(k) > {NAME_LIMIT}, {pairs}.key)"
    )


def _any_over(events: str) -> str:
    return f"arrayExists(e -> {_over('e')}, {events}.attributes)"


COLUMNS: Final = (
    ("Timestamp", "fromUnixTimestamp64Nano(toInt64(sp.start_time_unix_nano), 'UTC')"),
    ("TraceId", "lower(hex(sp.trace_id))"),
    ("SpanId", "lower(hex(sp.span_id))"),
    ("ParentSpanId", "lower(hex(sp.parent_span_id))"),
    ("TraceState", "sp.trace_state"),
    ("SpanName", "CAST(sp.name, 'LowCardinality(String)')"),
    ("SpanKind", ("CAST(transform(sp.kind, [1, 2, 3, 4, 5], ['Internal', 'Server', 'Client', "
     "'Producer', 'Consumer'], 'Unspecified'), 'LowCardinality(String)')")),
    ("ServiceName", "CAST(resource['service.name'], 'LowCardinality(String)')"),
    ("ResourceAttributes", "resource"),
    ("ScopeName", "scope.name"),
    ("ScopeVersion", "scope.version"),
    ("SpanAttributes", _map("sp.attributes")),
    ("Duration", "sp.end_time_unix_nano - sp.start_time_unix_nano"),
    ("StatusCode", ("CAST(transform(sp.status.code, [1, 2], ['Ok', 'Error'], 'Unset'), "
     "'LowCardinality(String)')")),
    ("StatusMessage", "sp.status.message"),
    ("Events.Timestamp", ("arrayMap(t -> fromUnixTimestamp64Nano(toInt64(least(t, 9223372036854775807)), "
     "'UTC'), sp.events.time_unix_nano)")),
    ("Events.Name", "CAST(sp.events.name, 'Array(LowCardinality(String))')"),
    ("Events.Attributes", f"arrayMap(e -> {_map('e')}, sp.events.attributes)"),
    ("Links.TraceId", f"arrayMap(l -> {_id('l', 16)}, sp.links.trace_id)"),
    ("Links.SpanId", f"arrayMap(l -> {_id('l', 8)}, sp.links.span_id)"),
    ("Links.TraceState", "sp.links.trace_state"),
    ("Links.Attributes", f"arrayMap(l -> {_map('l')}, sp.links.attributes)"),
)  # fmt: skip


_SPAN_OVER: Final = (
    f"length(sp.name) > {NAME_LIMIT} OR length(sp.trace_state) > {NAME_LIMIT} OR {_over('sp.attributes')} "
    f"OR length(sp.status.message) > {TEXT_LIMIT} "
    f"OR arrayExists(v -> length(v) > {TEXT_LIMIT}, sp.attributes.value.string_value) "
    f"OR arrayExists(n -> length(n) > {NAME_LIMIT}, sp.events.name) OR {_any_over('sp.events')} "
    f"OR arrayExists(n -> length(n) > {NAME_LIMIT}, sp.links.trace_state) OR {_any_over('sp.links')}"
)
_SHARED_OVER: Final = (
    f"{_over('rs.resource.attributes')} OR arraySum(arrayMap((k, v) -> length(k) + ifNull(length(v), 0), "
    "rs.resource.attributes.key, rs.resource.attributes.value.string_value)) > "
    f"{NAME_LIMIT}"
)
_SCOPE_OVER: Final = f"length(ss.scope.name) > {NAME_LIMIT} OR length(ss.scope.version) > {NAME_LIMIT}"


_COUNTED: Final = "arraySum(x -> arraySum(y -> length(y), x), resource_spans.scope_spans.spans.kind)"


def select(file: str, schema_file: str, spans: int) -> str:
    """The rows of the requests in ``file``, as ``schema_file`` has them; neither path holds a quote.

    It fails where the file does not hold as many ``spans`` as were counted in its bodies.
    """
    columns = ", ".join(f"{sql} AS `{name}`" for name, sql in COLUMNS)
    groups = (
        f"SELECT arrayJoin(resource_spans) AS rs FROM file('{file}', 'ProtobufSingle', '{STRUCTURE}') "
        f"WHERE throwIf({_COUNTED} != {spans}, 'another number of spans than was counted') = 0"
    )
    scopes = (
        f"SELECT {_map('rs.resource.attributes')} AS resource, arrayJoin(rs.scope_spans) AS ss "
        f"FROM ({groups}) WHERE throwIf({_SHARED_OVER}, 'a resource over a limit') = 0"
    )
    rows = (
        f"SELECT resource, ss.scope AS scope, arrayJoin(ss.spans) AS sp FROM ({scopes}) "
        f"WHERE throwIf({_SCOPE_OVER}, 'a scope over a limit') = 0"
    )
    told = {"format_schema": f"{schema_file}:Request", **SETTINGS}
    settings = ", ".join(f"{name} = '{value}'" for name, value in told.items())
    return (
        f"SELECT {columns} FROM ({rows}) WHERE throwIf({_SPAN_OVER}, 'a span over a limit') = 0 "
        f"SETTINGS {settings}"
    )
