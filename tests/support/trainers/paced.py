"""An external training script without torch: its steps take as long as asked, together on all ranks. No part of sweep.

The ranks meet before each step as in a collective: one that is left alone fails, as NCCL's peers do.
"""

import os
import socket
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEP_S, STEPS, PRINTS = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def others():
    """Connections of rank 0 to the others, or of another to rank 0."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        server = socket.create_server(address)
        return [server.accept()[0] for _ in range(WORLD - 1)]
    for _ in range(600):
        try:
            return [socket.create_connection(address)]
        except OSError:
            time.sleep(0.05)
    sys.exit("rank 0 did not come")


def main():
    connections = others()
    for step in range(1, STEPS + 1):
        begun = time.perf_counter()
        time.sleep(STEP_S * (3 if step == 1 else 1))
        for connection in connections if RANK else []:
            connection.sendall(b"x")
        for connection in connections:
            if not connection.recv(1):
                sys.exit("lost a peer")
        for connection in [] if RANK else connections:
            connection.sendall(b"x")
        if PRINTS == "all" or WORLD - 1 == RANK:
            print(f"step {step} time {time.perf_counter() - begun:.6f}", flush=True)


main()
