"""Make the tables and figures of the documentation from finished runs.

    python -m experiments.evidence runs   # after `olss run`: gather, then draw
    python -m experiments.evidence        # draw again from what is in experiments/results

Gathering copies the records of the paper's experiments into ``experiments/results/paper`` and
writes one line for each other run into ``experiments/results/NAME/runs.csv``; runs gathered before
stay. Drawing makes figures beside it and in ``docs/images``, and writes each table into every page
that has a place for it: between ``<!-- table NAME -->`` and ``<!-- end -->``.
"""
