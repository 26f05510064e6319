"""The configuration module that the adapter writes for torchtitan 0.3: its own builders, with a run's sizes.

`flavor` names a model of torchtitan's registry; without one, the grid's shape is built from the parts of `llama3`
(dense) or `qwen3` (experts, norms of queries and keys). Only VALUES and RECOMPUTE differ between runs.
"""

from __future__ import annotations

TEMPLATE = '''"""Written by sweep: one run of torchtitan, on random tokens."""

import importlib
from dataclasses import dataclass
from types import SimpleNamespace

try:
    import torch
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.components.dataloader import ParallelAwareDataloader
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
    from torchtitan.components.metrics import MetricsProcessor
    from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
    from torchtitan.components.tokenizer import BaseTokenizer
    from torchtitan.config import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.models import llama3, qwen3
    from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.config_utils import make_ffn_config
    from torchtitan.trainer import Trainer
except ImportError as error:  # torchtitan answers one with "Cannot import module", without what is missing
    raise RuntimeError(f"torchtitan's environment lacks a package: {error}") from error

RUN = SimpleNamespace(
VALUES
)


class RandomTokens(torch.utils.data.IterableDataset):
    """Endless sequences of random tokens, different on every data-parallel rank."""

    def __init__(self, length, seed):
        self.length, self.seed = length, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        positions = torch.arange(self.length)
        while True:
            tokens = torch.randint(RUN.vocab_size, (self.length + 1,), generator=generator)
            yield {"input": tokens[:-1], "positions": positions}, tokens[1:]


def state_experts(layers):
    """Print what torchtitan made of the experts' configuration."""
    moe = next((layer.moe for layer in layers if getattr(layer, "moe", None)), None)
    if moe:
        kind = type(moe.routed_experts.token_dispatcher).__qualname__.partition("TokenDispatcher")[0]
        print(f"experts: dispatcher {kind}, balanced {moe.router._debug_force_load_balance}", flush=True)


class RandomTokensLoader(ParallelAwareDataloader):
    @dataclass(kw_only=True, slots=True)
    class Config(ParallelAwareDataloader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, seq_len, local_batch_size, **unused):
        state_experts(RUN.model.layers)  # the trainer makes its loader once it has changed the model
        dataset = RandomTokens(seq_len, dp_rank)
        super().__init__(dataset, dp_rank=dp_rank, dp_world_size=dp_world_size, batch_size=local_batch_size)


class Checkpoints(CheckpointManager):
    """Prints when a checkpoint that is written in the background is whole."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        pass

    def _save(self, step, last_step=False):
        saved = super()._save(step, last_step)
        if saved and self.save_future:
            self.save_future.add_done_callback(lambda it: it.exception() or print("checkpoint is whole", flush=True))
        return saved


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path=None):
        super().__init__()

    def encode(self, *args, **kwargs):
        raise NotImplementedError

    def decode(self, *args, **kwargs):
        raise NotImplementedError

    def get_vocab_size(self):
        return RUN.vocab_size


def sizes():
    """What both kinds of layers take."""
    return dict(
        n_layers=RUN.num_layers,
        dim=RUN.hidden_size,
        n_heads=RUN.num_heads,
        n_kv_heads=RUN.num_kv_heads,
        attn_backend=RUN.attention,
    )


def plain_layers():
    rope = ComplexRoPE.Config(dim=RUN.head_dim, max_seq_len=max(RUN.sequence, 8192), theta=500000, scaling="llama")
    return llama3._build_llama3_layers(hidden_dim=RUN.intermediate_size, rope=rope, **sizes())


def qwen3_layers():
    """Qwen3's, without its norms of queries and keys where the shape has none; the first may be dense."""
    rope = CosSinRoPE.Config(dim=RUN.head_dim, max_seq_len=max(RUN.sequence, 8192), theta=1000000.0)
    common = dict(rope=rope, head_dim=RUN.head_dim, **sizes())
    layers = qwen3._build_qwen3_layers(hidden_dim=RUN.intermediate_size, **common)
    if RUN.num_experts:
        layers[RUN.dense_layers :] = qwen3._build_qwen3_moe_layers(
            moe_hidden_dim=RUN.moe_intermediate_size,
            num_experts=RUN.num_experts,
            top_k=RUN.experts_per_token,
            moe_comm_backend=RUN.dispatcher,
            non_blocking_capacity_factor=RUN.capacity_factor,
            **common,
        )[RUN.dense_layers :]
    for layer in layers:
        if not RUN.qk_norm:
            layer.attention.qk_norm = None
        if layer.moe is not None and RUN.shared_experts:
            layer.moe.shared_experts = make_ffn_config(
                dim=RUN.hidden_size,
                hidden_dim=RUN.shared_experts * RUN.moe_intermediate_size,
                w1_param_init=qwen3._LINEAR_INIT,
                w2w3_param_init=qwen3._LINEAR_INIT,
            )
    return layers


def model():
    """The model of the grid's shape."""
    library, kind = (llama3, llama3.Llama3Model) if RUN.family == "llama3" else (qwen3, qwen3.Qwen3Model)
    return kind.Config(
        dim=RUN.hidden_size,
        vocab_size=RUN.vocab_size,
        enable_weight_tying=RUN.tied_embeddings,
        tok_embeddings=Embedding.Config(
            num_embeddings=RUN.vocab_size,
            embedding_dim=RUN.hidden_size,
            param_init=library._EMBEDDING_SKIP_INIT if RUN.tied_embeddings else library._EMBEDDING_INIT,
        ),
        norm=RMSNorm.Config(normalized_shape=RUN.hidden_size, param_init=library._NORM_INIT),
        lm_head=Linear.Config(
            in_features=RUN.hidden_size,
            out_features=RUN.vocab_size,
            param_init=llama3._output_linear_init(RUN.hidden_size),
        ),
        layers=plain_layers() if RUN.family == "llama3" else qwen3_layers(),
    )


def check_sizes(config):
    """That torchtitan's own model is the grid's."""
    moe = config.layers[-1].moe if hasattr(config.layers[-1], "moe") else None
    own = dict(num_layers=len(config.layers), hidden_size=config.dim, vocab_size=config.vocab_size)
    own |= dict(num_heads=config.layers[0].attention.n_heads, num_experts=moe.num_experts if moe else 0)
    grid = {name: getattr(RUN, name) for name in own}
    if differing := [f"{name}: {own[name]}, in the grid {grid[name]}" for name in own if own[name] != grid[name]]:
        raise RuntimeError(f"torchtitan's model {RUN.family}/{RUN.flavor} has {'; '.join(differing)}")


def converters():
    """What the precision replaces. The output projection stays: its vocabulary is seldom a multiple of 128."""
    if RUN.quantized == "float8":
        from torchtitan.components.quantization.float8 import Float8GroupedExpertsConverter, Float8LinearConverter

        found = [Float8LinearConverter.Config(filter_fqns=["lm_head", "router.gate"])]
        grouped = Float8GroupedExpertsConverter.Config
    elif RUN.quantized == "mxfp8":
        from torchtitan.components.quantization.mx import MXFP8GroupedExpertsConverter, MXFP8LinearConverter

        found = [MXFP8LinearConverter.Config(fqns=["attention", "feed_forward", "shared_experts"])]
        grouped = MXFP8GroupedExpertsConverter.Config
    elif RUN.quantized == "nvfp4":
        from torchtitan.components.quantization.nvfp4 import NVFP4LinearConverter

        return [NVFP4LinearConverter.Config(fqns=["attention", "feed_forward"], model_compile_enabled=RUN.compiled)]
    else:
        return []
    found += [grouped()] if RUN.num_experts else []
    for one in found:
        one.model_compile_enabled = RUN.compiled
    return found


def specification():
    """torchtitan's own registry makes it, of a model of its own or of the grid's shape."""
    library = importlib.import_module(f"torchtitan.models.{RUN.family}")
    backends = dict(moe_comm_backend=RUN.dispatcher) if RUN.num_experts else {}
    if RUN.flavor:
        spec = library.model_registry(RUN.flavor, attn_backend=RUN.attention, converters=converters(), **backends)
        check_sizes(spec.model)
        return spec
    names = dict(llama3="llama3_configs", qwen3="qwen3_configs")
    getattr(library, names[RUN.family])["sweep"] = lambda **_: model()
    return library.model_registry("sweep", attn_backend=RUN.attention, converters=converters(), **backends)


def configuration():
    spec = specification()
    RUN.model = spec.model
    return Trainer.Config(
        model_spec=spec,
        dump_folder=RUN.directory,
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=RUN.vocab_size)),
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokensLoader.Config(),
        optimizer=default_adamw(lr=1e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1),
        training=TrainingConfig(
            local_batch_size=RUN.local_batch,
            global_batch_size=RUN.global_batch,
            seq_len=RUN.sequence,
            steps=RUN.steps,
            disable_cuda_graphs=not RUN.cuda_graphs,
            mixed_precision_param=RUN.dtype,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=RUN.replicate,
            data_parallel_shard_degree=RUN.shard,
            fsdp_reshard_after_forward=RUN.reshard,
            tensor_parallel_degree=RUN.tp,
            pipeline_parallel_degree=RUN.pp,
            pipeline_parallel_schedule=RUN.schedule,
            pipeline_parallel_microbatch_size=RUN.micro_batch,
            context_parallel_degree=RUN.cp,
            expert_parallel_degree=RUN.ep,
            spmd_backend=RUN.spmd_backend,
            pipeline_parallel_layers_per_stage=RUN.layers_per_stage,
        ),
        debug=DebugConfig(moe_force_load_balance=RUN.balanced),
        activation_checkpoint=RECOMPUTE,
        compile=CompileConfig(enable=RUN.compiled, enable_async_tensor_parallel=RUN.async_tp),
        checkpoint=Checkpoints.Config(
            enable=bool(RUN.checkpoint),
            folder=RUN.checkpoint or "checkpoint",
            interval=RUN.checkpoint_interval,
            async_mode=RUN.async_mode,
        ),
        metrics=MetricsProcessor.Config(log_freq=1, disable_color_printing=True),
    )
'''
