"""The proxy's own answers, in OpenAI's error form; they never quote a request or a secret."""

from __future__ import annotations

import json
import math

from proxy.asgi import Send


class Refusal(Exception):
    """The request is answered by the proxy itself: a status, an error type, one sentence."""

    def __init__(
        self, status: int, kind: str, message: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s


async def answer(send: Send, refusal: Refusal, close: bool = False) -> None:
    """Send ``refusal`` as a whole response; ``close``: the request's body was not read."""
    error = {"message": refusal.message, "type": refusal.kind, "param": None,
             "code": refusal.status}  # fmt: skip
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(refusal.retry_after_s))))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
