"""Benchmarks: ratios against peers, measured in one run with the two sides alternating.

`python -m benchmarks` runs all of them, `python -m benchmarks.sequential` one. Options: `--quick`
for small sizes, `--json FILE` for rows, `--report FILE` for the printed text, `--only P1,P5`,
`--ours-only` to leave the peers out, `--dir FOLDER` for the folder whose disk the stores use.
"""
