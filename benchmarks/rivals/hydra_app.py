"""Hydra's way: a multirun of this application with its submitit launcher (needs hydra-submitit-launcher)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore

ConfigStore.instance().store(name="run", node={"number": 0, "iterations": 7, "sleep": 0.0, "results": "results.jsonl"})


@hydra.main(version_base=None, config_name="run")
def main(config: Any) -> None:
    from benchmarks.rivals.training import keep, meet_and_train, submitits_environment

    submitits_environment()
    keep(Path(config.results), meet_and_train(config.iterations, config.sleep))


if __name__ == "__main__":
    main()
