"""HyperQueue's way: in one allocation its server and a worker, and a task of both cores for each run.

``hyperqueue_app.py FOLDER RUNS COMMAND...`` (needs hyperqueue, whose package has the server)
"""

from __future__ import annotations

import sys
from pathlib import Path

from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.ffi.protocol import ResourceRequest
from hyperqueue.job import Job


def main(folder: Path, runs: int, command: list[str]) -> None:
    with LocalCluster(str(folder / "server"), WorkerConfig(cores=2)) as cluster:
        job = Job(default_workdir=folder)
        for _ in range(runs):
            job.program(command, resources=ResourceRequest(cpus=2))
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
