"""`python play.py ARGUMENTS`: what a trainer printed, where its interpreter would be started. No part of sweep.

`*.txt` beside it: lines of Megatron-LM (d98e8a6), Megatron-Bridge (067f987) and torchtitan 0.3.0, by the formats of
their sources and as public logs have them (Megatron-LM issue 756, torchtitan pull requests 2389 and 3393). What states
the run is that of the run which was started; its speed is PLAYED_RATE tokens/s per GPU, with PLAYED_FLOPS per token.
"""

import ast
import os
import re
import sys
import time
from pathlib import Path

FACTORS = {
    "float8|fp8": 1.2,
    "mxfp8": 1.05,
    "deepep": 1.08,
    "hybridep": 1.15,
    "alanc(ed|ing)\\W+[Tt]rue": 1.06,
    "overlap": 1.05,
}
"""by which what is found in a configuration changes its speed"""
UNSET = ("None", "null", "none", "false", "False", "[]", "")


class Fields(dict):
    def __missing__(self, name):
        return "None"


def of_megatron(words):
    """Flags, by the names of its table of arguments."""
    found, name = {}, ""
    for word in words[1:]:
        if word.startswith("--"):
            name = word[2:].replace("-", "_").removesuffix("_format").replace("graph_scope", "graph_modules")
            found[name] = "True"
        else:
            found[name] = word if found[name] == "True" else f"{found[name]}, {word}"
    return found


def of_bridge(words):
    """Overrides of the model, and what `mixed_precision` and `comm_overlap` set in it; batch and length."""
    pairs = dict(word.removeprefix("++").split("=", 1) for word in words if "=" in word)
    found = {name.split(".")[-1]: text for name, text in pairs.items() if name.split(".")[0] in ("model", "train")}
    if "mxfp8" in pairs["mixed_precision"]:
        found |= {"fp8": "'e4m3'", "fp8_recipe": "'mxfp8'", "fp8_param": "fp8_param:true" in pairs["mixed_precision"]}
    found["tp_comm_overlap"] = "tp_comm_overlap:true" in pairs["comm_overlap"]
    found["overlap_moe_expert_parallel_comm"] = "parallel_comm:true" in pairs["comm_overlap"]
    return {name: str(text).replace("true", "True") for name, text in found.items()} | {
        "seq_length": pairs["dataset.seq_length"]
    }


def of_torchtitan(_):
    """The values of the module that was written."""
    text = (Path(os.environ["PYTHONPATH"].split(":")[0]) / "sweep_torchtitan.py").read_text()
    values = text.partition("SimpleNamespace(\n")[2].partition("\n)\n")[0]
    found = {word.arg: ast.literal_eval(word.value) for word in ast.parse(f"dict({values})").body[0].value.keywords}
    mesh = [found[name] for name in ("replicate", "shard")]
    accumulated = found["global_batch"] // (found["local_batch"] * mesh[0] * mesh[1])
    kinds = {"standard": "AllToAll", "deepep": "DeepEP", "hybridep": "HybridEP"}
    found["experts"] = kinds[found["dispatcher"]] if found["num_experts"] else None
    return found | {"seq_length": found["sequence"], "global_batch_size": found["global_batch"], "gas": accumulated}


KINDS = {"pretrain_gpt.py": ("megatron", of_megatron), "run_recipe.py": ("nemo", of_bridge)}


def main():
    words, rank, world = sys.argv[1:], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if words[0] == "-c":
        sys.exit("ModuleNotFoundError: no versions were recorded")
    name, read = KINDS.get(Path(words[0]).name, ("torchtitan", of_torchtitan))
    field = Fields(read(words))
    rate = float(os.environ["PLAYED_RATE"])
    for found, factor in FACTORS.items():
        rate *= factor if re.search(found, str(field)) else 1.0
    rate *= 1 + sum(map(ord, str(field))) % 61 / 1000
    ranks = int(field.get("tensor_model_parallel_size", 1)) * int(field.get("pipeline_model_parallel_size", 1))
    tflops = rate * float(os.environ["PLAYED_FLOPS"]) / 1e12
    field |= {"world": world, "rank": rank, "dp": world // ranks, "tps": round(rate), "tflops": tflops}
    field |= {
        "mib": 61480 + rank % 8 * 100,
        "gb": 181.5 + rank % 8 / 10,
        "gib": 50 + rank % 8 / 4,
        "mfu": tflops / 9.89,
    }
    play(name, field, int(field["global_batch_size"]) * int(field["seq_length"]) / world / rate)


def play(name, field, length_s):
    """At the recorded run's pace."""
    rank, every = field["rank"], name == "torchtitan"
    text = (Path(__file__).parent / f"{name}.txt").read_text()
    start, step, memory = (part.splitlines() for part in text.split("@@\n"))
    tell(start if every or rank == 0 else (), field)
    for at in range(1, int(field["steps" if every else "train_iters"]) + 1):
        time.sleep(length_s)
        field |= {"at": at, "ms": length_s * 1e3, "samples": at * int(field["global_batch_size"])}
        tell(step if every or rank == field["world"] - 1 else (), field)
        tell(memory if at <= 2 and rank * field["dp"] < field["world"] else (), field)
    time.sleep(0 if every or rank == field["world"] - 1 else 60)  # a trainer's ranks wait for each other


def tell(lines, field):
    """Print them, but for those whose condition (`?name?` or `?name=value?`) the run does not meet."""
    for line in lines:
        name, wanted, shown = re.match(r"(?:\?(\w+)(?:=(\w+))?\? )?(.*)", line).groups()
        if name is None or (str(field[name]) == wanted if wanted else str(field[name]) not in UNSET):
            print(shown.format_map(Fields(field | {"now": time.strftime("%Y-%m-%d %H:%M:%S")})), flush=True)


main()
