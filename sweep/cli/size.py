"""`sweep size`: how many GPUs for how long, and where adding GPUs stops paying off."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, SweepCommand, refuse
from sweep.cli.names import COUNT, GPU_NAMES, MODEL_NAMES, TRAINER_NAMES, FiniteRange, OneOf, json_option, name_option
from sweep.contract import LAYOUT
from sweep.errors import Mistake, SweepError, nearest, plural
from sweep.library.sources import collected_results
from sweep.plugins import WORKLOAD

if TYPE_CHECKING:
    from sweep.physics.sizing import Scaling, Size

    FastestOn = Callable[[int, int], tuple[float, str] | None]


@click.command(cls=SweepCommand)
@click.option("--params", "parameters", type=COUNT, help="Active parameters per token, such as 3B. Or use --model.")
@click.option(
    "--model",
    shell_complete=OneOf("model", MODEL_NAMES).shell_complete,
    help="Instead of --params, a known model; with --from, a model of the results.",
)
@click.option("--tokens", type=COUNT, required=True, help="Tokens to train on, such as 11T.")
@name_option(
    "--gpu", kind="GPU", names=GPU_NAMES, default="h100", show_default=True, help="GPU type, for its bf16 peak FLOP/s."
)
@click.option("--peak-tflops", type=FiniteRange(min=0, min_open=True), help="Peak TFLOP/s, instead of that of --gpu.")
@click.option("--mfu", type=FiniteRange(0, 1, min_open=True), help="MFU as a fraction. Default with --params: 0.40.")
@click.option("--days", type=FiniteRange(min=0, min_open=True), help="Days that the training may take.")
@click.option("--gpus", type=click.IntRange(min=1), help="Available GPUs, instead of --days.")
@name_option(
    "--trainer", kind="trainer", names=lambda: filter(WORKLOAD.has, TRAINER_NAMES()),
    help="With --model: whose speed is predicted. Default: that of Megatron-LM, else of the built-in one.",
)  # fmt: skip
@click.option("--sequence-length", type=click.IntRange(min=1), default=4096, show_default=True)
@click.option("--global-batch", type=COUNT, default="4M", show_default=True, help="Tokens per step, within 10 %.")
@click.option(
    "--from", "results", metavar="SOURCE", type=InputPath(), help="Use the speed and scaling of these measured results."
)
@json_option
def size(
    parameters: float | None,
    model: str | None,
    tokens: float,
    gpu: str,
    peak_tflops: float | None,
    mfu: float | None,
    days: float | None,
    gpus: int | None,
    trainer: str | None,
    sequence_length: int,
    global_batch: float,
    results: Path | None,
    as_json: bool,
) -> int:
    """Estimate how many GPUs a training run needs for how long, and where adding GPUs stops paying off.

    GPUs = 6 * parameters * tokens / (peak FLOP/s * MFU * seconds).

    With --model but without --mfu, the speed is that of the fastest predicted layout, as in `sweep plan`. With --from,
    the speed and Amdahl's curve are fitted to the best measured run at each number of GPUs.

    \b
    Examples:
      sweep size --params 3B --tokens 11T --mfu 0.30 --gpu h100 --peak-tflops 720 --days 28
      sweep size --model Llama-3-8B --tokens 1T --gpus 256
      sweep size --model 8B --tokens 1T --days 14 --from results.parquet
    """
    from sweep.physics import sizing

    _check(parameters, model, days, gpus)
    active = parameters if parameters is not None else _active(str(model))
    measured: dict[int, float] = {}
    scaling, simulated = None, False
    if results is not None:
        refuse(["gpu", "peak_tflops", "mfu"], "with --from")
        ((place, _),) = collected_results([results])
        measured, simulated = _best_by_gpus(place, results, model)
        scaling = _scaling(measured, results)
        gpus = gpus or _gpus_for(scaling, tokens, days, min(measured))
        rate = 6 * active * measured.get(gpus, scaling.tokens_per_second(gpus)) / gpus
        if not 1.0 <= rate * gpus < math.inf:
            raise SweepError(Mistake("no GPU has the speed of its runs", str(results), remedy="see its notes"))
        source = f"simulated in {results.name}: no model was trained" if simulated else f"measured in {results.name}"
        source += "" if gpus in measured else f", by the curve, since no run had {plural(gpus, 'GPU')}"
    elif model is not None and mfu is None and peak_tflops is None:
        fastest = functools.partial(_fastest, model, gpu, trainer, sequence_length)
        work = 6 * active * tokens / (float(days or 1) * 86400)
        by_batch = functools.partial(_gpus_by_model, fastest, gpus, work, _rate(gpu, None, None)[0])
        gpus, found = by_batch(int(global_batch))
        if found is None:
            raise SweepError(_limit(f"{model} on {gpus:,} {gpu}", by_batch, fastest, gpus, int(global_batch)))
        rate, source = found
    else:
        rate, source = _rate(gpu, peak_tflops, mfu)
    sized = sizing.size(active, tokens, flops_per_s_per_gpu=rate, days=None if gpus else days, gpus=gpus)
    document = _document(sized, source, scaling, measured, simulated)
    document |= {} if results is None else _with_failures(place, model, sized)
    click.echo(json.dumps(document) if as_json else "\n".join(_lines(document)))
    return 0


def _check(parameters: float | None, model: str | None, days: float | None, gpus: int | None) -> None:
    mistakes = []
    for one, other, what in ((parameters, model, "--params or --model"), (days, gpus, "--days or --gpus")):
        if one is None and other is None:
            mistakes.append(Mistake("is missing", path=what, remedy=f"give {what}"))
        if one is not None and other is not None:
            mistakes.append(Mistake("both are given", path=what, remedy="give one of them"))
    if mistakes:
        raise SweepError(mistakes)


def _active(model: str) -> float:
    from sweep.physics.catalogue import MODELS, catalogued
    from sweep.physics.shapes import active_parameters

    if (known := catalogued(model)) is None:
        raise SweepError(Mistake(f"unknown model {model!r}", path="--model", remedy=nearest(model, MODELS)))
    return float(active_parameters(MODELS[known]))


def _rate(gpu: str, peak_tflops: float | None, mfu: float | None) -> tuple[float, str]:
    from sweep.physics.hardware import GPUS

    share = 0.40 if mfu is None else mfu
    if peak_tflops is None:
        peak = GPUS[gpu].peak_flops("bf16") or GPUS[gpu].peak_flops("fp16")
        if peak is None:
            raise SweepError(Mistake(f"{gpu} has no known peak", path="--gpu", remedy="give --peak-tflops"))
        peak_tflops = peak / 1e12
    return peak_tflops * 1e12 * share, f"{peak_tflops:g} TFLOP/s at {100 * share:g}% MFU"


def _gpus_by_model(
    fastest: FastestOn, gpus: int | None, work: float, guess: float, batch: int
) -> tuple[int, tuple[float, str] | None]:
    """The GPUs, or those for ``work`` FLOP/s in rounds, since the speed depends on their number; and what is fastest.

    ``guess``: model FLOP/s per GPU. Where no layout meets the batch on a number of GPUs, that number and None.
    """
    if gpus is not None:
        return gpus, fastest(gpus, batch)
    tried, found = 0, (guess, "")
    for _ in range(9):
        needed = _whole_nodes(work / found[0])
        if needed == tried:
            break
        tried = needed
        if (better := fastest(tried, batch)) is None:
            return tried, None
        found = better
    return tried, found


def _whole_nodes(gpus: float) -> int:
    """The number of GPUs rounded up to what layouts divide: a power of two, nodes of 8, or from 512 on eight nodes."""
    whole = max(int(-(-gpus // 1)), 1)
    unit = 64 if whole > 512 else 8
    return -(-whole // unit) * unit if whole > 8 else 1 << (whole - 1).bit_length()


def _fastest(
    model: str, gpu: str, trainer: str | None, sequence_length: int, gpus: int, batch: int
) -> tuple[float, str] | None:
    """(model FLOP/s per GPU, text) of the layout that a plan predicts to be fastest; None if none fits."""
    from sweep.library.plan import fastest_layout
    from sweep.physics.catalogue import catalogued
    from sweep.physics.profiles import SIZED_TRAINER

    name, trainers = str(catalogued(model)), (trainer,) if trainer else (SIZED_TRAINER, "transformer")
    for trainer in trainers:  # Megatron-LM splits no 126 layers over 16 stages
        best = fastest_layout(name, gpu, gpus, trainer, sequence_length=sequence_length, global_batch=batch)
        if best is not None:
            break
    else:
        return None
    layout = " ".join(f"{name}={best[name]}" for name in LAYOUT if best[name] not in (0, 1, "none", "1f1b"))
    spread = f"{best['low']:,.0f} to {best['high']:,.0f} tokens/s/GPU with 90% probability"
    text = f"the step-time model for {trainer}, {layout or 'one GPU'} ({spread})"
    return 6 * _active(model) * best["tokens_per_second_per_gpu"], text


def _limit(what: str, by_batch: Callable[[int], tuple[int, Any]], fastest: FastestOn, gpus: int, batch: int) -> Mistake:
    """What no layout meets, and the least change that meets it."""
    if (more := next((2**n for n in range(1, 7) if by_batch(2**n * batch)[1] is not None), None)) is not None:
        low, high = more * batch // 2, more * batch
        while high - low > low // 100:
            middle = (low + high) // 2
            low, high = (low, middle) if by_batch(middle)[1] is not None else (middle, high)
        fact = f"the global batch limits {what}: no layout that fits has steps of about {batch:,} tokens"
        return Mistake(
            fact, path="--global-batch", remedy=f"--global-batch {math.ceil(high / 1e4) / 100}M, or fewer GPUs"
        )
    wider = (gpus << power for power in range(1, 11))
    if (enough := next((n for n in wider if fastest(n, batch * n // gpus) is not None), None)) is not None:
        fact = f"memory limits {what}: no layout is predicted to fit"
        return Mistake(fact, path="--gpus", remedy=f"--gpus {enough}, or a smaller --sequence-length")
    return Mistake(
        f"no layout of {what} is predicted to fit", remedy="another --gpu, a smaller --sequence-length, --mfu"
    )


def _scaling(best: dict[int, float], results: Path) -> Scaling:
    """Amdahl's curve through the best throughput at each number of GPUs."""
    from sweep.physics.sizing import fit_scaling

    try:
        return fit_scaling(list(best), list(best.values()))
    except ValueError as error:
        raise SweepError(Mistake(str(error), file=str(results), remedy="measure on more node counts")) from error


def _best_by_gpus(place: Path, results: Path, model: str | None) -> tuple[dict[int, float], bool]:
    """(GPUs -> best tokens per second, whether a run of these was simulated). ``results``: as the user named them."""
    import analysis

    rows = analysis.load(place, ["model", "gpus", "outcome", "tokens_per_second", "simulated"])
    good = rows[(rows["outcome"] == "ok") & (rows["gpus"] >= 1) & (rows["tokens_per_second"] > 0)]
    names = sorted(good["model"].unique())
    if model is not None and model not in names:
        fact = f"no measured run of {model}" if names else "no measured run with its GPUs and tokens per second"
        raise SweepError(Mistake(fact, str(results), remedy=nearest(model, names) if names else "measure some"))
    if model is None and len(names) > 1:
        raise SweepError(Mistake(f"holds several models: {', '.join(names)}", str(results), remedy="--model"))
    good = good[good["model"] == (model or names[0])] if names else good
    best = good.groupby("gpus")["tokens_per_second"].max()
    return {int(gpus): float(rate) for gpus, rate in sorted(best.items())}, bool(good["simulated"].fillna(False).any())


def _with_failures(place: Path, model: str | None, sized: Size) -> dict[str, Any]:
    """Days and cost of a job that fails and writes checkpoints, by the best of those that wrote one; nothing without.

    Of a run on other GPUs than those sized, the one on most; its checkpoint is taken to cost the same.
    """
    import analysis
    from analysis.derive.best import NEEDED, best_per_cell
    from analysis.derive.job import rate_text
    from analysis.metrics import JOB, job_of
    from sweep.physics.job import SECONDS_PER_DAY

    if analysis.load(place, ["checkpoint_stall_s"])["checkpoint_stall_s"].isna().all():
        return {}
    best = best_per_cell(analysis.load(place, NEEDED), JOB)
    good = best[((best["model"] == model) | (model is None)) & best["gpus"].le(sized.gpus)].sort_values("gpus").tail(1)
    if good.empty:
        return {}
    job = job_of(good.assign(gpus=sized.gpus))
    share = float(job.shares[0].item())
    days = sized.days / share
    spread = job.likely(share, share, share, wall_s=days * SECONDS_PER_DAY, seen=good["failures_seen"].item())
    low, high = (float(end.item()) for end in spread)
    price, hours = good["dollars_per_gpu_hour"].item(), sized.gpu_hours / share
    found = {"failures_per_gpu_day": float(job.failures_per_gpu_day.item()), "training_share": share, "days": days}
    found |= {"checkpoint_interval_s": float(job.interval_s.item()), "gpu_hours": hours}
    found |= {"days_low": sized.days / high, "days_high": sized.days / low}
    cost = None if price != price else float(price) * hours
    more = {"failures": rate_text(good.to_dict("records")[0]), "dollars": cost}
    return {"with_failures": found | more}


def _gpus_for(scaling: Scaling, tokens: float, days: float | None, fewest: int) -> int:
    """The smallest number of GPUs with enough measured throughput; of those with a run where more are no faster."""
    assert days is not None
    needed = tokens / (days * 86400)
    left = 1 / needed - scaling.serial_s
    if left <= 0:
        fastest = tokens * scaling.serial_s / 86400
        raise SweepError(Mistake(f"no number of GPUs is enough: the measured serial part takes {fastest:.1f} days"))
    return int(-(-scaling.parallel_s / left // 1)) if scaling.parallel_s > 0 else fewest


def _document(
    sized: Size, source: str, scaling: Scaling | None, measured: Mapping[int, float], simulated: bool
) -> dict[str, Any]:
    """``measured``: GPUs -> tokens per second of the best run."""
    from sweep.physics.sizing import Scaling

    document: dict[str, Any] = asdict(sized) | {"speed": source}
    if scaling is None:
        # Nothing is measured: over one GPU, by the share of the work that more GPUs do not make faster
        speed_ups = {
            share: Scaling(share, 1 - share).tokens_per_second(sized.gpus) for share in (1e-4, 1e-3, 0.01, 0.1)
        }
        return document | {"amdahl": [{"serial_share": s, "speed_up": up} for s, up in speed_ups.items()]}
    most = None if math.isinf(scaling.most_gpus) else scaling.most_gpus
    curve: list[dict[str, Any]] = [
        {"gpus": n, "tokens_per_second": scaling.tokens_per_second(n)}
        | {"run": n in measured, "best_run_tokens_per_second": measured.get(n)}
        for n in sorted({sized.gpus, *(2**i for i in range(max(sized.gpus, 8).bit_length() + 2)), *measured})
    ]
    document |= {"serial_share": scaling.serial_share, "most_gpus": most, "curve": curve}
    return document | {"simulated": simulated}


def _lines(sized: Mapping[str, Any]) -> list[str]:
    """The document as text."""
    lines = [
        f"{sized['total_flops']:.3g} FLOP in all; {sized['speed']}: {sized['flops_per_s_per_gpu'] / 1e12:.4g} TFLOP/s "
        f"per GPU",
        f"{plural(sized['gpus'], 'GPU')} for {sized['days']:.3g} days = {sized['gpu_hours']:,.0f} GPU-hours, "
        f"{sized['tokens_per_second_per_gpu']:,.0f} tokens/s/GPU",
    ]
    if "amdahl" in sized:
        lines.append(f"Amdahl, speed-up of {plural(sized['gpus'], 'GPU')} over one by the serial share of the work:")
        return [*lines, *(f"  {100 * row['serial_share']:>6g}%  {row['speed_up']:,.1f}" for row in sized["amdahl"])]
    runs = "simulated" if sized["simulated"] else "measured"
    lines.append(f"Amdahl through the {runs} runs: serial share {100 * sized['serial_share']:.3g}%")
    fewest = min(row["gpus"] for row in sized["curve"] if row["run"])
    most = math.inf if sized["most_gpus"] is None else max(sized["most_gpus"], fewest)
    lines.append(f"Beyond about {most:,.0f} GPUs a doubling gains less than half: adding GPUs stops paying off.")
    for row in sized["curve"]:
        n, curve, count = row["gpus"], row["tokens_per_second"], plural(row["gpus"], "GPU")
        speed = row["best_run_tokens_per_second"] if row["run"] else curve
        mark = f"  {runs}; the curve: {curve / n:,.0f}" if row["run"] else f"  by the curve: no run had {count}"
        lines.append(f"  {count:>12}  {speed:>14,.0f} tokens/s  {speed / n:>10,.0f} tokens/s/GPU{mark}")
    if failing := sized.get("with_failures"):
        cost = "" if failing["dollars"] is None else f", ${failing['dollars']:,.0f}"
        lines.append(
            f"With {failing['failures']} and a checkpoint each {failing['checkpoint_interval_s'] / 60:.3g} min: "
            f"{failing['days']:.3g} days ({failing['days_low']:.3g} to {failing['days_high']:.3g} with 90% "
            f"probability) = {failing['gpu_hours']:,.0f} GPU-hours{cost}"
        )
    return lines
