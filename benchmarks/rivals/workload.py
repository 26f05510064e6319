"""The declaration of the training workload. Without torch: the login node imports this."""

from sweep.contract import Workload

WORKLOAD = Workload(
    name="small_ddp",
    takes_listener=True,
    main="benchmarks.rivals.training:main",
    axes=frozenset({"dp", "micro_batch_size", "grad_accum", "dtype"}),
    params={"sleep_s": 0.0},
    choices={"dtype": ("fp32",)},
    preload=("torch", "torch.distributed", "torch._dynamo", "benchmarks.rivals.training"),
)
