"""Pretend login hosts: each a host name of its own, and where asked a network of its own, from which Slurm is asked."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cut_network import CutNetwork
from tests.support.slurm.cluster import Cluster


@dataclass(frozen=True)
class LoginHost:
    """Where a launcher runs."""

    name: str
    cluster: Cluster
    network: CutNetwork | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """further ones of the launcher's environment"""

    @property
    def prefix(self) -> list[str]:
        """Of a command that runs there, as one process."""
        enter = [] if self.network is None else ["nsenter", f"--net=/run/netns/{self.network.name}"]
        return [*enter, "unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh"]

    @property
    def env(self) -> dict[str, str]:
        """Of a command there: the configuration has the cluster's services at the address that is seen from there."""
        if self.network is None:
            return self.cluster.env | {**self.variables}
        return self.cluster.env | {**self.variables, "SLURM_CONF": str(self._conf(self.network.outer_address))}

    def _conf(self, address: str) -> Path:
        folder = self.cluster.state / self.name
        if not folder.exists():
            folder.mkdir()
            for name in ("gres.conf", "cgroup.conf"):
                shutil.copy(self.cluster.state / name, folder)
            text = self.cluster.conf.read_text()
            for key in (f"{_host_of(text)}(", "AccountingStorageHost="):
                text = text.replace(f"{key}127.0.0.1", f"{key}{address}")
            (folder / "slurm.conf").write_text(text)
        return folder / "slurm.conf"


def _host_of(conf: str) -> str:
    """The controller's host name."""
    return conf.split("SlurmctldHost=")[1].partition("(")[0]
