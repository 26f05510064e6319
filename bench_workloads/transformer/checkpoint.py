"""Checkpoints by torch.distributed.checkpoint: each rank writes its part, and reads what its layout needs of any other.

Pieces of the training state are in the names and coordinates of the whole model, the same in every layout. A matrix
that holds others' rows (``weights.FUSED``) has them in an order that depends on tp: its pieces are named after those.
A checkpoint is whole once its ``.metadata`` exists: torch writes it last, after all ranks have flushed their files.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.staging import BlockingAsyncStager, DefaultStager, StagingOptions
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.torch_version import TorchVersion

from bench_workloads.transformer.weights import FUSED, local_of, rows_of_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from bench_workloads.transformer.build import Trainer

_LAST = ".metadata"
_STAGER_KEEPS = (2, 13)
"""the release of torch seen to take a second copy with its stager; 2.11's ``DefaultStager._stage`` closes it"""


@dataclass(frozen=True)
class Piece:
    """A box of one tensor of the whole model."""

    name: str
    size: tuple[int, ...]
    """of the whole tensor"""
    offsets: tuple[int, ...]
    """where the box begins in it"""
    data: Tensor
    """this rank's, shared: what is copied into it is restored"""


def pieces(trainer: Trainer) -> list[Piece]:
    """Weights, both moments of AdamW, and the number of its steps. Call it after the first step."""
    named = [(part, *pair) for part in trainer.parts for pair in part.named_parameters()]
    found = []
    for (part, name, parameter), state in zip(named, trainer.optimizer.states(), strict=True):
        tied = part.shape.tied_embeddings and name == "output.weight"
        tensors = {"": local_of(parameter), **{f".{key}": state[key] for key in ("exp_avg", "exp_avg_sq")}}
        for kind, tensor in tensors.items():
            for name_here, size, offsets, rows in _boxes(trainer, "embedding.weight" if tied else name, parameter):
                found.append(Piece(name_here + kind, size, offsets, tensor[rows]))
    steps = [state["step"].view(1) for state in trainer.optimizer.states()]
    return [*(piece for piece in found if piece.data.numel()), *(Piece("step", (1,), (0,), step) for step in steps)]


def _boxes(
    trainer: Trainer, name: str, parameter: Tensor
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...], slice]]:
    """(name, size of the whole tensor, offsets in it, local rows) of each matrix that the parameter has rows of."""
    size, offsets = tuple(parameter.shape), (0,) * parameter.dim()
    local = size
    if isinstance(parameter, DTensor):
        local, offsets = compute_local_shape_and_global_offset(size, parameter.device_mesh, parameter.placements)
    fused = next((kind for kind in FUSED if f".{kind}." in name), None)
    if fused is None:
        yield name, size, tuple(offsets), slice(None)
        return
    first, tp = offsets[0], trainer.run.layout.tp
    at = 0  # in the fused matrix, which has for each tp rank its rows of each part
    counts = rows_of_parts(trainer.shape, fused, size[0])
    for rank in range(tp):
        for part, count in zip(FUSED[fused], counts, strict=True):
            here = count // tp
            begin, end = max(at, first), min(at + here, first + local[0])
            if begin < end:
                where = (rank * here + begin - at, *offsets[1:])
                own = name.replace(f".{fused}.", f".{part}.")
                yield own, (count, *size[1:]), where, slice(begin - first, end - first)
            at += here


class Checkpoints:
    """Those of one trainer in one directory, ``step-N`` each. ``kind``: sync, async or async_pinned."""

    def __init__(self, directory: Path, kind: str, device: torch.device, timeout_s: float) -> None:
        self._directory, self._kind, self._device = directory, kind, device
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))  # beside the training's
        self._stager = self._new_stager()
        self.staged: Future[None] = Future()
        """of the last one: has a result once the weights may change"""
        self.staged.set_result(None)
        self.ended: float | None = None
        """when the last one was whole, by ``time.perf_counter``"""
        self.bytes = 0
        """that this rank wrote of the last one"""

    def _new_stager(self) -> Any:
        on_gpu = self._device.type == "cuda"
        pinned = StagingOptions(use_pinned_memory=on_gpu, use_shared_memory=False, use_non_blocking_copy=on_gpu)
        return DefaultStager(pinned) if self._kind == "async_pinned" else BlockingAsyncStager()

    def start(self, step: int, pieces: Sequence[Piece]) -> None:
        """Begin to write. Returns once training may compute; before it updates weights, wait for ``staged``.

        Raises OSError, and RuntimeError of torch, with the path.
        """
        path, planner = self._directory / f"step-{step:09d}", _Save(pieces)
        tensors = {_key(piece.name, piece.offsets): piece.data for piece in pieces}
        # To copy ahead, torch waits for the training's kernels at every 10 MB, also where a stager has made all copies
        # (filesystem.py, _OverlappingCpuLoader): 3.6 GB were not written within 100 s beside training on an H200.
        how = {} if self._kind == "sync" else {"per_thread_copy_ahead": 0}
        to: dict[str, Any] = {"storage_writer": dcp.FileSystemWriter(path, **how), "planner": planner}
        self.ended, self._planner, self._path = None, planner, path
        with _plain(path):
            if self._kind == "sync":
                self._written: Future[Any] = Future()
                self._written.set_result(dcp.save(tensors, process_group=self._group, **to))
            else:
                if TorchVersion(torch.__version__) < _STAGER_KEEPS:
                    self._stager.close()
                    self._stager = self._new_stager()
                found: Any = dcp.async_save(tensors, process_group=self._group, async_stager=self._stager, **to)
                self._written = getattr(found, "upload_completion", found)
                self.staged = getattr(found, "staging_completion", self.staged)
        self._written.add_done_callback(self._note_end)

    def done(self) -> bool:
        """Whether the last one is whole, on all ranks. Raises as ``start``. Call it on every rank."""
        mine = torch.tensor(int(self.ended is not None), device=self._device)
        dist.all_reduce(mine, op=dist.ReduceOp.MIN)  # of the training's group: the writing threads use the other
        if not mine.item():
            return False
        with _plain(self._path):
            self._written.result()
        parts = [item.tensor_data for item in self._planner.plan.items if item.tensor_data is not None]
        self.bytes = sum(math.prod(part.chunk.sizes) * part.properties.dtype.itemsize for part in parts)
        return True

    def _note_end(self, _written: Future[Any]) -> None:
        self.ended = time.perf_counter()

    def restore(self, pieces: Sequence[Piece]) -> list[Path]:
        """Copy the newest whole one into the pieces. Returns torn ones. Raises as ``newest``, and as ``start``."""
        path, torn = newest(self._directory)
        with _plain(path), torch.no_grad():
            dcp.load({}, storage_reader=dcp.FileSystemReader(path), planner=_Load(pieces), process_group=self._group)
        return torn

    def close(self) -> None:
        """Release the buffers."""
        self._stager.close()


def newest(directory: Path) -> tuple[Path, list[Path]]:
    """The newest whole checkpoint, and torn ones. Raises FileNotFoundError, naming these, where none is whole."""
    found = sorted(directory.glob("step-*"))
    torn = [path for path in found if not (path / _LAST).exists()]
    if len(torn) == len(found):
        what = f"torn: {', '.join(path.name for path in torn)}" if torn else "it has none"
        raise FileNotFoundError(f"no whole checkpoint in {directory} ({what})")
    return max(set(found) - set(torn)), torn


def cut_evenly(path: Path, rank: int, ranks: int) -> list[Piece]:
    """Empty pieces for a rank of another layout: of each tensor its share of the first dimension, as ZeRO 3 cuts it."""
    found = []
    for name, saved in dcp.FileSystemReader(path).read_metadata().state_dict_metadata.items():
        size = tuple(saved.size)
        share = -(-size[0] // ranks)
        begin, end = min(rank * share, size[0]), min((rank + 1) * share, size[0])
        data = torch.empty(end - begin, *size[1:], dtype=saved.properties.dtype)
        found.append(Piece(name, size, (begin, *(0 for _ in size[1:])), data))
    return [piece for piece in found if piece.data.numel()]


def forget_cached(path: Path) -> None:
    """Let this node read the files from where they are stored, instead of from its memory."""
    for file in path.iterdir():
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _Save(dcp.DefaultSavePlanner):
    """Writes pieces. Of those that several ranks hold torch keeps one, on the rank that has least to write."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = {_key(piece.name, piece.offsets): piece for piece in pieces}

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan([_write_item(piece) for piece in self._pieces.values()])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self.state_dict[_key(index.fqn, index.offset or ())]


class _Load(dcp.DefaultLoadPlanner):
    """Reads pieces, each from all saved ones that it overlaps."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = pieces

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        items = []
        for number, piece in enumerate(self._pieces):
            saved: Any = self.metadata.state_dict_metadata.get(piece.name)
            if saved is None or tuple(saved.size) != piece.size:
                has = "lacks it" if saved is None else f"has {tuple(saved.size)}"
                raise RuntimeError(f"{piece.name} of {piece.size}: the checkpoint {has}, so it is of another model")
            found = create_read_items_for_chunk_list(piece.name, saved, [_chunk(piece)])
            if sum(math.prod(item.lengths) for item in found) != piece.data.numel():
                raise RuntimeError(f"{piece.name}: the checkpoint lacks a part of it")
            where = MetadataIndex(piece.name, index=number)
            items += [replace(item, dest_index=where) for item in found]
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        assert index.index is not None
        return self._pieces[index.index].data


def _key(name: str, offsets: Sequence[int]) -> str:
    return f"{name}@{','.join(map(str, offsets))}"


def _chunk(piece: Piece) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(piece.offsets), sizes=piece.data.shape)


def _write_item(piece: Piece) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(piece.name, torch.Size(piece.offsets)),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=_chunk(piece),
            properties=TensorProperties.create_from_tensor(piece.data),
            size=torch.Size(piece.size),
        ),
    )


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[None]:
    """Of torch's collected failures of all ranks raise one: that of the file system, with its path, else the first."""
    try:
        yield
    except CheckpointException as error:
        failures = [failure for failure, _ in error.failures.values()]
        system = next((failure for failure in failures if isinstance(failure, OSError)), None)
        if system is None:
            raise RuntimeError(f"checkpoint {path}: {failures[0]}") from failures[0]
        raise OSError(system.errno, system.strerror, str(system.filename or path)) from None
