"""MNIST, CIFAR and SVHN in all the forms they come in, whole and broken."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest
import torch
from scipy.io import savemat

import pocketbayes as pb
from pocketbayes.data import open_dataset

RNG = np.random.default_rng(0)
DIGITS = RNG.integers(256, size=(12, 28, 28), dtype=np.uint8)
PHOTOS = RNG.integers(256, size=(10, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], np.uint8)


def idx(magic, array):
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder, prefix="train", style="-idx{}-ubyte", images=DIGITS, labels=LABELS):
    write(folder / (f"{prefix}-images" + style.format(3)), idx(2051, images))
    write(folder / (f"{prefix}-labels" + style.format(1)), idx(2049, labels))


@pytest.mark.parametrize("style", ["-idx{}-ubyte", ".idx{}-ubyte", "-idx{}-ubyte.gz"])
@pytest.mark.parametrize("folder", ["", "mnist", "MNIST/raw"])
def test_mnist_in_every_style(tmp_path, style, folder):
    write_mnist(tmp_path / folder, "t10k", style)
    data = open_dataset("mnist", "test", tmp_path)
    assert torch.equal(data.images, torch.from_numpy(DIGITS).unsqueeze(1))
    assert data.labels.tolist() == LABELS.tolist()
    assert len(data.classes) == 10
    assert data.augmentation == ()


def test_mnist_and_fashion_mnist_are_not_confused(tmp_path):
    fashion = np.array([9, 0, 0, 3, 0, 2, 7, 2, 5, 5], np.uint8)
    write_mnist(tmp_path, images=DIGITS[:10], labels=fashion)
    with pytest.raises(pb.DataError, match="belongs to fashion-mnist"):
        open_dataset("mnist", "train", tmp_path)
    data = open_dataset("fashion-mnist", "train", tmp_path)
    assert [data.classes[label] for label in data.labels[:2]] == ["ankle boot", "T-shirt"]
    write_mnist(tmp_path / "mnist")
    assert len(open_dataset("mnist", "train", tmp_path)) == 12


IMAGES, NUMBERS = idx(2051, DIGITS), idx(2049, LABELS)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES[:-1], NUMBERS, "images.*only 9407"),
        (IMAGES + b"x", NUMBERS, "images.*more"),
        (IMAGES[:9], NUMBERS, "images.*ends within its head"),
        (b"", NUMBERS, "images.*ends within its head"),
        (NUMBERS, NUMBERS, "images.*ends within|images.*2049"),
        (struct.pack(">4I", 2051, 2**32 - 1, 28, 28), NUMBERS, "claims 4294967295"),
        (struct.pack(">4I", 2051, 1, 2**31, 2**31), NUMBERS, "2147483648"),
        (IMAGES, IMAGES, "labels.*2051"),
        (IMAGES, idx(2049, LABELS[:5]), "labels.*5 labels for 12 images"),
        (IMAGES, NUMBERS[:-2], "labels.*only 10"),
        (IMAGES, idx(2049, LABELS + 3), "labels.*4 to 12"),
        (idx(2051, DIGITS[:0]), idx(2049, LABELS[:0]), "holds no image"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_broken_idx_files_are_named(tmp_path, images, labels, message, ending):
    write(tmp_path / f"train-images-idx3-ubyte{ending}", images)
    write(tmp_path / f"train-labels-idx1-ubyte{ending}", labels)
    with pytest.raises(pb.DataError, match=message):
        open_dataset("mnist", "train", tmp_path)


def test_a_damaged_gz_is_named(tmp_path):
    write_mnist(tmp_path, style="-idx{}-ubyte.gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(pb.DataError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        open_dataset("mnist", "train", tmp_path)
    path.write_bytes(b"no gzip at all")
    with pytest.raises(pb.DataError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        open_dataset("mnist", "train", tmp_path)


def python_batch(photos, labels, key="labels", keys=str.encode):
    """A batch as CIFAR has it: rows of 3072 bytes, channel by channel."""
    rows = photos.transpose(0, 3, 1, 2).reshape(len(photos), -1)
    return {keys("data"): rows, keys(key): [int(label) for label in labels]}


def dump(path, content, protocol=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-py"])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("keys", [str, str.encode])
def test_cifar10_batches(tmp_path, folder, protocol, keys):
    for number in range(5):
        part = slice(2 * number, 2 * number + 2)
        batch = python_batch(PHOTOS[part], LABELS[part], keys=keys)
        dump(tmp_path / folder / f"data_batch_{number + 1}", batch, protocol)
    data = open_dataset("cifar10", "train", tmp_path)
    assert torch.equal(data.images, torch.from_numpy(PHOTOS).permute(0, 3, 1, 2))
    assert data.labels.tolist() == LABELS[:10].tolist()
    assert data.classes[data.labels[0]] == "cat"
    assert data.augmentation == ("crop", "mirror")
    assert data.batch([0])[0].shape == (1, 3, 32, 32)


# What Python 2 wrote: byte strings without a codec, and numpy under its old name.
PYTHON_2 = (
    b"\x80\x02}q\x00(U\x04dataq\x01cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03"
    b"K\x00\x85U\x01b\x87Rq\x04(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87R"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
    + bytes(range(256)) * 12
    + b"tbU\x06labelsq\x06]q\x07K\x07au."
)


def test_a_batch_as_python_2_wrote_it(tmp_path):
    (tmp_path / "test_batch").write_bytes(PYTHON_2)
    data = open_dataset("cifar10", "test", tmp_path)
    assert data.images.flatten().tolist() == list(range(256)) * 12
    assert data.labels.tolist() == [7]


def test_cifar100_has_a_hundred_classes_and_fine_labels(tmp_path):
    batch = python_batch(PHOTOS, range(90, 100), "fine_labels")
    dump(tmp_path / "cifar-100-python" / "test", batch | {b"coarse_labels": [0] * 10})
    data = open_dataset("cifar100", "test", tmp_path)
    assert len(set(data.classes)) == 100
    assert list(data.classes) == sorted(data.classes)
    assert [data.classes[label] for label in data.labels[[0, -1]]] == ["train", "worm"]
    (tmp_path / "test_batch").write_bytes((tmp_path / "cifar-100-python" / "test").read_bytes())
    with pytest.raises(pb.DataError, match="not the labels of this data set"):
        open_dataset("cifar10", "test", tmp_path)


class Command:
    def __reduce__(self):
        return os.system, ("touch stolen",)


class Deep:
    def __reduce__(self):
        return getattr, (np.ndarray, "tofile")


@pytest.mark.parametrize("evil", [Command(), {"data": Command()}, Deep(), {b"labels": print}])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_asks_for_code_runs_nothing(tmp_path, monkeypatch, evil, protocol):
    monkeypatch.chdir(tmp_path)
    dump(tmp_path / "test_batch", evil, protocol)
    with pytest.raises(pb.DataError, match=r"test_batch cannot be read.*code and not data"):
        open_dataset("cifar10", "test", tmp_path)
    assert not (tmp_path / "stolen").exists()


ALTERED_CODEC = b"c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb."
OTHER_CODEC = b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."
BIG_ARRAY = b"cnumpy\nndarray\n(J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86tR."


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        PYTHON_2[:-700],
        pickle.dumps([1, 2]),
        pickle.dumps({"data": 5, "labels": [1]}),
        pickle.dumps({}),
        pickle.dumps(python_batch(PHOTOS, LABELS[:9])),
        pickle.dumps(python_batch(PHOTOS, [10] * 10)),
        pickle.dumps(python_batch(PHOTOS, [-1] * 10)),
        pickle.dumps(python_batch(PHOTOS[:, :31], LABELS[:10])),
        pickle.dumps(python_batch(PHOTOS.astype(np.float32), LABELS[:10])),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [[1]]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]}),
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [2**70]}),
        pickle.dumps({"data": np.array([None]), "labels": [1]}),
        ALTERED_CODEC,
        OTHER_CODEC,
        BIG_ARRAY,
    ],
)
def test_broken_batches_are_named(tmp_path, data):
    (tmp_path / "test_batch").write_bytes(data)
    with pytest.raises(pb.DataError, match="test_batch"):
        open_dataset("cifar10", "test", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_npz_files(tmp_path, name, split):
    np.savez(tmp_path / f"{name}_{split}.npz", x=PHOTOS, y=LABELS[:10])
    data = open_dataset(name, split, tmp_path)
    assert torch.equal(data.images, torch.from_numpy(PHOTOS).permute(0, 3, 1, 2))
    assert data.images.is_contiguous()
    assert data.labels.dtype == torch.int64
    assert data.labels.tolist() == LABELS[:10].tolist()


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": PHOTOS},
        {"x": PHOTOS.astype(np.float32), "y": LABELS[:10]},
        {"x": PHOTOS.transpose(0, 3, 1, 2), "y": LABELS[:10]},
        {"x": PHOTOS, "y": LABELS},
        {"x": PHOTOS, "y": LABELS[:10] + 5},
        {"x": PHOTOS, "y": LABELS[:10].astype(float)},
        {"x": PHOTOS, "y": np.array([Command()] * 10)},
    ],
)
def test_broken_npz_files_are_named(tmp_path, arrays):
    path = tmp_path / "cifar10_train.npz"
    np.savez(path, **arrays)
    with pytest.raises(pb.DataError, match=r"cifar10_train\.npz"):
        open_dataset("cifar10", "train", tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(pb.DataError, match=r"cifar10_train\.npz cannot be read"):
        open_dataset("cifar10", "train", tmp_path)


def test_svhn_writes_zero_as_ten(tmp_path):
    labels = np.array([[10, 1, 2, 3, 9, 10, 4, 5, 6, 7]], np.uint8).T
    savemat(tmp_path / "test_32x32.mat", {"X": PHOTOS.transpose(1, 2, 3, 0), "y": labels})
    data = open_dataset("svhn", "test", tmp_path)
    assert torch.equal(data.images, torch.from_numpy(PHOTOS).permute(0, 3, 1, 2))
    assert data.labels.tolist() == [0, 1, 2, 3, 9, 0, 4, 5, 6, 7]
    assert data.augmentation == ("crop",)


def test_broken_mat_files_are_named(tmp_path):
    path = tmp_path / "test_32x32.mat"
    good = {"X": PHOTOS.transpose(1, 2, 3, 0), "y": LABELS[:10, None]}
    for bad in ({"X": PHOTOS}, {"X": PHOTOS[:5].T, "y": good["y"]}, good | {"y": LABELS[:3]}):
        savemat(path, bad)
        with pytest.raises(pb.DataError, match=r"test_32x32\.mat"):
            open_dataset("svhn", "test", tmp_path)
    savemat(path, good)
    for data in (path.read_bytes()[:3000], b"", b"junk" * 100):
        path.write_bytes(data)
        with pytest.raises(pb.DataError, match=r"test_32x32\.mat cannot be read"):
            open_dataset("svhn", "test", tmp_path)


@pytest.mark.parametrize(
    ("name", "files", "home"),
    [
        ("mnist", ["mnist/t10k-images-idx3-ubyte.gz", "t10k-images.idx3-ubyte"], "mnist"),
        ("fashion-mnist", ["FashionMNIST/raw/t10k-images-idx3-ubyte"], "zalandoresearch"),
        ("cifar10", ["cifar-10-batches-py/test_batch", "cifar10_test.npz"], "kriz/cifar"),
        ("cifar100", ["cifar-100-python/test", "cifar100_test.npz"], "kriz/cifar"),
        ("svhn", ["test_32x32.mat", "svhn/svhn_test.npz"], "housenumbers"),
    ],
)
def test_missing_files_are_listed_with_their_source(tmp_path, name, files, home):
    with pytest.raises(pb.DataError, match=home) as caught:
        open_dataset(name, "test", tmp_path)
    for file in files:
        assert str(tmp_path / file) in str(caught.value)


def test_a_missing_part_is_marked(tmp_path):
    for number in (1, 2, 3, 5):
        (tmp_path / f"data_batch_{number}").touch()
    with pytest.raises(pb.DataError, match=r"data_batch_4 \(missing\)") as caught:
        open_dataset("cifar10", "train", tmp_path)
    assert "data_batch_5 (missing)" not in str(caught.value)
