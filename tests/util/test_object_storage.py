"""Sketches in object storage: a local S3 server of this test's own (moto)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from olss import Sketch, compress
from olss.errors import InputError, OlssError
from olss.files import forget

pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint():
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint, monkeypatch, request):
    """The address of an empty bucket."""
    import fsspec

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"bucket-{abs(hash(request.node.name)) % 10**9}"
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def days(tmp_path):
    for day in range(3):
        np.save(tmp_path / f"{day}.npy", np.random.default_rng(day).standard_normal((500, 3)))
    return [tmp_path / f"{day}.npy" for day in range(3)]


def test_a_file_in_a_bucket_is_created_and_continued_like_a_local_one(bucket, days, tmp_path):
    address, local = f"{bucket}/folder/small.parquet", tmp_path / "small.parquet"
    for into in (address, local):
        summary = compress(days[0], into=into, size=50, seed=0)
        assert str(summary).startswith(str(into))
        assert compress(days, into=into).new == 1_000
        assert compress(days, into=into).new == 0
    a, b = Sketch.load(address), Sketch.load(local)
    assert a.seen == b.seen == 1_500
    np.testing.assert_array_equal(a.index, b.index)
    np.testing.assert_array_equal(a.weight, b.weight)


def test_a_sketch_is_saved_and_loaded(bucket):
    X = np.random.default_rng(0).standard_normal((500, 3))
    sketch = Sketch(50, seed=0).update(X)
    sketch.save(f"{bucket}/sketch.parquet")
    loaded = Sketch.load(f"{bucket}/sketch.parquet")
    sketch.update(X + 1)
    loaded.update(X + 1)
    np.testing.assert_array_equal(sketch.index, loaded.index)
    np.testing.assert_array_equal(sketch.weight, loaded.weight)


def test_of_two_sketches_saved_to_one_object_none_is_lost(bucket):
    address, X = f"{bucket}/sketch.parquet", np.random.default_rng(0).standard_normal((500, 3))
    Sketch(50, seed=0).update(X).save(address)
    a, b = Sketch.load(address), Sketch.load(address)
    a.update(X).save(address)
    a.update(X).save(address)  # its own version may be replaced
    with pytest.raises(OlssError, match=r"s3://.*was written by someone else"):
        b.update(X).save(address)
    assert Sketch.load(address).seen == 1_500
    b.save(f"{bucket}/other.parquet")
    Sketch(50, seed=0).update(X).save(address)  # a new sketch replaces what is there
    assert Sketch.load(address).seen == 500


@pytest.mark.parametrize("exists", [True, False])
def test_of_two_writers_the_second_writes_nothing(bucket, days, exists):
    address = f"{bucket}/small.parquet"
    if exists:
        compress(days[0], into=address, size=50, seed=0)
    interfered = []

    def interfere(what, done, total):
        if not interfered:
            interfered.append(True)
            options = {} if exists else {"size": 50, "seed": 0}
            compress(days[2], into=address, **options)

    with pytest.raises(OlssError, match=r"s3://.*was written by someone else"):
        compress(days[1], into=address, size=50, progress=interfere)
    assert interfered
    assert Sketch.load(address).seen == (1_000 if exists else 500)
    assert compress(days[1], into=address).new == 500  # the same command again


def test_what_fails_leaves_the_object_as_it_was(bucket, days, tmp_path):
    address = f"{bucket}/small.parquet"
    compress(days[0], into=address, size=50, seed=0)
    np.save(tmp_path / "wide.npy", np.ones((5, 7)))
    with pytest.raises(OlssError, match=r"wide\.npy"):
        compress(tmp_path / "wide.npy", into=address)
    with pytest.raises(InputError, match=r"size was|policy.*s3://.*small\.parquet"):
        compress(days[1], into=address, policy="reservoir")
    assert Sketch.load(address).seen == 500


def test_what_cannot_be_written_or_read_is_told(bucket, days):
    with pytest.raises(OlssError, match=r"s3://no-such-bucket/a\.parquet.*bucket"):
        compress(days[0], into="s3://no-such-bucket/a.parquet", size=5)
    with pytest.raises(InputError, match="only s3:// and s3a:// can be written"):
        compress(days[0], into="gs://bucket/a.parquet", size=5)
    with pytest.raises(InputError, match=r"must end in \.parquet"):
        compress(days[0], into=f"{bucket}/a.csv", size=5)
    with pytest.raises(FileNotFoundError, match=r"s3://.*none\.parquet"):
        Sketch.load(f"{bucket}/none.parquet")


@pytest.fixture
def reader(endpoint, bucket, monkeypatch):
    """Work as a user who may read the bucket and not write to it."""
    import boto3
    import fsspec
    import requests

    iam = boto3.client("iam", endpoint_url=endpoint)
    iam.create_user(UserName="ada")
    rule = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
    iam.put_user_policy(UserName="ada", PolicyName="read", PolicyDocument=policy)
    key = iam.create_access_key(UserName="ada")["AccessKey"]

    def become_reader():
        requests.post(f"{endpoint}/moto-api/reset-auth", data="0")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        fsspec.filesystem("s3").clear_instance_cache()

    yield become_reader
    requests.post(f"{endpoint}/moto-api/reset-auth", data="inf")
    fsspec.filesystem("s3").clear_instance_cache()


def test_a_bucket_without_permission_is_told(bucket, reader, days, monkeypatch):
    import fsspec

    address = f"{bucket}/small.parquet"
    compress(days[0], into=address, size=50, seed=0)
    reader()
    assert Sketch.load(address).seen == 500
    for write in (
        lambda: compress(days[1], into=address),
        lambda: compress(days[1], into=f"{bucket}/new.parquet", size=5),
        lambda: Sketch.load(address).save(address),
    ):
        with pytest.raises(OlssError, match=r"s3://.*\.parquet.*Access ?Denied"):
            write()
    assert Sketch.load(address).seen == 500
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(OlssError, match=r"s3://.*small\.parquet.*the store refused") as error:
        compress(days[1], into=address)
    assert "wrong" not in str(error.value)


def test_the_commands_take_addresses(bucket, days):
    from typer.testing import CliRunner

    from olss.cli import app

    address = f"{bucket}/small.parquet"
    compress(days[0], into=address, size=50, seed=0)
    run = CliRunner().invoke
    shown = run(app, ["inspect", address])
    assert shown.exit_code == 0
    assert address in shown.output
    assert run(app, ["estimate", address]).exit_code == 0
    compress(days, into=address)
    held, task = len(Sketch.load(address)), str(days[0])
    gone = forget(address, {"task": task})
    assert gone.path == address
    assert 0 < gone.removed < held
    assert len(Sketch.load(address)) == held - gone.removed
