"""Values that would fail each request, or leak: each is refused before the start, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.errors import ProxyError
from proxy.pipelines.callables import headers_from_env, load
from proxy.pipelines.settings import McpTools, OpenApiTools, PipelineSettings
from proxy.pipelines.web import Web
from stagelens.errors import UserError
from stagelens.settings import load_config


def http(**more: object) -> dict[str, Any]:
    return {"kind": "http", "name": "r", "url": "http://h/", **more}


def documents(**more: object) -> dict[str, Any]:
    return {"kind": "documents", "name": "r", **more}


def openapi(**more: object) -> dict[str, Any]:
    return {"kind": "openapi", "document": "d", "base_url": "http://h", "operations": ["o"],
            "allow_hosts": ["h"], **more}  # fmt: skip


def mcp(**more: object) -> dict[str, Any]:
    return {"kind": "mcp", "tools": ["t"], **more}


@pytest.mark.parametrize(
    ("retriever", "says"),
    [
        (http(url="http://h:99999/"), "Port"),
        (http(url="http://h:x/"), "Port"),
        (http(url="http://h/a b"), "ASCII without spaces"),
        (http(url="http://h/a\r\nx: y"), "ASCII without spaces"),
        (http(url="http://h/ø"), "ASCII without spaces"),
        (http(url="http://@h/"), "no credentials"),
        (http(url="http://h/#a"), "not sent"),
        (http(timeout_s=float("inf")), "less than or equal to 86400"),
        (http(timeout_s=float("nan")), "less than or equal to 86400"),
        (http(timeout_s=0), "greater than 0"),
        (http(documents_path="$.hits[*].x"), "names and places"),
        (http(documents_path="hits[0"), "names and places"),
        (http(text_path="$['text']"), "names and places"),
        (http(id_path="$..id"), "names and places"),
        (http(name="a\nb"), "no line ends"),
        (http(body={"n": [float("nan")]}), "no such number"),
        (http(headers_env={"x y": "K"}), "a header's name"),
        (http(headers_env={"x\r\ny": "K"}), "a header's name"),
        (http(headers_env={"Content-Length": "K"}), "the proxy's own"),
        (http(headers_env={"authorization": "Bearer sk-CANARY"}), "never the secret itself"),
        (documents(collection="my documents"), "match pattern"),
        (documents(search="text", embedding={"kind": "local"}), "uses no embedding"),
        ({"kind": "python", "name": "r", "function": "os.getpid"}, "given as module:name"),
        (documents(collector_api="http://h/?a=1"), "leave out what stands behind"),
    ],
)
def test_a_retriever_that_could_not_be_asked_is_refused(retriever: dict, says: str):
    """The sentence says what is wrong and quotes no value, which may be a secret."""
    with pytest.raises(ValidationError, match=says) as refused:
        PipelineSettings.model_validate({"model": "m", "retrievers": [retriever]})
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (openapi(base_url="http://h/v1?key=1"), "leave out what stands behind"),
        (openapi(allow_hosts=["http://h/"]), "HOST or HOST:PORT"),
        (openapi(allow_hosts=["*.h"]), "HOST or HOST:PORT"),
        (openapi(operations=["a/b", "a.b"]), "given twice"),
        (mcp(url="http://h", env={"A": "K"}), "env goes with command alone"),
        (mcp(command=["x"], headers_env={"a": "K"}), "headers_env goes with url alone"),
        (mcp(command=["x"], private_hosts=["h"]), "private_hosts goes with url alone"),
        (mcp(command=["x\0"]), "match pattern"),
        (mcp(command=[""]), "match pattern"),
    ],
)
def test_a_tool_that_could_not_be_called_or_a_setting_that_would_do_nothing_is_refused(
    tool: dict, says: str
):
    """Nobody finds out by a request."""
    with pytest.raises(ValidationError, match=says):
        PipelineSettings.model_validate({"model": "m", "tools": [tool]})


@pytest.mark.parametrize(
    "path", ["", "$", "text", "$.hits[0].text", "hits[12]", "[0].a", "$[0]", "a b.@c", "_source.x-y"]
)
def test_paths_as_the_page_tells_them_are_taken(path: str):
    """Names of any letters, and places in lists."""
    PipelineSettings.model_validate({"model": "m", "retrievers": [http(text_path=path)]})


@pytest.mark.parametrize("host", ["h", "H.example.com:8080", "10.0.0.1", "::1", "[::1]", "[::1]:8080"])
def test_hosts_are_names_and_addresses_with_or_without_a_port(host: str):
    """In both forms that IPv6 has; the guard knows them too."""
    given = OpenApiTools.model_validate(openapi(allow_hosts=[host], private_hosts=[host]))
    in_url = host if "]" in host or host.count(":") < 2 else f"[{host}]"
    url = f"http://{in_url}" if in_url.endswith(":8080") else f"http://{in_url}:8080"
    if ":8080" not in host:
        assert Web(given.allow_hosts, given.private_hosts).check(url)


@pytest.mark.parametrize("names", ["''", '"a\\nb"', "' a'"])
def test_a_pipelines_name_is_one_that_a_client_can_ask_for(tmp_path: Path, names: str):
    """Not empty, on one line."""
    (tmp_path / "c.yaml").write_text(f"pipelines:\n  {names}: {{model: m}}\n")
    with pytest.raises(UserError) as refused:
        load_config(tmp_path / "c.yaml", {})
    assert "\n" not in str(refused.value)


def test_a_date_in_a_search_s_body_is_refused(tmp_path: Path):
    """YAML makes one of ``2024-01-01``, and JSON has none: the request would fail."""
    (tmp_path / "c.yaml").write_text(
        "pipelines: {b: {model: m, retrievers: [{kind: http, name: r, url: 'http://h', "
        "body: {since: 2024-01-01}}]}}\n"
    )
    with pytest.raises(UserError, match=r"body\.since"):
        load_config(tmp_path / "c.yaml", {})


@pytest.mark.parametrize(
    ("value", "says"),
    [("key\n", "line end"), ("k\r\nx: y", "line end"), ("kéy", "cannot hold"), (" ", "is empty")],
)
def test_a_secret_that_no_header_can_hold_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, value: str, says: str
):
    """A file's last line end is the usual one. Its name is told, not what it holds."""
    monkeypatch.setenv("SHOP_KEY", value)
    with pytest.raises(ProxyError, match=says) as refused:
        headers_from_env({"authorization": "SHOP_KEY"})
    assert "SHOP_KEY" in str(refused.value)
    assert "key" not in str(refused.value)


def test_a_secret_in_the_place_of_its_variables_name_is_not_told():
    """It looks like none: those are in capitals."""
    with pytest.raises(ProxyError) as refused:
        headers_from_env({"authorization": "ghp_canary"})
    assert "canary" not in str(refused.value)


def test_a_module_that_exits_is_a_function_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would have ended the server without a word of ours."""
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ProxyError, match="SystemExit"):
        load("leaves_at_once:f")


def test_a_key_in_an_mcp_servers_url_stands_in_no_message():
    """Some servers take it there."""
    from proxy.pipelines.tools.mcp_session import unreachable

    given = McpTools.model_validate(mcp(url="http://h/mcp?key=CANARY"))
    assert "CANARY" not in str(unreachable(given, "x"))
    assert "http://h/mcp" in str(unreachable(given, "x"))
