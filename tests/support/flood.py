"""Connections of a stranger to every port that a sweep's processes listen on, as many as it can hold.

    python -S flood.py SECONDS CONNECTIONS [USER]

Reads the ports from standard input, a line of JSON each time they change; prints how many connections it made. Has no
imports of the product: the stranger need not be able to read it.
"""

import json
import os
import random
import resource
import select
import socket
import sys
import time

SENT = (
    *(b"", b"\0" * 4096, b"[" * 60_000, b'{"token": "\\ud800"}\n', b"GET / HTTP/1.1\r\n\r\n", b"x\n" * 2000),
    *(b"\xff\xff\xff\xff" * 1000, os.urandom(64)),
)
HELD_S = 30.0
PAUSE_S = 0.002
"""between two connections: two cores also have to run the sweep"""


def main() -> None:
    seconds, most = float(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if len(sys.argv) > 3:
        import pwd

        found = pwd.getpwnam(sys.argv[3])
        os.setgroups([])
        os.setgid(found.pw_gid)
        os.setuid(found.pw_uid)
    held, most_held, made, refused, ports, unread, end = [], 0, 0, 0, [], b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([0], [], [], 0)[0]:
            if not (data := os.read(0, 1 << 16)):
                break
            *lines, unread = (unread + data).split(b"\n")
            ports = json.loads(lines[-1]) if lines else ports
        if not ports:
            time.sleep(0.01)
            continue
        try:
            one = socket.socket()
            held.append((time.monotonic(), one))
            one.settimeout(0.2)
            one.connect(tuple(random.choice(ports)))
            one.setblocking(False)
            made += 1
            one.send(random.choice(SENT))
        except OSError:
            refused += 1
        most_held = max(most_held, len(held))
        while held and (len(held) > most or held[0][0] < time.monotonic() - HELD_S):
            held.pop(0)[1].close()
        time.sleep(PAUSE_S)
    print(json.dumps({"made": made, "refused": refused, "held": most_held}))


if __name__ == "__main__":
    main()
