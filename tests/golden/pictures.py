"""Writes small pictures of every format, and pictures.json: the pixels that Pillow reads from them.

usage: python tests/golden/pictures.py      (needs: pip install pillow numpy)
Made with pillow 13.0.0 and numpy 2.4.6.

`Image.open(path)`, `ImageOps.exif_transpose` and `convert("RGB")`, as Keras' `load_img` and torchvision's
`ImageFolder` do after the turning. `scaled` has pictures of `resize(size, Image.BILINEAR)`.
"""

import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

folder = pathlib.Path(__file__).parent / "pictures"
folder.mkdir(exist_ok=True)
HEIGHT, WIDTH = 9, 12
rng = np.random.default_rng(3)
y, x, c = np.indices((HEIGHT, WIDTH, 4))
PIXELS = np.clip(20 * y + 13 * x + 30 * c + rng.integers(-20, 20, y.shape), 0, 255).astype(np.uint8)
RGBA = Image.fromarray(PIXELS)
RGB = RGBA.convert("RGB")
SECOND = Image.fromarray(255 - PIXELS[:, :, :3])


def deep(name, kind, channels):
    """A PNG of 16 bits, which Pillow can't write."""
    values = rng.integers(0, 1 << 16, (HEIGHT, WIDTH * channels)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)

    def chunk(tag, data):
        return struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))

    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 16, kind, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def exif(orientation):
    made = Image.Exif()
    made[0x0112] = orientation
    return made


RGB.save(folder / "rgb.png")
RGBA.save(folder / "alpha.png")
RGB.convert("L").save(folder / "gray.png")
RGB.convert("1").save(folder / "bits.png")
RGB.quantize(7).save(folder / "palette.png", transparency=2)
deep("deep.png", 2, 3)
deep("deep_alpha.png", 6, 4)
deep("deep_gray_alpha.png", 4, 2)
RGB.save(folder / "turned.png", exif=exif(6))
RGB.save(folder / "rgb.bmp")
RGB.quantize(7).save(folder / "palette.bmp")
RGB.quantize(7).save(folder / "palette.gif")
RGB.quantize(7).save(folder / "transparent.gif", transparency=2)
RGB.quantize(7).save(folder / "animation.gif", save_all=True, append_images=[SECOND.quantize(7)])
RGB.save(folder / "lossless.webp", lossless=True)
RGBA.save(folder / "alpha.webp", lossless=True, exact=True)
RGB.save(folder / "turned.webp", lossless=True, exif=exif(3))
RGB.save(folder / "animation.webp", lossless=True, save_all=True, append_images=[SECOND])
RGB.save(folder / "lossy.webp", quality=80)
RGB.save(folder / "photo.jpg", quality=90)
RGB.save(folder / "turned.jpg", quality=90, exif=exif(8))

pictures = []
for path in sorted(folder.iterdir()):
    picture = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    # As bytes that JSON can hold, two digits each.
    pictures.append({"name": path.name, "size": [picture.height, picture.width], "pixels": picture.tobytes().hex()})

scaled = []
for height, width in [(5, 7), (4, 12), (9, 30), (20, 5), (20, 25), (1, 1)]:
    pixels = RGB.resize((width, height), Image.BILINEAR).tobytes().hex()
    scaled.append({"name": "rgb.png", "size": [height, width], "pixels": pixels})

text = json.dumps({"pictures": pictures, "scaled": scaled}, indent=0)
(folder.parent / "pictures.json").write_text(text + "\n")
