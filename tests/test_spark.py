"""Sketches of Spark DataFrames, on a real Spark in this process; one law with `compress`."""

import os
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import olss
import olss.spark

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.skipif(not shutil.which("java"), reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore"),  # Spark's own
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
]


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2,3]")  # a task may fail twice
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def rows(n=6_000, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.exponential(size=n)
    return pd.DataFrame(
        {
            "size": size,
            "price": 3 * size + rng.standard_normal(n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "late": rng.random(n) < 0.1,
        }
    )


def split(frame, lengths):
    ends = np.cumsum(lengths)
    return [
        pa.Table.from_pandas(frame.iloc[end - n : end], preserve_index=False)
        for n, end in zip(lengths, ends, strict=True)
    ]


class PartitionsHere:
    """What `olss.spark` asks of a DataFrame, answered in this process: fast enough to repeat."""

    def __init__(self, tables, monkeypatch):
        self.tables, self.schema, self.rdd = tables, tables[0].schema, self
        self._patch = monkeypatch

    def getNumPartitions(self):
        return len(self.tables)

    def limit(self, n):
        return PartitionsHere([table.slice(0, n) for table in self.tables[:1]], self._patch)

    def toArrow(self):
        return pa.concat_tables(self.tables)

    def mapInArrow(self, function, schema):
        found = []
        for number, table in enumerate(self.tables):
            context = type("TaskContext", (), {"partitionId": lambda self, n=number: n})
            self._patch.setattr(pyspark.TaskContext, "get", context)
            found.append(pa.Table.from_batches(function(iter(table.to_batches()))))
        return PartitionsHere(found, self._patch)


def test_the_rows_are_those_that_the_same_partitions_give_in_one_process(spark, monkeypatch):
    frame = rows()
    df = spark.createDataFrame(frame).coalesce(3).cache()
    parts = df.rdd.glom().map(len).collect()
    assert sum(parts) == len(frame)
    there = olss.spark.sketch(df, 200, target="late", seed=7)
    assert len(there) == 200
    assert there.seen == 6_000
    assert there.X.columns.tolist() == ["size", "price", "colour"]
    order = df.toPandas()
    tables = split(order, parts)
    here = olss.spark.sketch(PartitionsHere(tables, monkeypatch), 200, target="late", seed=7)
    assert np.array_equal(there.index, here.index)
    assert np.allclose(there.weight, here.weight)
    # Rows stand at their positions, partition after partition.
    assert np.allclose(order["price"].to_numpy()[there.index], there.X["price"])


def test_a_sketch_continues_merges_and_is_saved(spark, tmp_path):
    frame = rows()
    found = olss.spark.sketch(spark.createDataFrame(frame), 200, target="late", seed=1)
    before = found.error().relative
    found.update(rows(2_000, seed=5), y="late")
    assert found.seen == 8_000
    found.merge(olss.Sketch(200, seed=3).update(frame, y="late"))
    found.save(tmp_path / "s.parquet")
    assert olss.Sketch.load(tmp_path / "s.parquet").seen == 14_000
    assert 0 < before < 1


def test_failing_tasks_are_retried_and_change_nothing(spark, tmp_path):
    frame = rows(3_000)
    df = spark.createDataFrame(frame).repartition(3)
    steady = df.mapInArrow(lambda batches: batches, df.schema)
    folder = str(tmp_path)

    def fail_once(batches):
        from pyspark import TaskContext

        mark = os.path.join(folder, str(TaskContext.get().partitionId()))
        batches = list(batches)
        if not os.path.exists(mark):
            open(mark, "w").close()
            raise OSError("this executor dies")
        yield from batches

    expected = olss.spark.sketch(steady, 100, seed=2)
    found = olss.spark.sketch(df.mapInArrow(fail_once, df.schema), 100, seed=2)
    assert len(os.listdir(folder)) == 3
    assert np.array_equal(found.index, expected.index)
    assert np.array_equal(found.weight, expected.weight)


KILL = """
import glob, os, signal, sys, time
import numpy as np
from pyspark import TaskContext
from pyspark.sql import SparkSession
import olss.spark

folder, killed = sys.argv[1], sys.argv[2]
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a partition for each file
}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
df = spark.read.parquet(folder)
assert df.rdd.getNumPartitions() == len(glob.glob(folder + "/*.parquet"))

def kill_once(batches):
    if TaskContext.get().partitionId() == 2 and not os.path.exists(killed):
        open(killed, "w").close()
        with open(f"/proc/{os.getppid()}/stat") as file:  # the executor started our parent
            executor = int(file.read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        time.sleep(1)
    yield from batches

steady = df.mapInArrow(lambda batches: batches, df.schema)
a, b = (
    olss.spark.sketch(rows, 100, target="late", seed=1)
    for rows in (steady, df.mapInArrow(kill_once, df.schema))
)
assert os.path.exists(killed)
assert np.array_equal(a.index, b.index) and np.array_equal(a.weight, b.weight)
assert a.X.equals(b.X)
print("the same rows")
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="finds the executor in /proc")
def test_an_executor_that_is_killed_changes_nothing(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(4):
        rows(3_000, seed=part).to_parquet(folder / f"{part}.parquet")
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": os.path.dirname(pyspark.__file__),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, "-c", KILL, str(folder), str(tmp_path / "killed")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=800)
    assert "the same rows" in done.stdout, done.stderr[-3000:]


def test_more_partitions_than_a_group_are_merged_in_groups(spark):
    df = spark.createDataFrame(rows(3_000)).repartition(olss.spark.GROUP + 3)
    found = olss.spark.sketch(df, 100, policy="reservoir", seed=0)
    assert np.allclose(found.weight, 30)
    assert len(np.unique(found.index)) == 100


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("repeats", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_rows_are_sampled_by_the_law_of_compress(policy, repeats, monkeypatch, tmp_path):
    frame = rows(400)
    size, parts = 60, [100, 50, 150, 100]
    path = tmp_path / "all.parquet"
    frame.to_parquet(path)
    kept = np.zeros((2, len(frame)))
    errors = np.zeros((2, repeats))
    for seed in range(repeats):
        df = PartitionsHere(split(frame, parts), monkeypatch)
        found = [olss.spark.sketch(df, size, policy=policy, seed=seed, moments=True)]
        into = tmp_path / "small.parquet"
        olss.compress(
            path, into=into, size=size, policy=policy, seed=seed, moments=True, fresh=True
        )
        found.append(olss.Sketch.load(into))
        for which, sketch in enumerate(found):
            kept[which, sketch.index] += 1
            errors[which, seed] = sketch.error().relative
    p = (kept.sum(axis=0) + 1) / (2 * repeats + 2)  # not 0, where a row was never kept
    se = np.sqrt(2 * p * (1 - p) / repeats)
    off = abs(kept[0] - kept[1]) / repeats
    # Largest of 400 rows: 4.5 standard errors happen once in 370 runs of this test.
    assert (off <= 4.5 * se + 1e-9).all()
    gap = errors.mean(axis=1)
    assert abs(gap[0] - gap[1]) < 4 * np.sqrt(errors.var(axis=1).sum() / repeats)


def test_what_cannot_be_done_is_said(spark):
    df = spark.createDataFrame(rows(100))
    wrong = partial(pytest.raises, olss.InputError)
    with wrong(match="df must be a DataFrame of PySpark"):
        olss.spark.sketch(rows(100), 10)
    with wrong(match="policy"):
        olss.spark.sketch(df, 10, policy="recent")
    with wrong(match="half_life"):
        olss.spark.sketch(df, 10, half_life=100)
    with wrong(match="target"):
        olss.spark.sketch(df, 10, target="absent")
    with wrong(match="size"):
        olss.spark.sketch(df, 0)
    with pytest.raises(olss.DataError, match="no rows"):
        olss.spark.sketch(df.limit(0), 10)


def test_errors_of_executors_are_our_own_in_one_line(spark):
    frame = rows(300)
    frame.loc[200, "price"] = np.nan
    df = spark.createDataFrame(frame).coalesce(1)
    with pytest.raises(olss.DataError, match=r"partition 0.*'price'.*missing") as error:
        olss.spark.sketch(df, 10, target="price", policy="reservoir")
    assert "\n" not in str(error.value)
