"""Everything that only a GPU can show, by one command: python -m benchmarks.gpu_acceptance

Parts run one after another in the order of their value, each in a process of its own with a time limit; a part that is
done is not repeated. Results: results.json and results.md in the output directory. `--rehearse` does the same with tiny
models on a CPU.
"""
