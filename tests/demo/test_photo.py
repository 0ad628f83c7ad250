"""Any picture that Pillow reads becomes upright 8-bit RGBA. Any other file gives one clear line."""

from __future__ import annotations

import io

import numpy as np
import pytest
from helpers.arrays.images import gradient, save
from PIL import Image

from cudasync.demo.photo import PhotoError, format_for, open_photo, sample_photo


def decoded(path, longest_side=None):
    photo = open_photo(path, longest_side)
    pixels = np.zeros((photo.height, photo.width, 4), np.uint8)
    photo.decode(pixels)
    return photo, pixels


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgba(tmp_path, mode):
    image = Image.fromarray(gradient(13, 7)).convert(mode)
    path = save(image, tmp_path / "picture.tiff")
    photo, pixels = decoded(path)
    assert (photo.width, photo.height) == (13, 7)
    np.testing.assert_array_equal(pixels[..., :3], np.asarray(image.convert("RGB")))
    assert (pixels[..., 3] == 255).all()


def test_a_transparent_palette_colour_is_transparent(tmp_path):
    image = Image.fromarray(gradient(13, 7)).convert("P", palette=Image.Palette.ADAPTIVE)
    corner = image.getpixel((0, 0))
    image.save(tmp_path / "sticker.gif", transparency=corner)
    photo, pixels = decoded(tmp_path / "sticker.gif")
    assert photo.has_alpha
    assert pixels[0, 0, 3] == 0
    assert pixels[3, 9, 3] == 255


def read_back(photo, pixels):
    """The pixels written as PNG, and read again."""
    with Image.open(io.BytesIO(photo.encode(pixels, "PNG"))) as image:
        image.load()
        return image


def test_sixteen_bits_are_scaled_down_and_not_cut_off(tmp_path):
    levels = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    _, pixels = decoded(save(Image.fromarray(levels), tmp_path / "deep.png"))
    np.testing.assert_array_equal(pixels[..., 0].ravel(), np.arange(256))


def test_numbers_with_no_range_of_their_own_go_from_black_to_white(tmp_path):
    values = np.array([[-1.0, 0.0], [0.5, 3.0]], np.float32)
    _, pixels = decoded(save(Image.fromarray(values), tmp_path / "float.tiff"))
    np.testing.assert_array_equal(pixels[..., 0], [[0, 64], [96, 255]])


@pytest.mark.parametrize("suffix", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_picture_stands_upright(tmp_path, suffix, orientation):
    """The dark corner comes out at the top left, wherever the orientation stores it."""
    upright = Image.new("L", (24, 16), 255)
    upright.paste(0, (0, 0, 8, 8))
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    stored = upright if undo is None else upright.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"picture.{suffix}"
    stored.save(path, exif=exif)
    photo, pixels = decoded(path)
    assert (photo.width, photo.height) == (24, 16)
    assert pixels[2, 2, 0] < 60
    assert pixels[2, 20, 0] > 200
    assert pixels[13, 2, 0] > 200


def test_alpha_comes_through_to_the_file(tmp_path):
    colours = gradient(9, 5)
    alpha = np.arange(45, dtype=np.uint8).reshape(5, 9) * 5
    path = save(Image.fromarray(np.dstack([colours, alpha])), tmp_path / "glass.png")
    photo, pixels = decoded(path)
    assert photo.has_alpha
    np.testing.assert_array_equal(pixels[..., 3], alpha)
    np.testing.assert_array_equal(np.asarray(read_back(photo, pixels)), pixels)


def test_a_picture_without_alpha_is_written_without(tmp_path):
    photo, pixels = decoded(save(Image.fromarray(gradient(4, 4)), tmp_path / "plain.png"))
    assert read_back(photo, pixels).mode == "RGB"


def test_a_colour_profile_goes_along(tmp_path):
    path = tmp_path / "wide.png"
    Image.fromarray(gradient(4, 4)).save(path, icc_profile=b"a profile")
    photo, pixels = decoded(path)
    assert read_back(photo, pixels).info["icc_profile"] == b"a profile"


@pytest.mark.parametrize(("side", "size"), [(1, (1, 1)), (8, (8, 4)), (50, (50, 25))])
def test_the_longest_side_is_as_asked(tmp_path, side, size):
    path = save(Image.fromarray(gradient(20, 10)), tmp_path / "wide.png")
    photo, _ = decoded(path, side)
    assert (photo.width, photo.height) == size


def test_the_sample_is_a_real_photograph():
    photo = open_photo(sample_photo())
    assert (photo.width, photo.height) == (512, 600)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "cannot read this as a picture"),
        (b"GIF89a", "picture.png"),
        (b"# not a picture\n" * 50, "cannot read this as a picture"),
    ],
)
def test_what_is_no_picture_is_said_in_one_line(tmp_path, content, says):
    path = tmp_path / "picture.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PhotoError, match=says) as caught:
        open_photo(path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_picture(tmp_path):
    with pytest.raises(PhotoError, match="directory"):
        open_photo(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "bmp", "gif", "webp"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_picture_cut_short_is_said_in_one_line(tmp_path, suffix, share):
    noise = np.random.default_rng(1).integers(0, 256, (40, 40, 3), np.uint8)
    path = save(Image.fromarray(noise), tmp_path / f"picture.{suffix}")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(PhotoError) as caught:
        decoded(path)
    assert "\n" not in str(caught.value)


def test_the_output_names_its_format(tmp_path):
    assert format_for(tmp_path / "a.png") == "PNG"
    assert format_for(tmp_path / "a.JPG") == "JPEG"
    for name in ("a", "a.txt", "a.psd"):
        with pytest.raises(PhotoError, match="no format"):
            format_for(tmp_path / name)
