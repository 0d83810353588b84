"""Picture files and folders of them, whole and broken."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import pocketbayes as pb
from pocketbayes.data import images_from_files, open_dataset
from pocketbayes.data.pixels import in_channels, resized

RNG = np.random.default_rng(1)


def form(channels=1, height=8, width=8, **more):
    values = {"mean": [0.0] * channels, "std": [1.0] * channels}
    return {"kind": "image", "shape": [channels, height, width], **values, **more}


def pixels(*shape):
    return RNG.integers(256, size=shape, dtype=np.uint8)


def saved(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def read(path, preprocess):
    images, kept = images_from_files([path], preprocess)
    assert kept == [path]
    return images[0]


def test_digits_survive_a_png(tmp_path):
    data = open_dataset("digits", "test")
    paths = [
        saved(tmp_path / f"{number}.png", image[0].numpy())
        for number, image in enumerate(data.images[:100])
    ]
    images, kept = images_from_files(map(str, paths), data.preprocess)
    assert torch.equal(images, data.images[:100])
    assert kept == paths


@pytest.mark.parametrize("ending", ["png", "bmp", "ppm", "tiff", "webp"])
def test_colour_and_grey_in_every_lossless_format(tmp_path, ending):
    options = {"lossless": True} if ending == "webp" else {}
    colour = pixels(8, 8, 3)
    path = saved(tmp_path / f"a.{ending}", colour, **options)
    wanted = torch.from_numpy(colour).permute(2, 0, 1)
    assert torch.equal(read(path, form(3)), wanted)
    assert torch.equal(read(path, form(1)), in_channels(wanted[None], 1)[0])
    if ending != "webp":
        grey = pixels(8, 8)
        path = saved(tmp_path / f"b.{ending}", grey)
        assert torch.equal(read(path, form(3)), torch.from_numpy(grey).repeat(3, 1, 1))


def test_sixteen_bit_grey_is_scaled(tmp_path):
    deep = np.array([[0, 257 * 100, 65535], [128, 129, 65407]], np.uint16)
    for ending in ("png", "tiff"):
        path = saved(tmp_path / f"deep.{ending}", deep)
        assert read(path, form(1, 2, 3))[0].tolist() == [[0, 100, 255], [0, 1, 255]]


def test_depths_without_a_known_white_are_errors(tmp_path):
    for number, array in enumerate(
        (np.full((4, 4), 0.5, np.float32), np.full((4, 4), 70_000, np.int32))
    ):
        path = saved(tmp_path / f"{number}.tiff", array)
        with pytest.raises(pb.DataError, match=rf"{number}\.tiff"):
            read(path, form(1, 4, 4))


def test_transparency_is_laid_on_white(tmp_path):
    layers = np.array([[[200, 0, 0, 255], [200, 0, 0, 0]]], np.uint8)
    path = saved(tmp_path / "a.png", layers)
    assert read(path, form(3, 1, 2)).permute(1, 2, 0).tolist() == [[[200, 0, 0], [255, 255, 255]]]
    grey = np.array([[[7, 255], [7, 0]]], np.uint8)
    path = saved(tmp_path / "b.png", grey)
    assert read(path, form(1, 1, 2)).tolist() == [[[7, 255]]]


def test_palettes_and_one_bit_pictures(tmp_path):
    colours = np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8)
    picture = Image.fromarray(colours).convert("P", palette=Image.Palette.ADAPTIVE)
    picture.save(tmp_path / "a.png")
    assert read(tmp_path / "a.png", form(3, 1, 2)).permute(1, 2, 0).tolist() == colours.tolist()
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "b.png")
    assert read(tmp_path / "b.png", form(1, 1, 2)).tolist() == [[[255, 0]]]


def test_orientation_is_heeded(tmp_path):
    upright = pixels(6, 4, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned = np.rot90(upright, 1)
    path = saved(tmp_path / "a.png", np.ascontiguousarray(turned), exif=exif)
    assert torch.equal(read(path, form(3, 6, 4)), torch.from_numpy(upright).permute(2, 0, 1))


@pytest.mark.parametrize("crops", ["stretch", "crop"])
def test_another_size_is_resized_as_the_library_does(tmp_path, crops):
    colour = pixels(30, 21, 3)
    path = saved(tmp_path / "a.png", colour)
    got = read(path, form(3, 12, 10, resize=crops)).int()
    tensor = torch.from_numpy(colour).permute(2, 0, 1)[None]
    assert (got - resized(tensor, 12, 10, crops == "crop")[0].int()).abs().max() <= 1


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_size(width, height):
    """The head of a PNG of any size, and hardly any body."""
    head = png_chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + png_chunk(b"IDAT", zlib.compress(b""))
        + png_chunk(b"IEND", b"")
    )


def truncated_png():
    buffer = io.BytesIO()
    Image.fromarray(pixels(64, 64, 3)).save(buffer, "png")
    return buffer.getvalue()[:-3000]


BROKEN = {
    "empty": b"",
    "text": b"this is no picture",
    "truncated": truncated_png(),
    "bomb": png_of_size(12_000, 12_000),
    "huge bomb": png_of_size(100_000, 100_000),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_broken_pictures_are_named_or_skipped(tmp_path, kind, capsys):
    good = saved(tmp_path / "good.png", pixels(8, 8))
    bad = tmp_path / "bad.png"
    bad.write_bytes(BROKEN[kind])
    with pytest.raises(pb.DataError, match=r"bad\.png"):
        images_from_files([good, bad], form())
    images, kept = images_from_files([bad, good], form(), skip_bad=True)
    assert kept == [good]
    assert torch.equal(images[0], read(good, form()))
    assert "bad.png" in capsys.readouterr().err
    images, kept = images_from_files([bad], form(), skip_bad=True)
    assert kept == []
    assert images.shape == (0, *form()["shape"])


def test_a_very_long_picture_is_refused_before_it_becomes_a_huge_one(tmp_path):
    path = saved(tmp_path / "long.png", pixels(1, 60_000))
    for rule in ("crop", "stretch"):
        with pytest.raises(pb.DataError, match=r"long\.png is 60000 x 1 .* too long"):
            read(path, form(1, 64, 64, resize=rule))


@pytest.mark.parametrize(("width", "refused"), [(64, False), (65, True)])
def test_eight_times_the_proportions_is_the_most(tmp_path, width, refused):
    path = saved(tmp_path / "wide.png", pixels(8, width))
    images, _ = images_from_files([path], form(resize="crop"), skip_bad=True)
    assert len(images) == (0 if refused else 1)


def test_pictures_of_other_proportions_are_said_once(tmp_path, capsys):
    shapes = {"same": (8, 8), "larger": (16, 16), "wide": (8, 12), "tall": (13, 8)}
    paths = [saved(tmp_path / f"{name}.png", pixels(*shape)) for name, shape in shapes.items()]
    for rule, done in {"crop": "cut to their middle", "stretch": "stretched"}.items():
        images_from_files(paths, form(resize=rule))
        note = capsys.readouterr().err
        assert note.count("note:") == 1
        assert (
            f"2 of 4 pictures have other proportions than the model's 8 x 8 and are {done}" in note
        )
        assert "wide.png" in note
    gathered = []
    images_from_files(paths, form(), reshaped=gathered)
    assert gathered == paths[2:]
    images_from_files(paths[:2], form())
    assert capsys.readouterr().err == ""


def test_the_middle_is_what_is_cut_out(tmp_path):
    wide = np.zeros((8, 24), np.uint8)
    wide[:, 8:16] = 200
    path = saved(tmp_path / "wide.png", wide)
    assert (read(path, form(resize="crop")) == 200).all()
    assert read(path, form()).float().mean() < 100  # an older model's: stretched


def test_every_data_set_asks_for_cutting():
    for name in ("digits", "photo-patches"):
        assert open_dataset(name, "test").preprocess["resize"] == "crop"


def test_a_missing_picture_and_a_model_of_four_channels(tmp_path):
    with pytest.raises(pb.DataError, match=r"nowhere\.png"):
        images_from_files([tmp_path / "nowhere.png"], form())
    with pytest.raises(pb.DataError, match="1 or 3 channels"):
        images_from_files([saved(tmp_path / "a.png", pixels(8, 8))], form(4))


def folder_of(root, per_class=3):
    for split, seed in (("train", 0), ("test", 1)):
        rng = np.random.default_rng(seed)
        for name, level in (("dark", 40), ("bright", 200)):
            for number in range(per_class):
                picture = (level + rng.integers(30, size=(40, 50, 3))).astype(np.uint8)
                saved(root / split / name / f"{number}.png", picture)
    return root


def test_an_image_folder(tmp_path):
    root = folder_of(tmp_path)
    train, test = (open_dataset("imagefolder", s, root, size=32) for s in ("train", "test"))
    assert train.classes == test.classes == ("bright", "dark")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert train.images.shape == (6, 3, 32, 32)
    brightness = train.images.float().mean((1, 2, 3))
    assert (brightness[:3] > 150).all()
    assert (brightness[3:] < 100).all()
    assert test.preprocess == train.preprocess
    std, mean = torch.std_mean(train.images.double() / 255, (0, 2, 3), correction=0)
    assert train.preprocess["mean"] == pytest.approx(mean.tolist())
    assert train.preprocess["std"] == pytest.approx(std.tolist())
    assert train.augmentation == ("crop",)
    mirrored = open_dataset("imagefolder", "train", root, size=16, mirror=True)
    assert mirrored.augmentation == ("mirror",)


def test_pictures_are_read_for_prediction_as_in_training(tmp_path):
    root = folder_of(tmp_path)
    train = open_dataset("imagefolder", "train", root, size=20)
    files = sorted((root / "train").rglob("*.png"))
    assert torch.equal(images_from_files(files, train.preprocess)[0], train.images)


def test_the_test_pictures_alone_know_the_statistics_of_training(tmp_path):
    root = folder_of(tmp_path)
    test = open_dataset("imagefolder", "test", root, size=9, channels=1)
    train = open_dataset("imagefolder", "train", root, size=9, channels=1)
    assert test.preprocess == train.preprocess
    assert test.images.shape == (6, 1, 9, 9)
    saved(root / "train" / "dark" / "new.png", pixels(40, 40, 3))
    changed = open_dataset("imagefolder", "test", root, size=9, channels=1)
    assert changed.preprocess != train.preprocess


def test_evaluation_of_a_trained_model_needs_no_training_pictures(tmp_path):
    root = folder_of(tmp_path / "a")
    train = open_dataset("imagefolder", "train", root, size=12)
    other = tmp_path / "b"
    saved(other / "val" / "dark" / "x.jpg", pixels(30, 30, 3))
    options = {"like": train.preprocess, "classes": train.classes}
    test = open_dataset("imagefolder", "test", other, **options)
    assert test.labels.tolist() == [1]
    assert test.classes == train.classes
    assert test.preprocess == train.preprocess
    saved(other / "val" / "odd" / "x.png", pixels(30, 30, 3))
    with pytest.raises(pb.DataError, match=r"odd is a class .*: bright, dark"):
        open_dataset("imagefolder", "test", other, **options)


def test_a_broken_picture_in_a_folder(tmp_path, capsys):
    root = folder_of(tmp_path)
    (root / "train" / "dark" / "1.png").write_bytes(b"broken")
    with pytest.raises(pb.DataError, match=r"dark.1\.png"):
        open_dataset("imagefolder", "train", root, size=8)
    train = open_dataset("imagefolder", "train", root, size=8, skip_bad=True)
    assert train.labels.tolist() == [0, 0, 0, 1, 1]
    assert "1.png" in capsys.readouterr().err


def test_folders_that_are_not_as_they_must_be(tmp_path):
    with pytest.raises(pb.DataError, match=r"no folder .*train"):
        open_dataset("imagefolder", "train", tmp_path)
    with pytest.raises(pb.DataError, match=r"no folder .*test nor .*val"):
        open_dataset("imagefolder", "test", tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(pb.DataError, match="one folder for each class"):
        open_dataset("imagefolder", "train", tmp_path)
    (tmp_path / "train" / "cat").mkdir()
    (tmp_path / "train" / "cat" / ".hidden.png").touch()
    (tmp_path / "train" / "cat" / "notes.txt").touch()
    with pytest.raises(pb.DataError, match="cat holds no picture"):
        open_dataset("imagefolder", "train", tmp_path)
