"""Sends the bodies in a file to a collector, over several connections; a process of its own.

The file holds bodies, each after its length in four bytes. One line of JSON: seconds from the
first byte sent to the last answer, the sender's own CPU, and how often it was sent away.
"""

from __future__ import annotations

import http.client
import json
import mmap
import os
import struct
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

HEADERS = {"content-type": "application/x-protobuf"}


def main(url: str, file: str, connections: int) -> None:
    with Path(file).open("rb") as opened:
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    places, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        places.append((at + 4, size))
        at += 4 + size
    share = iter(places)
    lock, busy = threading.Lock(), [0]

    def work() -> None:
        parts = urlsplit(url)
        line = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        while True:
            with lock:
                place = next(share, None)
            if place is None:
                return
            body = data[place[0] : place[0] + place[1]]
            while not _sent(line, body):
                busy[0] += 1
                time.sleep(0.05)

    began, cpu = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {"s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "sent_away": busy[0]}
    print(json.dumps(told))


def _sent(line: http.client.HTTPConnection, body: bytes) -> bool:
    line.request("POST", "/v1/traces", body, HEADERS)
    answer = line.getresponse()
    told = answer.read()
    if answer.status == 200:
        return True
    if answer.status in (429, 503):
        return False
    sys.stderr.write(f"the collector answered {answer.status}: {told[:200]!r}\n")
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
