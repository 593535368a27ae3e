"""HTTP for retrievers and tools: no redirects, no more bytes than allowed, no hidden hosts."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Sequence

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from proxy.pipelines.problems import StageProblem

KEPT_S = 4.0
"""Shorter than servers keep a connection (5 s and more), so that none is used as it closes."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96")))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inner = _inside(found)
    if inner is not None and not is_public(str(inner)):
        return False
    mapped = isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None
    return mapped or (found.is_global and not found.is_multicast)


def _inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to: mapped, compatible, NAT64, 6to4 or Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if any(address in net for net in _EMBEDDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.sixtofour


class PublicResolver(AbstractResolver):
    """Resolves names, and refuses addresses that are not public unless the host is named.

    The check is of the very addresses that are connected to: a name that changes its
    address between a check and its use gains nothing.
    """

    def __init__(self, private_hosts: Sequence[str]) -> None:
        self._private = frozenset(h.lower() for h in private_hosts)
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if host.lower() not in self._private and not all(is_public(f["host"]) for f in found):
            raise StageProblem("host_refused", f"host {host} has an address that is not public")
        return found

    async def close(self) -> None:
        await self._inner.close()


class Web:
    """One HTTP client; ``allow_hosts`` empty: any host that the caller's own settings name."""

    def __init__(
        self, allow_hosts: Sequence[str] = (), private_hosts: Sequence[str] | None = None
    ) -> None:
        """``private_hosts`` None: addresses are not checked (the settings name the URL)."""
        self._allow = frozenset(h.lower() for h in allow_hosts)
        self._private = None if private_hosts is None else [h.strip("[]") for h in private_hosts]
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        resolver = None if self._private is None else PublicResolver(self._private)
        # a server that hangs takes no connection that another one needs
        connector = aiohttp.TCPConnector(
            limit=0, limit_per_host=64, keepalive_timeout=KEPT_S, resolver=resolver
        )
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None), trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )  # fmt: skip

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def check(self, url: str) -> URL:
        """The URL, if its host may be asked.

        Raises:
            StageProblem: it may not.
        """
        made = URL(url, encoded=True)
        host, port = (made.host or "").lower(), made.port
        forms = {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}
        if self._allow and not forms & self._allow:
            raise StageProblem("host_refused", f"host {host}:{port} is not in allow_hosts")
        guarded = self._private is not None and host not in self._private
        if guarded and is_ip(host) and not is_public(host):
            raise StageProblem("host_refused", f"address {host} is not public")
        if guarded and not is_ip(host) and host.replace(".", "").isdigit():
            raise StageProblem("host_refused", f"{host} is an address in a short form: give it whole")
        return made

    async def ask(
        self, method: str, url: str, headers: dict[str, str], body: object, most_bytes: int,
        *, telling: bool = False,
    ) -> bytes:  # fmt: skip
        """The body alone of what :meth:`fetch` gives."""
        return (await self.fetch(method, url, headers, body, most_bytes, telling=telling))[0]

    async def fetch(
        self, method: str, url: str, headers: dict[str, str], body: object, most_bytes: int,
        *, telling: bool = False,
    ) -> tuple[bytes, str]:  # fmt: skip
        """The body of a 2xx answer, and its content type as it came; ``body`` goes as JSON unless
        it is None.

        ``telling``: the server is one of ours; its own sentence is told where it refuses.

        Raises:
            StageProblem: a refused host, a redirect, another status, too long an answer, no
                connection.
        """
        target = self.check(url)
        if self._session is None:
            raise StageProblem("not_started", "the HTTP client is not started")
        try:
            async with self._session.request(
                method, target, headers=headers, json=body, allow_redirects=False,
                skip_auto_headers=None if body is not None else ("Content-Type",),
            ) as answer:  # fmt: skip
                if answer.status in REDIRECTS:
                    raise StageProblem("redirect_refused", "the server redirects, which is refused")
                if answer.status >= 300:
                    said = await _sentence(answer) if telling else ""
                    raise StageProblem(
                        str(answer.status), said or f"the server answered {answer.status}"
                    )
                kind = answer.headers.get("content-type", "")
                return await _read(answer, most_bytes), kind
        except aiohttp.ClientError as problem:
            raise StageProblem("connection", f"no answer: {type(problem).__name__}") from None


async def _sentence(answer: aiohttp.ClientResponse) -> str:
    try:
        told = json.loads(await _read(answer, 65_536))
        return str(told["detail"])[:500]
    except (StageProblem, ValueError, KeyError, TypeError):
        return ""


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    read = bytearray()
    async for part in answer.content.iter_any():
        read += part
        if len(read) > most:
            answer.close()
            raise StageProblem("result_too_large", f"the result is longer than {most} bytes")
    return bytes(read)


def is_ip(host: str) -> bool:
    """Whether ``host`` is an address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
