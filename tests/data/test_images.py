"""Image sets: normalisation, augmentation, channels and sizes."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import pocketbayes as pb
from pocketbayes.data import ImageSet, normalised
from pocketbayes.data.pixels import augmented, cut_out, image_form, in_channels, measured, resized

PREPROCESS = {
    "kind": "image",
    "shape": [3, 8, 8],
    "mean": [0.1, 0.2, 0.3],
    "std": [0.5, 0.6, 0.7],
}
GREY = {"kind": "image", "shape": [1, 8, 8], "mean": [0.25], "std": [0.5]}


def random_images(n=10, channels=3, side=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (n, channels, side, side)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def image_set(n=10, side=8, augmentation=()):
    return ImageSet(
        random_images(n, side=side), torch.arange(n), PREPROCESS, augmentation=augmentation
    )


def test_normalisation_is_that_of_the_preprocessing():
    data = image_set()
    x, y = data.batch([3, 1])
    mean, std = (torch.tensor(PREPROCESS[k]).view(3, 1, 1) for k in ("mean", "std"))
    torch.testing.assert_close(x, (data.images[[3, 1]].float() / 255 - mean) / std)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert y.tolist() == [3, 1]
    assert torch.equal(normalised(data.images, PREPROCESS), data.batch(range(10))[0])


def test_a_set_first_used_in_inference_mode_can_be_trained_on():
    data = image_set()
    with torch.inference_mode():
        data.batch([0])
    x, _ = data.batch([0])
    weight = torch.ones(3, 1, 1, requires_grad=True)
    (x * weight).sum().backward()
    assert weight.grad is not None


def test_subset_and_device_keep_everything_else():
    data = ImageSet(random_images(), torch.arange(10), PREPROCESS, ("a",), ("mirror",))
    for part in (data.subset([7, 2]), data.subset(torch.tensor([7, 2])).to("cpu")):
        assert part.labels.tolist() == [7, 2]
        assert torch.equal(part.images, data.images[[7, 2]])
        assert (part.preprocess, part.classes, part.augmentation) == (
            PREPROCESS,
            ("a",),
            ("mirror",),
        )
    assert data.subset(data.labels > 7).labels.tolist() == [8, 9]
    assert data.likelihood == "categorical"
    assert len(data) == 10


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64), "uint8"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), "uint8"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(2), "int64"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), r"\(2,\)"),
    ],
)
def test_wrong_tensors_are_named(images, labels, message):
    with pytest.raises(pb.DataError, match=message):
        ImageSet(images, labels, GREY)


def test_unknown_augmentation_is_an_error():
    with pytest.raises(pb.DataError, match="turn"):
        image_set(augmentation=("turn",))


def windows(padded, after):
    """Every (top, left, mirrored) that explains an augmented image."""
    return {
        (i, j, flip)
        for i in range(9)
        for j in range(9)
        for flip in (False, True)
        if torch.equal(
            padded[:, i : i + 8, j : j + 8].flip(2) if flip else padded[:, i : i + 8, j : j + 8],
            after,
        )
    }


@pytest.mark.parametrize("kinds", [("crop",), ("mirror",), ("crop", "mirror"), ()])
def test_every_augmented_image_is_a_window_of_the_padded_one_or_its_mirror(kinds):
    images = random_images(64)
    padded = torch.nn.functional.pad(images, (4,) * 4)
    found = [windows(p, a) for p, a in zip(padded, augmented(images, kinds), strict=True)]
    assert all(len(explanations) == 1 for explanations in found)
    places = {(i, j) for ((i, j, _),) in found}
    mirrors = sum(flip for ((_, _, flip),) in found)
    assert len(places) > 20 if "crop" in kinds else places == {(4, 4)}
    if "mirror" in kinds:
        assert 10 < mirrors < 54  # binomial(64, 1/2) leaves this range once in 10^8
    else:
        assert mirrors == 0


def test_offsets_are_uniform():
    """Chi-squared over the 81 places of 20,000 crops; false alarm 1e-6."""
    dot = torch.zeros(20_000, 1, 9, 9, dtype=torch.uint8)
    dot[:, :, 4, 4] = 1
    moved = augmented(dot, ("crop",)).flatten(1).int().argmax(1)
    counts = torch.bincount(moved, minlength=81).double()
    expected = 20_000 / 81
    assert ((counts - expected) ** 2 / expected).sum() < 155.1  # 80 degrees of freedom


def test_cutout_leaves_the_mean_colour_in_a_square_whose_middle_is_anywhere():
    """Chi-squared over the 64 squares of 20,000 images; false alarm 1e-6."""
    whole = torch.rand(20_000, 3, 8, 8) + 0.5
    left = cut_out(whole)
    blank = (left == 0).all(1)
    assert torch.equal(left, whole * ~blank.unsqueeze(1))
    counts = torch.zeros(8, 8)
    for top in range(-2, 6):
        for side in range(-2, 6):
            square = torch.zeros(8, 8, dtype=torch.bool)
            square[max(top, 0) : top + 4, max(side, 0) : side + 4] = True
            counts[top + 2, side + 2] = (blank == square).flatten(1).all(1).sum()
    assert counts.sum() == 20_000
    expected = 20_000 / 64
    assert ((counts - expected) ** 2 / expected).sum() < 131.4  # 63 degrees of freedom


def test_cutout_is_of_training_batches_alone_and_goes_with_the_others():
    plain, cut = image_set(64), image_set(64, augmentation=("crop", "mirror", "cutout"))
    rows = torch.arange(64)
    assert torch.equal(cut.batch(rows)[0], plain.batch(rows)[0])
    found = cut.batch(rows, augment=True)[0]
    assert 64 * 4 <= (found == 0).all(1).sum() <= 64 * 16
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_cutout_is_added_once():
    twice = image_set(augmentation=("crop",)).with_cutout().with_cutout()
    assert twice.augmentation == ("crop", "cutout")


def test_augmentation_happens_only_when_asked_and_is_that_of_the_data():
    plain, mirrored = image_set(), image_set(augmentation=("mirror",))
    rows = torch.arange(10)
    assert torch.equal(plain.batch(rows, augment=True)[0], plain.batch(rows)[0])
    assert torch.equal(mirrored.batch(rows)[0], plain.batch(rows)[0])
    assert not torch.equal(mirrored.batch(rows, augment=True)[0], plain.batch(rows)[0])


@given(st.integers(0, 1000), st.integers(1, 3))
def test_measured_statistics_are_those_of_the_pixels(seed, channels):
    images = random_images(5, channels, seed=seed)
    found = measured(images)
    std, mean = torch.std_mean(images.double() / 255, (0, 2, 3), correction=0)
    assert found["mean"] == pytest.approx(mean.tolist())
    assert found["std"] == pytest.approx(std.tolist())
    assert found["shape"] == [channels, 8, 8]
    assert json.loads(json.dumps(found)) == found


def test_a_constant_channel_is_not_divided_by_zero():
    found = measured(torch.full((3, 1, 2, 2), 51, dtype=torch.uint8))
    assert found["std"] == [1.0]
    assert found["mean"] == pytest.approx([0.2])


def test_luma_is_the_one_of_pillow():
    colours = random_images(20)
    grey = in_channels(colours, 1)
    for before, after in zip(colours, grey, strict=True):
        reference = Image.fromarray(before.permute(1, 2, 0).numpy()).convert("L")
        assert np.array_equal(after[0].numpy(), np.asarray(reference))
    assert torch.equal(in_channels(in_channels(grey, 3), 1), grey)


@pytest.mark.parametrize("size", [(5, 5), (13, 9), (8, 8), (4, 16)])
def test_resizing_is_the_one_of_pillow_but_for_rounding(size):
    images = random_images(6)
    changed = resized(images, *size)
    assert changed.shape == (6, 3, *size)
    assert changed.dtype == torch.uint8
    for before, after in zip(images, changed, strict=True):
        picture = Image.fromarray(before.permute(1, 2, 0).numpy())
        reference = np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(after.permute(1, 2, 0).numpy().astype(int) - reference).max() <= 1


def test_resizing_by_cutting_keeps_proportions():
    wide = torch.zeros(1, 1, 8, 24, dtype=torch.uint8)
    wide[..., 8:16] = 200
    assert (resized(wide, 8, 8, crops=True) == 200).all()
    assert resized(wide, 16, 16, crops=True).float().mean() > 190
    assert resized(wide, 8, 8).float().mean() < 100


def test_fitted_takes_channels_size_and_scale():
    data = image_set()
    same = data.fitted(PREPROCESS)
    assert torch.equal(same.images, data.images)
    grey = data.fitted({**GREY, "shape": [1, 4, 6]})
    assert grey.images.shape == (10, 1, 4, 6)
    assert grey.batch([0])[0].shape == (1, 1, 4, 6)
    torch.testing.assert_close(
        grey.batch([0])[0], (grey.images[:1].float() / 255 - 0.25) / 0.5, rtol=1e-5, atol=1e-6
    )
    back = grey.fitted(PREPROCESS)
    assert torch.equal(back.images[:, 0], back.images[:, 2])
    assert torch.equal(grey.labels, data.labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "table"}, "kind 'image'"),
        ({"shape": [3, 8]}, r"\[channels, height, width\]"),
        ({"shape": [3, 8, 10**6]}, "4096"),
        ({"shape": [3, 8, True]}, "whole number"),
        ({"shape": None}, "shape None"),
        ({"mean": [0.1, 0.2]}, "mean"),
        ({"std": [0.1, 0.2, 0.0]}, "above 0"),
        ({"std": [0.1, 0.2, float("nan")]}, "finite"),
        ({"mean": "abc"}, "mean"),
        ({"resize": "melt"}, "melt"),
        ({"shape": [4, 8, 8], "mean": [0.1] * 4, "std": [1] * 4}, "3 channels"),
    ],
)
def test_a_preprocess_of_a_hostile_file_is_an_error(change, message):
    with pytest.raises(pb.DataError, match=message):
        image_set().fitted(PREPROCESS | change)
    with pytest.raises(pb.DataError):
        image_form(None)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_batches_on_a_gpu_equal_those_of_the_cpu_and_never_wait_for_it():
    data = image_set(64, augmentation=("crop", "mirror", "cutout"))
    there, rows = data.to("cuda"), torch.arange(64, device="cuda")
    there.batch(rows)
    try:
        torch.cuda.set_sync_debug_mode("error")
        x, _ = there.batch(rows)
        there.batch(rows, augment=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(x.cpu(), data.batch(range(64))[0])
