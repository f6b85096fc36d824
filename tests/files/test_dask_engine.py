"""On a cluster the rows are those of one machine, also when a worker dies."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

import olss.files.chunks
from olss.errors import InputError
from olss.files import compress, inspect
from olss.sketch import Sketch

distributed = pytest.importorskip("distributed")

# Dask leaves a socket or a loop to the garbage collector now and then.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    rng = np.random.default_rng(0)
    for k in range(7):
        A = rng.standard_t(4, (20_000, 6)) + k
        table = pa.table({name: A[:, i] for i, name in enumerate("abcdef")})
        pq.write_table(table, folder / f"part{k}.parquet", row_group_size=5000)
    return folder


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as local:
            yield local


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(olss.files.chunks, "LARGE_BYTES", 300_000)


def rows(path):
    return pd.read_parquet(path).sort_values(["olss_source", "olss_row"]).reset_index(drop=True)


@pytest.mark.parametrize("policy", ["weighted", "paper", "reservoir"])
def test_a_cluster_draws_the_rows_of_one_machine(data, cluster, tmp_path, policy):
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    for into, scheduler in ((here, None), (there, cluster.scheduler_address)):
        for files in ("part[012].parquet", "part*.parquet"):
            compress(
                f"{data}/{files}",
                into=into,
                size=500,
                policy=policy,
                seed=3,
                scheduler=scheduler,
            )
    pd.testing.assert_frame_equal(rows(here), rows(there), rtol=1e-9)
    assert inspect(there).description.seen == 140_000


def test_models_of_a_cluster_run_equal_scikit_learn_on_all_rows(data, cluster, tmp_path):
    """Two runs on a cluster, the second with the files of the first ignored."""
    out = tmp_path / "out.parquet"
    for files in ("part[012].parquet", "part*.parquet"):
        compress(
            f"{data}/{files}",
            into=out,
            size=100,
            target="f",
            scheduler=cluster.scheduler_address,
        )
    frame = pd.concat(pd.read_parquet(path) for path in sorted(data.glob("*.parquet")))
    X, y, sketch = frame[list("abcde")].to_numpy(), frame["f"].to_numpy(), Sketch.load(out)
    full, model = LinearRegression().fit(X, y), sketch.linear_model(kind="least-squares")
    np.testing.assert_allclose(model.coef[:, 0], full.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.intercept[0], full.intercept_, rtol=1e-8)
    assert model.r2 == pytest.approx(full.score(X, y), rel=1e-8)
    components = sketch.moments.pca(2)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(components.variance, pca.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(abs(components.components), abs(pca.components_), rtol=1e-6)


def test_a_worker_that_dies_changes_nothing(data, cluster, tmp_path):
    options = {"size": 500, "seed": 3}
    compress(data, into=tmp_path / "here.parquet", **options)
    victims = []

    def kill(what, done, total):
        if not victims and done > total // 4:
            worker = next(iter(cluster.workers.values()))
            victims.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    compress(
        data,
        into=tmp_path / "there.parquet",
        scheduler=cluster.scheduler_address,
        progress=kill,
        **options,
    )
    assert victims
    pd.testing.assert_frame_equal(
        rows(tmp_path / "here.parquet"), rows(tmp_path / "there.parquet"), rtol=1e-9
    )


def test_bad_data_on_a_worker_are_named_here(cluster, tmp_path):
    table = pa.table({"a": [1.0, 2.0, np.inf], "b": [1.0, 3.0, 2.0]})
    pq.write_table(table, tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="'a' holds an infinite value"):
        compress(
            tmp_path / "bad.parquet",
            into=tmp_path / "o.parquet",
            size=2,
            scheduler=cluster.scheduler_address,
        )


def test_no_scheduler_there_is_said(data, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no Dask scheduler at"):
        compress(data, into=tmp_path / "o.parquet", size=5, scheduler="tcp://127.0.0.1:1")
    assert threading.active_count() >= 1
