import torch

from pocketbayes.data import ImageLoader, ImageSet
from pocketbayes.data.images import cropped_and_mirrored

PREPROCESS = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}


def image_set(n=10, side=8):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 3, side, side), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.arange(n), PREPROCESS)


def test_normalisation_is_that_of_the_preprocessing():
    data = image_set()
    (x, y), *rest = ImageLoader(data, 4)
    mean, std = (torch.tensor(PREPROCESS[k]).view(3, 1, 1) for k in ("mean", "std"))
    torch.testing.assert_close(x, (data.images[:4].float() / 255 - mean) / std)
    assert y.tolist() == [0, 1, 2, 3]
    assert [len(labels) for _, labels in rest] == [4, 2]
    assert len(ImageLoader(data, 4)) == 3
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_augmented_epochs_are_shuffled_whole_batches():
    loader = ImageLoader(image_set(), 4, augment=True)
    batches = list(loader)
    assert len(batches) == len(loader) == 2
    seen = [label for _, y in batches for label in y.tolist()]
    assert len(set(seen)) == 8
    assert seen != sorted(seen)


def test_every_crop_is_a_window_of_the_padded_image_or_its_mirror():
    images = image_set(64).images
    cropped = cropped_and_mirrored(images)
    padded = torch.nn.functional.pad(images, (4,) * 4)
    offsets, mirrors = set(), 0
    for before, after in zip(padded, cropped, strict=True):
        found = [
            (i, j, flip)
            for i in range(9)
            for j in range(9)
            for flip in (False, True)
            if torch.equal(
                before[:, i : i + 8, j : j + 8].flip(2)
                if flip
                else before[:, i : i + 8, j : j + 8],
                after,
            )
        ]
        assert found
        offsets.add(found[0][:2])
        mirrors += found[0][2]
    assert len(offsets) > 20
    assert 10 < mirrors < 54  # binomial(64, 1/2) leaves this range once in 10^8
