"""Bearer tokens and TLS, for both receivers alike."""

from __future__ import annotations

import hashlib
import ssl

import grpc
import httpx
import pytest
import trustme

from collectors.receive.access import Tokens, read_tokens
from collectors.receive.decode import BadBody
from collectors.receive.grpc_server import SERVICES
from collectors.receive.tls import ReceiverTls
from collectors.store.errors import StoreError
from tests.unit.collectors.live_receiver import PROTOBUF, live_receiver, own_database
from tests.unit.collectors.spans import fresh, one

TOKEN = "tok-CANARY"
EXPORT = f"/{SERVICES['spans']}/Export"


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@pytest.mark.parametrize("said", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, "Bearer é"])
def test_without_the_token_nothing_is_taken(engine, said, caplog):
    """401 over HTTP, UNAUTHENTICATED over gRPC; neither says what was sent."""
    trace = next(fresh)
    body = one(trace).SerializeToString()
    tokens = read_tokens(None, [TOKEN])
    with own_database(engine) as store, live_receiver(store, tokens) as live:
        answer = live.client.post(
            "/v1/traces", content=body, headers={**PROTOBUF, "authorization": said.encode()}
        )
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        told = [("authorization", said)] if said.isascii() else []
        with grpc.insecure_channel(live.grpc) as channel, pytest.raises(grpc.RpcError) as problem:
            channel.unary_unary(EXPORT)(body, timeout=20, metadata=told)
        assert problem.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert live.spans(trace) == []
    assert "CANARY" not in answer.text + problem.value.details() + caplog.text


def test_with_the_token_both_take(engine, tmp_path):
    """Any of the file's tokens; comments and names are allowed."""
    file = tmp_path / "tokens"
    file.write_text(f"# senders\nshop:{hashed('other')}\n{hashed(TOKEN).upper()} # bare\n\n")
    trace = next(fresh)
    with own_database(engine) as store, live_receiver(store, read_tokens(file)) as live:
        for n, token in enumerate((TOKEN, "other"), 1):
            answer = live.post(one(trace, n), authorization=f"bearer {token}")
            assert answer.status_code == 200
        with grpc.insecure_channel(live.grpc) as channel:
            channel.unary_unary(EXPORT)(
                one(trace, 3).SerializeToString(), timeout=20,
                metadata=[("authorization", f"Bearer {TOKEN}")],
            )  # fmt: skip
        assert len(live.spans(trace)) == 3


def test_every_token_is_compared_whichever_fits(monkeypatch):
    """The time an answer takes tells nothing of which token is right."""
    import hmac

    seen = []
    real = hmac.compare_digest
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: seen.append(1) or real(a, b))
    tokens = read_tokens(None, ["a", "b", "c"])
    tokens.check("Bearer a")
    with pytest.raises(BadBody):
        tokens.check("Bearer z")
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "has no token"), ("shop:abc\n", "line 1 is not NAME:SHA256"), (None, "cannot be read")],
)
def test_a_token_file_that_is_wrong_is_one_sentence(tmp_path, text, says):
    """An empty file does not open the door; the line is named, not shown."""
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    with pytest.raises(StoreError, match=says) as problem:
        read_tokens(file)
    assert problem.value.exit_code == 2
    assert "abc" not in str(problem.value)


def test_no_tokens_let_everybody_in():
    """As it was before there were any."""
    Tokens(()).check("")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An authority, a server certificate of it and a client's."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("sender@example.org")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server.private_key_pem.write_to_path(folder / "key.pem")
    server.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")
    client.cert_chain_pems[0].write_to_path(folder / "client.crt")
    return folder


def context(files, *, client: bool) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files / "ca.pem")
    if client:
        made.load_cert_chain(files / "client.pem")
    return made


@pytest.mark.parametrize("mutual", [False, True])
def test_tls_and_mtls_over_http_and_grpc(engine, files, mutual):
    """With authorities, a sender without a certificate of theirs is not talked to."""
    tls = {"certfile": files / "cert.pem", "keyfile": files / "key.pem",
           "ca_certs": files / "ca.pem" if mutual else None}  # fmt: skip
    trace = next(fresh)
    body = one(trace).SerializeToString()
    authority = (files / "ca.pem").read_bytes()
    pair = (files / "client.key").read_bytes(), (files / "client.crt").read_bytes()
    trusted = grpc.ssl_channel_credentials(authority, *(pair if mutual else ()))
    with (
        own_database(engine) as store,
        live_receiver(store, verify=context(files, client=mutual), tls=ReceiverTls(**tls)) as live,
    ):
        assert live.post(body).status_code == 200
        with grpc.secure_channel(live.grpc, trusted) as channel:
            channel.unary_unary(EXPORT)(one(trace, 2).SerializeToString(), timeout=20)
        assert len(live.spans(trace)) == 2
        if mutual:
            stranger = context(files, client=False)
            with httpx.Client(verify=stranger) as client, pytest.raises(httpx.TransportError):
                client.post(f"{live.url}/v1/traces", content=body, headers=PROTOBUF)
            bare = grpc.ssl_channel_credentials(authority)
            with grpc.secure_channel(live.grpc, bare) as channel, pytest.raises(grpc.RpcError):
                channel.unary_unary(EXPORT)(body, timeout=5)
        with grpc.insecure_channel(live.grpc) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(EXPORT)(body, timeout=5)


def test_half_a_pair_of_files_is_refused():
    """Certificate and key belong together; authorities need both."""
    with pytest.raises(ValueError, match="belong together"):
        ReceiverTls(certfile="x")
    with pytest.raises(ValueError, match="ca_certs needs"):
        ReceiverTls(ca_certs="x")
    with pytest.raises(StoreError, match=r"TLS file .*no-such.pem cannot be read"):
        ReceiverTls(certfile="no-such.pem", keyfile="no-such.pem").uvicorn_options()
