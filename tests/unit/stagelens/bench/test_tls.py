"""Servers behind TLS: which certificates are trusted, and what a user reads otherwise."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from stagelens.bench.wire import Client, Target
from stagelens.errors import UserError
from tests.support.load_target import CLOCK, load_target
from tests.unit.stagelens.bench.test_results import QUICK, bench


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def context(authority) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(made)
    return made


@pytest.fixture
def ca(authority, tmp_path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


async def test_a_trusted_certificate_is_loaded_as_plain_http_is(context, ca):
    """With `--ca`: every request is answered."""
    async with load_target(tls=context) as fake:
        code, out, err = await bench(
            "--url", fake.url, "--ca", str(ca), "--rate", "50", "--requests", "5", *QUICK
        )
    assert (code, err) == (0, "")
    assert "5 ok, 0 failed" in out


@pytest.mark.parametrize("model", [(), ("--model", "m")])
async def test_a_certificate_that_is_not_trusted_is_told_as_that(context, model):
    """One sentence with the way out, whatever request comes first."""
    async with load_target(tls=context) as fake:
        code, out, err = await bench("--url", fake.url, "--rate", "50", *model, *QUICK)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "its certificate is not trusted (" in err
    assert "name one to trust with --ca" in err
    assert "no server answers" not in err


@pytest.mark.parametrize(
    ("made", "said"), [(None, "No such file"), ("no certificate", "no certificates in PEM")]
)
def test_a_ca_file_that_is_none_is_a_mistake(tmp_path, made, said):
    """Exit code 2, with nothing sent."""
    path = tmp_path / "ca.pem"
    if made is not None:
        path.write_text(made)
    with pytest.raises(UserError, match=said) as told:
        Client(Target.parse("https://127.0.0.1:9"), CLOCK, 1.0, path)
    assert told.value.exit_code == 2


async def test_a_server_that_speaks_no_tls_and_says_nothing_is_told_soon():
    """Plain HTTP waits for a request as long as TLS waits for its answer."""
    left = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = Client(Target.parse(f"https://127.0.0.1:{port}"), CLOCK, 600.0, contact_s=0.2)
        try:
            with pytest.raises(ConnectionError, match=r"no TLS handshake within 0\.2 s; does it speak https"):
                await client.get(b"GET / HTTP/1.1\r\n\r\n")
        finally:
            left.set()
            await client.close()
