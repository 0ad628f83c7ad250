"""A photograph for the pipeline: its size at once, its pixels on demand.

Any file that Pillow reads becomes upright 8-bit RGBA, and is written in the format of the output's
name. A missing, broken or unsupported file is a `PhotoError`, whose text is one line.
"""

from __future__ import annotations

import importlib.util
import io
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

if TYPE_CHECKING:
    from collections.abc import Iterator

# EXIF orientations with the picture on its side: width and height are swapped.
_SIDEWAYS = range(5, 9)


class PhotoError(Exception):
    """The file cannot be read or written as a picture; the message is one line."""


@dataclass(frozen=True, slots=True)
class Photo:
    """A picture file with its header read; `width` and `height` are the decoded picture's."""

    path: Path
    width: int
    height: int
    has_alpha: bool
    # The colour profile of the pixels, which the output keeps so that colours do not change.
    profile: bytes | None

    @property
    def megapixels(self) -> float:
        return self.width * self.height / 1e6

    def decode(self, target: np.ndarray) -> None:
        """Fill `target`, (height, width, 4) uint8, with the picture as upright RGBA."""
        with _opened(self.path) as image:
            image.load()
            picture = _rgba(ImageOps.exif_transpose(image))
            if picture.size != (self.width, self.height):
                size = (self.width, self.height)
                picture = picture.resize(size, Image.Resampling.LANCZOS)
            target[...] = np.asarray(picture)

    def encode(self, pixels: np.ndarray, format_name: str) -> bytes:
        """The file of `pixels`, (height, width, 4) uint8, in a format that Pillow writes."""
        picture = Image.fromarray(pixels)
        if not self.has_alpha or format_name == "JPEG":
            picture = picture.convert("RGB")
        file = io.BytesIO()
        try:
            picture.save(file, format_name, icc_profile=self.profile, quality=92)
        except Exception as error:
            raise PhotoError(f"cannot write {format_name}: {_line(error)}") from error
        return file.getvalue()


def side_by_side(photo: Photo, enhanced: bytes, format_name: str) -> bytes:
    """The file of one picture: `photo` at the left, and the picture in `enhanced` at the right."""
    before = np.empty((photo.height, photo.width, 4), np.uint8)
    photo.decode(before)
    with Image.open(io.BytesIO(enhanced)) as image:
        after = np.asarray(image.convert("RGBA"))
    gap = np.full((photo.height, max(1, photo.width // 64), 4), 255, np.uint8)
    return photo.encode(np.hstack([before, gap, after]), format_name)


def open_photo(path: Path, longest_side: int | None = None) -> Photo:
    """Read the header of the picture at `path`; with `longest_side` it is resized to that."""
    with _opened(path) as image:
        if image.format == "TIFF":
            # Pillow turns TIFFs upright while loading, so the size in the header may be wrong.
            image.load()
        width, height = image.size
        if image.getexif().get(ExifTags.Base.Orientation, 1) in _SIDEWAYS:
            width, height = height, width
        bands = "".join(image.getbands())
        has_alpha = "a" in bands.lower().replace("lab", "") or "transparency" in image.info
        # A CMYK or Lab profile does not describe the converted RGB.
        keeps_profile = image.mode in {"RGB", "RGBA", "P", "PA"}
        profile = image.info.get("icc_profile") if keeps_profile else None
    if longest_side is not None:
        scale = longest_side / max(width, height)
        width, height = (max(1, round(side * scale)) for side in (width, height))
    return Photo(path, width, height, has_alpha, profile)


def sample_photo() -> Path:
    """The photograph that matplotlib ships: Grace Hopper's portrait by the US Navy."""
    # Found without an import of matplotlib, which takes a second and may write to stderr.
    spec = importlib.util.find_spec("matplotlib")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "mpl-data" / "sample_data" / "grace_hopper.jpg"
        if file.is_file():
            return file
    raise PhotoError(
        "matplotlib's sample photo is not installed: "
        'pip install "cudasync[demo]", or name a picture with --image FILE'
    )


def format_for(output: Path) -> str:
    """The format that Pillow writes for this file name, for instance "PNG" for "a.png"."""
    name: str | None = Image.registered_extensions().get(output.suffix.lower())
    if name is None or name not in Image.SAVE:
        raise PhotoError(f"{output}: Pillow writes no format {output.suffix!r}: use .png or .jpg")
    return name


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """The picture in a file; any error becomes a PhotoError of one line."""
    try:
        # Pillow maps named files into memory, and version 13.0 then scrambles uncompressed TIFFs
        # that lie on their side. It does not map an open file.
        with path.open("rb") as file, Image.open(file) as image:
            yield image
    except Image.UnidentifiedImageError as error:
        raise PhotoError(f"{path}: Pillow cannot read this as a picture") from error
    except OSError as error:
        raise PhotoError(f"{path}: {error.strerror or _line(error)}") from error
    except Exception as error:
        # Pillow's readers raise many errors of their parsers: SyntaxError, ValueError,
        # struct.error, EOFError, DecompressionBombError, ...
        raise PhotoError(f"{path}: cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _rgba(image: Image.Image) -> Image.Image:
    """Any mode as RGBA; samples of more than 8 bits are scaled down, not cut off."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_eight_bits(np.asarray(image), image.mode))
    try:
        return image.convert("RGBA")
    except ValueError:
        # Some modes (CMYK, YCbCr in old versions) have no direct conversion.
        return image.convert("RGB").convert("RGBA")


def _eight_bits(samples: np.ndarray[Any, Any], mode: str) -> np.ndarray[Any, Any]:
    values = np.nan_to_num(samples.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = values.min(), values.max()
    if mode.startswith("I;16") or (mode == "I" and 255 < high <= 65535 and low >= 0):
        low, high = 0.0, 65535.0
    elif mode == "I" and low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    elif mode == "F" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    # Other ranges have no fixed meaning: the least value becomes black, the greatest white.
    span = high - low if high > low else 1.0
    levels: np.ndarray[Any, Any] = np.rint((values - low) * (255.0 / span)).astype(np.uint8)
    return levels
