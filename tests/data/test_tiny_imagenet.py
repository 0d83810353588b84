"""Tiny-ImageNet in the folders of its archive."""

import os
import shutil

import pytest
import torch
from tiny_imagenet_files import tiny_imagenet_in

import pocketbayes as pb
from pocketbayes.data import open_dataset
from pocketbayes.data.pixels import measured

needs_data = pytest.mark.skipif(
    not os.environ.get("POCKETBAYES_DATA"), reason="POCKETBAYES_DATA names no folder of data"
)


@pytest.fixture
def folder(tmp_path):
    return tiny_imagenet_in(tmp_path / "tiny-imagenet-200")


def opened(split, root):
    return open_dataset("tiny-imagenet", split, root)


def brightness(data):
    return ((data.images.float().mean((1, 2, 3)) - 29.5) / 50).round().int().tolist()


def test_both_splits_have_the_same_classes_in_the_order_of_their_numbers(folder):
    train, test = (opened(split, folder.parent) for split in ("train", "test"))
    assert train.classes == test.classes == ("brown bear", "goldfish", "sea lion", "plane")
    assert train.labels.tolist() == brightness(train) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert test.labels.tolist() == brightness(test) == [0, 1, 2, 3] * 2
    assert train.images.shape == (12, 3, 64, 64)
    assert test.preprocess == train.preprocess
    assert train.augmentation == ("crop", "mirror")


def test_the_folder_itself_is_a_root_and_grey_pictures_have_three_equal_channels(folder):
    train = opened("train", folder)
    is_grey = [all(torch.equal(channel, red) for channel in rest) for red, *rest in train.images]
    assert is_grey == [True, False, False] * 4


def test_pictures_to_train_on_may_lie_in_the_folder_of_their_class(folder):
    wanted = opened("train", folder)
    for place in (folder / "train").iterdir():
        for picture in (place / "images").iterdir():
            shutil.move(picture, place)
    assert torch.equal(opened("train", folder).images, wanted.images)


@pytest.mark.parametrize(
    ("split", "missing"),
    [("train", "wnids.txt"), ("train", "words.txt"), ("test", "val/val_annotations.txt")],
)
def test_a_missing_list_is_named_with_the_source_of_the_data(folder, split, missing):
    (folder / missing).unlink()
    with pytest.raises(pb.DataError, match=r"cs231n.*tiny-imagenet-200\.zip") as caught:
        opened(split, folder.parent)
    assert f"{folder / missing} (missing)" in str(caught.value)


def test_to_train_no_annotations_are_needed(folder):
    shutil.rmtree(folder / "val")
    assert len(opened("train", folder)) == 12


@pytest.mark.parametrize(
    ("split", "file", "text", "message"),
    [
        ("test", "val/val_annotations.txt", "val_0.JPEG\tn01\n\nval_1.JPEG\tn99\n",
         r"val_annotations\.txt, line 3: n99 is a class that is not in wnids\.txt"),
        ("test", "val/val_annotations.txt", "val_0.JPEG n01\n",
         r"val_annotations\.txt, line 1: 'val_0\.JPEG n01' must have 2 fields"),
        ("test", "val/val_annotations.txt", "nowhere.JPEG\tn01\n", r"no file .*nowhere\.JPEG"),
        ("test", "val/val_annotations.txt", "\n", "names no picture"),
        ("train", "wnids.txt", "", r"wnids\.txt names no class"),
        ("train", "wnids.txt", "n01\nn77\n", r"words\.txt has no name of class n77"),
        ("train", "wnids.txt", "n00\nn01\n", r"train.n00 holds no picture"),
        ("train", "words.txt", "n01\n", r"words\.txt, line 1"),
        ("train", "words.txt", b"\xff\xfe\xff", r"words\.txt cannot be read as a list of lines"),
    ],
)  # fmt: skip
def test_lists_that_do_not_fit_are_named(folder, split, file, text, message):
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(pb.DataError, match=message):
        opened(split, folder)


@pytest.mark.parametrize(
    ("split", "picture"),
    [("train", "train/n02/images/n02_1.JPEG"), ("test", "val/images/val_5.JPEG")],
)
def test_a_broken_picture_is_named(folder, split, picture):
    path = folder / picture
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(pb.DataError, match=f"{path.name} cannot be read as a picture"):
        opened(split, folder)


@needs_data
def test_the_real_pictures_are_what_they_should_be():
    try:
        train, test = opened("train", None), opened("test", None)
    except pb.DataError as error:
        pytest.skip(str(error))
    assert torch.bincount(train.labels).tolist() == [500] * 200
    assert torch.bincount(test.labels).tolist() == [50] * 200
    assert len(set(train.classes)) == 200
    found = measured(train.images)
    for name in ("mean", "std"):
        assert train.preprocess[name] == pytest.approx(found[name], abs=1e-4)
