"""Accuracy floors on real data: a part that breaks in silence shows here.

Three permuted or class-incremental tasks of 8x8 digits. Each floor lies well below what three
seeds gave and well above what the method gives when its part does nothing (plain SGD: 0.60 on
average over the permuted tasks, 0.33 over the incremental ones).
"""

from olss.learn import recipe, run

COMMON = {"net": "mlp-100", "batch": 20, "epochs": 4}
PERMUTED = [
    ("joint", 0.90, {}),
    ("ewc", 0.70, {"ewc_strength": 10.0}),
]


def average(stream, name, **settings):
    return run(stream, recipe(name, **COMMON | settings), seed=0).average_accuracy[-1]
