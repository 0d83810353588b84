"""Spoiled images: known answers, other people's code as the measure, and chance within bounds.

Where chance is tested, the bound is one of a false alarm in about a million (5 standard errors, or
p > 1e-6), and the seed is fixed.
"""

import colorsys
import importlib
import json
import math
import sys
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from typer.testing import CliRunner

import pocketbayes as pb
from pocketbayes.cli import app
from pocketbayes.data import CORRUPTIONS, corrupted, open_dataset
from pocketbayes.data.draws import Draws
from pocketbayes.data.filters import (
    blurred,
    disk,
    filtered,
    motion_blurred,
    sampled,
    separable,
    zoom_matrix,
    zoom_sizes,
)
from pocketbayes.data.weather import frost, plasma
from pocketbayes.errors import DataError
from pocketbayes.layers.description import update_description
from pocketbayes.models import build_network

CPU = torch.device("cpu")
NAMES = list(CORRUPTIONS)
RANDOM = [
    "gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "frost",
    "fog", "elastic_transform",
]  # fmt: skip
SIZES = [(32, 32), (28, 28), (17, 23), (8, 8), (3, 5), (1, 1)]


def scenes(count=48, channels=3, height=32, width=32):
    """Smooth shapes with some sharp edges, as in photographs."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(count, channels, height, width)
    for std in (0.7, 2.0, 5.0):
        noise = torch.randn(count, channels, height, width, generator=generator)
        soft = blurred(noise, std)
        total += soft / soft.std()
    total += 2 * (blurred(torch.randn(count, 1, height, width, generator=generator), 3.0) > 0)
    return (110 + 28 * total).clamp(0, 255).to(torch.uint8)


def constant(level, count=1, channels=3, size=32):
    return torch.full((count, channels, size, size), level, dtype=torch.uint8)


def squared_distances(name, images):
    return [
        float((corrupted(images, name, s).float() - images.float()).square().mean())
        for s in range(1, 6)
    ]


def at_each(*numbers):
    return list(enumerate(numbers, start=1))


def within(measured, expected, standard_error):
    assert abs(measured - expected) < 5 * standard_error, (measured, expected)


@pytest.mark.parametrize("name", NAMES)
def test_any_size_grey_or_colour_gives_bytes_of_the_same_shape(name):
    for number, size in enumerate(SIZES):
        for channels in (1, 3):
            images = scenes(3, channels, *size)
            before = images.clone()
            for severity in (1, 3, 5) if (number + channels) % 4 else (2, 4, 5):
                made = corrupted(images, name, severity)
                assert made.dtype == torch.uint8, (size, channels, severity)
                assert made.shape == images.shape, (size, channels, severity)
            assert torch.equal(images, before), (size, channels)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_stays_empty(name):
    assert corrupted(torch.empty(0, 3, 32, 32, dtype=torch.uint8), name, 3).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_what_is_random_and_nothing_else(name):
    images = scenes(8)
    first, again, other = (corrupted(images, name, 3, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) != (name in RANDOM)
    state = torch.get_rng_state()
    corrupted(images, name, 3)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", RANDOM)
def test_two_equal_images_are_corrupted_in_two_ways(name):
    made = corrupted(scenes(1).repeat(2, 1, 1, 1), name, 3)
    assert not torch.equal(made[0], made[1])


@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_depend_on_its_neighbours(name, monkeypatch):
    images = scenes(20)
    whole = corrupted(images, name, 3, seed=7).int()
    apart = [corrupted(images[i : i + 7], name, 3, seed=7, first=i) for i in (0, 7, 14)]
    monkeypatch.setattr("pocketbayes.data.corruptions._VALUES_AT_A_TIME", 3 * images[0].numel())
    few = corrupted(images, name, 3, seed=7)
    for other in (torch.cat(apart), few):
        away = (other.int() - whole).abs()
        assert away.max() <= 1
        assert (away > 0).double().mean() < 1e-4


@pytest.mark.parametrize("name", sorted({*NAMES} - {"glass_blur", "elastic_transform", "frost"}))
def test_severity_moves_images_further(name):
    distances = squared_distances(name, scenes())
    if name == "motion_blur":  # steps 3 and 4 differ in the radius only, which hardly matters
        assert distances[3] == pytest.approx(distances[2], rel=0.2)
        del distances[3]
    assert distances[0] > 0
    assert all(a < b for a, b in pairwise(distances)), distances


def test_severities_that_are_published_as_no_distance():
    glass = squared_distances("glass_blur", scenes())
    assert min(glass[3:]) > max(glass[:3])
    elastic = squared_distances("elastic_transform", scenes())
    assert elastic[0] == max(elastic)
    assert elastic[4] == min(elastic)
    ice = squared_distances("frost", scenes())
    assert ice[0] < ice[1] < ice[2]


@pytest.mark.parametrize(
    "name",
    ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "contrast", "elastic_transform",
     "pixelate"],
)  # fmt: skip
def test_a_constant_image_stays_as_it_is(name):
    images = torch.cat([constant(level, 2) for level in (0, 1, 100, 254, 255)])
    for severity in range(1, 6):
        for given in (images, images[:, :1]):
            assert torch.equal(corrupted(given, name, severity), given), severity


@pytest.mark.parametrize("name", sorted({*NAMES} - {
    "gaussian_noise", "shot_noise", "impulse_noise", "frost", "jpeg_compression"}))  # fmt: skip
def test_grey_is_treated_as_colour_with_three_equal_channels(name):
    grey = scenes(6, 1)
    alone, colour = corrupted(grey, name, 4).int(), corrupted(grey.repeat(1, 3, 1, 1), name, 4)
    assert (colour.int() - alone).abs().max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_autocast_around_it_changes_nothing(name):
    images = scenes(4)
    with torch.autocast("cpu", torch.bfloat16):
        inside = corrupted(images, name, 5)
    assert torch.equal(inside, corrupted(images, name, 5))


@pytest.mark.parametrize(("severity", "std"), at_each(0.04, 0.06, 0.08, 0.09, 0.10))
def test_gaussian_noise_has_the_published_std(severity, std):
    made = corrupted(constant(128, 200), "gaussian_noise", severity).double()
    expected = math.sqrt((255 * std) ** 2 + 1 / 12)
    within(made.mean(), 127.5, expected / math.sqrt(made.numel()))
    within(made.std(), expected, expected / math.sqrt(2 * made.numel()))


def test_shot_noise_is_poisson():
    made = corrupted(constant(51, 100), "shot_noise", 5).numpy().astype(int)
    counts = np.bincount(np.ceil(made * 50 / 255 - 1e-9).astype(int).ravel(), minlength=51)
    expected = stats.poisson(10).pmf(np.arange(len(counts))) * counts.sum()
    common = expected > 5
    found = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], counts.sum() - expected[common].sum()]
    assert stats.chisquare(found, wanted).pvalue > 1e-6


@pytest.mark.parametrize(("severity", "photons"), at_each(500, 250, 100, 75, 50))
def test_shot_noise_keeps_the_mean_and_grows_with_the_root(severity, photons):
    for level in (0, 3, 120):
        spread = math.sqrt(level * 255 / photons)
        made = corrupted(constant(level, 100), "shot_noise", severity).double()
        assert level - 1 - 5 * spread / 500 < made.mean() <= level + 5 * spread / 500
        assert float(made.std()) == pytest.approx(spread, rel=0.02, abs=0.3)


@pytest.mark.parametrize(("severity", "share"), at_each(0.01, 0.02, 0.03, 0.05, 0.07))
def test_impulses_have_the_published_share_and_are_half_black(severity, share):
    made = corrupted(constant(128, 100), "impulse_noise", severity)
    error = math.sqrt(share / 2 / made.numel())
    within((made == 0).double().mean(), share / 2, error)
    within((made == 255).double().mean(), share / 2, error)
    assert set(made.unique().tolist()) == {0, 128, 255}


@pytest.mark.parametrize(("severity", "more"), at_each(0.05, 0.1, 0.15, 0.2, 0.3))
def test_brightness_is_that_of_hsv(severity, more):
    images = torch.randint(256, (1, 3, 9, 9), dtype=torch.uint8)
    images[:, :, 0, :3] = torch.tensor([0, 255, 7])
    made = corrupted(images, "brightness", severity)
    for old, new in zip(
        images.flatten(2)[0].T.tolist(), made.flatten(2)[0].T.tolist(), strict=True
    ):
        hue, saturation, value = colorsys.rgb_to_hsv(*(v / 255 for v in old))
        wanted = colorsys.hsv_to_rgb(hue, saturation, min(1, value + more))
        assert new == [math.floor(255 * v + 1e-3) for v in wanted]


@pytest.mark.parametrize(("severity", "kept"), at_each(0.75, 0.5, 0.4, 0.3, 0.15))
def test_contrast_of_two_values(severity, kept):
    images = constant(100)
    images[:, :, 16:] = 200
    made = corrupted(images, "contrast", severity)
    assert made[:, :, :16].unique().tolist() == [math.floor(150 - 50 * kept + 1e-3)]
    assert made[:, :, 16:].unique().tolist() == [math.floor(150 + 50 * kept + 1e-3)]


@pytest.mark.parametrize("severity", range(1, 6))
def test_blurs_keep_the_light_of_what_is_away_from_borders(severity):
    images = torch.zeros(4, 3, 65, 65)
    images[:, :, 30:35, 31:34] = 200
    angles = torch.tensor([-45.0, -10.0, 0.0, 45.0])
    radius, std = CORRUPTIONS["motion_blur"].settings[severity - 1]
    softened = filtered(
        images, disk(*CORRUPTIONS["defocus_blur"].settings[severity - 1]), "reflect"
    )
    for made in (softened, motion_blurred(images, radius, std, angles), blurred(images, 0.4)):
        torch.testing.assert_close(made.sum((2, 3)), images.sum((2, 3)), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("mine", "scipys"), [("edge", "nearest"), ("symmetric", "reflect"),
                                              ("reflect", "mirror")])  # fmt: skip
def test_filters_equal_those_of_scipy(mine, scipys):
    images = scenes(2, 3, 17, 23).float()
    kernel = torch.rand(5, 3)
    wanted = ndimage.correlate(images.numpy(), kernel.numpy()[None, None], mode=scipys)
    np.testing.assert_allclose(filtered(images, kernel, mine), wanted, rtol=1e-4)
    for std, truncate in ((0.05, 4.0), (0.4, 4.0), (6.4, 3.0)):
        wanted = ndimage.gaussian_filter(
            images.numpy(), (0, 0, std, std), mode=scipys, truncate=truncate
        )
        np.testing.assert_allclose(blurred(images, std, truncate, mine), wanted, rtol=1e-4)


@pytest.mark.parametrize(("mine", "scipys"), [("symmetric", "reflect"), ("reflect", "mirror")])
def test_sampling_equals_that_of_scipy(mine, scipys):
    image = scenes(1, 1, 17, 23).float()
    rows, columns = torch.rand(1, 17, 23) * 40 - 12, torch.rand(1, 17, 23) * 40 - 9
    wanted = ndimage.map_coordinates(
        image[0, 0].numpy(), [rows[0].numpy(), columns[0].numpy()], order=1, mode=scipys
    )
    np.testing.assert_allclose(sampled(image, rows, columns, mine)[0, 0], wanted, atol=0.01)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.05, 1.11, 1.25, 1.75, 2.25])
@pytest.mark.parametrize("size", [32, 28, 9])
def test_zooming_equals_that_of_scipy(size, factor):
    image = scenes(1, 1, size, size).float()
    kept = math.ceil(size / factor)
    top = (size - kept) // 2
    middle = image[0, 0, top : top + kept, top : top + kept].numpy()
    large = ndimage.zoom(middle, factor, order=1)
    cut = (large.shape[0] - size) // 2
    matrix = zoom_matrix(size, *zoom_sizes(size, factor))
    np.testing.assert_allclose(
        separable(image, matrix, matrix)[0, 0],
        large[cut : cut + size, cut : cut + size],
        atol=0.01,
    )


def test_motion_smears_along_its_direction():
    image = torch.zeros(2, 1, 31, 31)
    image[:, :, 15, 15] = 1
    along, down = motion_blurred(image, 6, 2.0, torch.tensor([0.0, -90.0]))[:, 0]
    weights = torch.exp(-(torch.arange(13).double() ** 2) / 8)
    wanted = (weights / weights.sum()).float()
    torch.testing.assert_close(along[15, 3:16].flip(0), wanted, atol=2e-5, rtol=0)
    torch.testing.assert_close(down[15:28, 15], wanted, atol=2e-5, rtol=0)


def test_glass_copies_pixel_by_pixel_from_the_last_to_the_first():
    image = scenes(1, 3, 12, 14)
    chosen = []

    class Kept(Draws):
        def uniform(self, *shape):
            chosen.append(super().uniform(*shape))
            return chosen[-1]

    apply, settings = CORRUPTIONS["glass_blur"]  # whose first blur is too narrow to matter
    draws = Kept(0, 0, 1, CPU)
    made = apply(image.float(), draws, *settings[0])[0].permute(1, 2, 0).round().numpy()
    pixels = image[0].permute(1, 2, 0).numpy().copy()
    steps = (chosen[0][0] < 0.5).int().numpy()
    for row in range(11, 1, -1):
        for column in range(13, 1, -1):
            up, left = steps[:, row, column]
            near = row - up, column - left
            pixels[row, column], pixels[near] = pixels[near], pixels[row, column]
    np.testing.assert_array_equal(made, pixels)


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (17, 23), (64, 50)], ids=str)
def test_pixelate_is_that_of_pillow(severity, size):
    scale = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    height, width = size
    image = torch.randint(256, (1, 3, height, width), dtype=torch.uint8)
    picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
    small = picture.resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    wanted = np.asarray(small.resize((width, height), Image.Resampling.BOX))
    made = corrupted(image, "pixelate", severity)[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(made, wanted)


def test_jpeg_is_that_of_pillow():
    for channels in (1, 3):
        image = scenes(1, channels)
        file = BytesIO()
        Image.fromarray(image[0].permute(1, 2, 0).squeeze(2).numpy()).save(file, "JPEG", quality=58)
        wanted = np.asarray(Image.open(file)).reshape(32, 32, channels)
        made = corrupted(image, "jpeg_compression", 3)[0].permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(made, wanted)


def test_snow_on_black_is_the_same_upside_down():
    made = corrupted(constant(0, 20), "snow", 3)
    assert torch.equal(made, made.flip(2, 3))
    assert made.min() == math.floor(0.1 * 127.5)
    assert made.max() > 100


@pytest.mark.parametrize(("severity", "strength"), at_each(0.2, 0.5, 0.75, 1, 1.5))
def test_fog_on_white_reaches_from_clear_to_full(severity, strength):
    made = corrupted(constant(255, 5), "fog", severity)
    assert (made.amax((1, 2, 3)) >= 254).all()
    assert (made.amin((1, 2, 3)) == math.floor(255 / (1 + strength) + 1e-3)).all()
    assert corrupted(constant(0, 5), "fog", severity).max() == 0


def test_clouds_without_fine_noise_are_the_means_of_what_is_around():
    clouds = plasma(Draws(0, 0, 3, CPU), 8, decay=1e4)
    assert clouds.shape == (3, 8, 8)
    torch.testing.assert_close(clouds.amin((1, 2)), torch.zeros(3))
    torch.testing.assert_close(clouds.amax((1, 2)), torch.ones(3))
    beside = sum(clouds.roll(step, dim) for step in (-1, 1) for dim in (1, 2)) / 4
    cross = sum(clouds.roll((a, b), (1, 2)) for a in (-1, 1) for b in (-1, 1)) / 4
    torch.testing.assert_close(clouds[:, 1::2, 1::2], cross[:, 1::2, 1::2])
    torch.testing.assert_close(clouds[:, ::2, 1::2], beside[:, ::2, 1::2])
    torch.testing.assert_close(clouds[:, 1::2, ::2], beside[:, 1::2, ::2])


def test_frost_has_the_colour_level_and_contrast_that_it_says():
    made = frost(torch.zeros(400, 3, 32, 32), Draws(1, 0, 400, CPU), 0.0, 1.0)
    within(made[:, 0].mean(), 146, 39 / math.sqrt(400))
    assert (made.mean((0, 2, 3)).diff() > 5).all()  # bluish
    assert made.mean((1, 2, 3)).std() == pytest.approx(39, abs=6)
    assert made[:, 0].std((1, 2)).mean() == pytest.approx(22, abs=1.5)


def test_words_are_those_of_splitmix64():
    draws = Draws(0, 0, 1, CPU)
    draws._streams = torch.tensor([[1234567]])
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [word % 2**64 for word in draws._words(3)[0].tolist()] == published


def test_draws_are_uniform_normal_and_unrelated():
    draws = Draws(3, 10, 400, CPU)
    uniform, normal = draws.uniform(25, 20), draws.normal(5, 101)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert normal.shape == (400, 5, 101)
    assert stats.kstest(uniform.flatten().numpy(), "uniform").pvalue > 1e-6
    assert stats.kstest(normal.flatten().numpy(), "norm").pvalue > 1e-6
    flat = normal.flatten(1).double()
    for one, other in (
        (flat[1:], flat[:-1]),
        (flat[:, 1:], flat[:, :-1]),
        (flat[:, :252], flat[:, 253:]),
    ):
        within((one * other).mean(), 0, 1 / math.sqrt(one.numel()))
    again = Draws(3, 12, 1, CPU)
    assert torch.equal(again.uniform(25, 20)[0], uniform[2])


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1, 2**70 + 3])
def test_any_seed_will_do(seed):
    images = scenes(2)
    found = corrupted(images, "gaussian_noise", 1, seed)
    assert torch.equal(found, corrupted(images, "gaussian_noise", 1, seed))
    assert not torch.equal(found, corrupted(images, "gaussian_noise", 1, seed + 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "fogg"}, "no corruption 'fogg'; did you mean 'fog'?; there are gaussian_noise"),
        ({"name": 3}, "no corruption 3"),
        ({"name": ["fog"]}, "no corruption"),
        ({"severity": 0}, "whole number from 1 to 5; got 0"),
        ({"severity": 6}, "from 1 to 5; got 6"),
        ({"severity": "3"}, "from 1 to 5; got '3'"),
        ({"severity": True}, "from 1 to 5; got True"),
        ({"severity": 2.0}, "from 1 to 5; got 2.0"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"first": -1}, "first must be"),
        ({"images": torch.rand(2, 3, 8, 8)}, "torch.float32 .* must be uint8"),
        ({"images": torch.zeros(3, 8, 8, dtype=torch.uint8)}, r"shape \(3, 8, 8\)"),
        ({"images": torch.zeros(1, 2, 8, 8, dtype=torch.uint8)}, "1 or 3"),
        ({"images": np.zeros((1, 3, 8, 8), np.uint8)}, "must be a tensor; got a ndarray"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(change, message):
    given = {"images": constant(0), "name": "fog", "severity": 1} | change
    with pytest.raises(DataError, match=message.replace("?;", r"\?;")):
        corrupted(**given)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"jpeg_compression"}))
def test_all_is_made_on_the_device_of_the_images(name):
    meta = torch.device("meta")
    apply, settings = CORRUPTIONS[name]
    for channels in (1, 3):
        made = apply(
            torch.empty(2, channels, 32, 32, device=meta), Draws(0, 0, 2, meta), *settings[2]
        )
        assert made.device == meta
        assert made.shape == (2, channels, 32, 32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_makes_the_same_images(name):
    for channels in (1, 3):
        images = scenes(16, channels)
        for severity in range(1, 6):
            made = corrupted(images.cuda(), name, severity)
            assert made.is_cuda
            away = (made.cpu().int() - corrupted(images, name, severity).int()).abs()
            assert (away > 1).double().mean() < 1e-3
            assert (away > 0).double().mean() < 0.02


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    done = run(
        "train", "--data", "digits", "--model", "mlp", "--hidden", "32", "--epochs", "8", "--out",
        folder, "--device", "cpu",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder


def test_the_command_line_measures_on_corrupted_images(digits_run):
    def numbers(*words):
        done = run("evaluate", digits_run, "--device", "cpu", "--json", *words)
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout[done.stdout.index("{") :])
        del found["seconds"]
        return found

    clean = numbers()
    corrupted_numbers = numbers("--corruption", "contrast", "--severity", 5)
    assert (corrupted_numbers["corruption"], corrupted_numbers["severity"]) == ("contrast", 5)
    assert "corruption" not in clean
    assert "severity" not in clean
    assert corrupted_numbers["num_examples"] == clean["num_examples"]
    assert corrupted_numbers["nll"] > clean["nll"]
    assert numbers("--corruption", "contrast", "--severity", 5) == corrupted_numbers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--corruption", "fog"], "say both"),
        (["--severity", "2"], "say both"),
        (["--corruption", "fgo", "--severity", "2"], "did you mean 'fog'"),
        (["--corruption", "fog", "--severity", "9"], "from 1 to 5"),
    ],
)
def test_calls_that_cannot_work_say_why(digits_run, words, message):
    done = run("evaluate", digits_run, *words)
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_tables_cannot_be_corrupted(tmp_path):
    done = run(
        "train", "--data", "friedman", "--model", "mlp", "--hidden", "4", "--epochs", "1", "--out",
        tmp_path / "run", "--device", "cpu",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    done = run("evaluate", tmp_path / "run", "--corruption", "fog", "--severity", 1)
    assert done.exit_code != 0
    assert "--corruption is for images, but friedman is a table" in str(done.exception)


def test_help_names_every_corruption():
    from pocketbayes.commands.evaluate import evaluate_flags

    assert all(name in evaluate_flags()["corruption"].help for name in NAMES)


def test_the_benchmark_measures_each_row_once(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    monkeypatch.delitem(sys.modules, "corruptions", raising=False)
    x = scenes(12).permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "cifar10_test.npz", x=x, y=np.arange(12, dtype=np.uint8) % 10)
    test = open_dataset("cifar10", "test", tmp_path)
    model = pb.bayesianize_(build_network("mlp", input_shape=(3, 32, 32), hidden=(4,)))
    update_description(model, likelihood="categorical", preprocess=test.preprocess)
    pb.save(model, tmp_path / "a.pocket")
    main = importlib.import_module("corruptions").main

    def rows(*words):
        given = ["--root", tmp_path, "--files", tmp_path / "a.pocket", "--samples", 2, *words]
        monkeypatch.setattr(sys, "argv", ["corruptions.py", *map(str, given)])
        main()
        lines = (tmp_path / "corruptions.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    first = rows("--names", "fog", "--severities", 1, 5)
    said = [(row["corruption"], row["severity"], row["num_examples"]) for row in first]
    assert said == [("none", 0, 12), ("fog", 1, 12), ("fog", 5, 12)]
    assert first[0]["network"] == "mlp"
    assert first[0]["bytes"] == (tmp_path / "a.pocket").stat().st_size
    assert rows("--names", "fog", "--severities", 1, 5) == first
    assert [row["severity"] for row in rows("--names", "fog", "--severities", 1, 2)[3:]] == [2]
    assert len(rows("--names", "fog", "--severities", 1, "--limit", 7)) == 6
