"""An external training script without torch: prints steps, and injects a fault at step 4. No part of sweep."""

import os
import subprocess
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def act(fault):
    if fault == "hang":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        time.sleep(600)
    if fault == "oom" and RANK == 1:
        sys.stderr.write(
            "Traceback (most recent call last):\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.11 GiB of which 1.02 GiB is free.\n"
        )
        sys.exit(1)
    if fault == "import_error":
        import a_package_that_is_not_there  # noqa: F401
    if fault == "segfault" and RANK == 0:
        os.kill(os.getpid(), 11)
    if fault in ("oom", "segfault"):
        time.sleep(600)  # as a collective would
    if fault == "short":
        sys.exit(0)


def main():
    fault, steps = sys.argv[1], int(sys.argv[2])
    batch = 16 if fault == "mismatch" else 32
    print(f"batch of {batch} sequences on {WORLD} ranks", flush=True)
    for step in range(1, steps + 1):
        if step == 4:
            act(fault)
        begin = time.perf_counter()
        time.sleep(0.05)
        if RANK == WORLD - 1:
            loss = float("nan") if fault == "nan" and step == 4 else 4.0 / step
            seconds = time.perf_counter() - begin
            sys.stdout.write(f"\x1b[32mstep {step}\x1b[0m loss {loss} ")
            sys.stdout.flush()
            print(f"time {seconds:.6f} mem {1 + RANK} GiB", flush=True)
        else:
            print(f"mem {1 + RANK} GiB", flush=True)
    if fault == "stays":
        time.sleep(600)


main()
