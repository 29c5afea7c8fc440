"""Writes small pictures of every format, and pictures.json: the pixels that Pillow reads from them.

usage: python tests/golden/pictures.py      (needs: pip install pillow numpy)
Made with pillow 13.0.0 and numpy 2.4.6.

pictures_refused has files that Pillow reads, and this project refuses by name.
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


# A code of 8 bits for every pair of a run of zeros and the size of the number after it.
ZIGZAG = sorted(range(64), key=lambda k: (k // 8 + k % 8, (k // 8 if (k // 8 + k % 8) % 2 else k % 8)))
AC = [0x00, 0xF0] + [run << 4 | size for run in range(16) for size in range(1, 11)]
COSINES = np.array([[np.cos((2 * x + 1) * u * np.pi / 16) * (0.5 if u else 0.125 ** 0.5) for x in range(8)] for u in range(8)])

def jpeg(planes, sampling, ids, jfif=False, adobe=None):
    """A baseline JPEG of whole planes [H, W], each sampled as the factors (horizontal, vertical) say."""
    height, width = planes[0].shape
    most = [max(factors[k] for factors in sampling) for k in (0, 1)]
    mcus = [-(-width // (8 * most[0])), -(-height // (8 * most[1]))]

    def segment(marker, body):
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    out = b"\xff\xd8"
    if jfif:
        out += segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")
    if adobe is not None:
        out += segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, adobe))
    out += segment(0xDB, b"\0" + bytes([2] * 64))
    parts = b"".join(bytes([i, h << 4 | v, 0]) for i, (h, v) in zip(ids, sampling))
    out += segment(0xC0, struct.pack(">BHHB", 8, height, width, len(planes)) + parts)
    out += segment(0xC4, b"\x00" + bytes([0, 0, 0, 12] + [0] * 12) + bytes(range(12)))
    out += segment(0xC4, b"\x10" + bytes([0] * 7 + [len(AC)] + [0] * 8) + bytes(AC))
    out += segment(0xDA, bytes([len(planes)]) + b"".join(bytes([i, 0]) for i in ids) + b"\0\x3f\0")
    bits = []

    def put(value, count):
        bits.append(format(value, f"0{count}b") if count else "")

    def number(value):
        size = int(abs(value)).bit_length()
        return size, value if value >= 0 else value + (1 << size) - 1

    blocks = []
    for plane, (h, v) in zip(planes, sampling):
        # Padded by its edge, then each pixel of the component is a mean.
        full = np.pad(plane.astype(float), ((0, mcus[1] * 8 * most[1] - height), (0, mcus[0] * 8 * most[0] - width)), "edge")
        sy, sx = most[1] // v, most[0] // h
        blocks.append(full.reshape(full.shape[0] // sy, sy, full.shape[1] // sx, sx).mean((1, 3)) - 128)
    before = [0] * len(planes)
    for my in range(mcus[1]):
        for mx in range(mcus[0]):
            for k, (h, v) in enumerate(sampling):
                for y in range(v):
                    for x in range(h):
                        row, column = (my * v + y) * 8, (mx * h + x) * 8
                        block = blocks[k][row:row + 8, column:column + 8]
                        values = np.rint(COSINES @ block @ COSINES.T / 2).astype(int).ravel()[ZIGZAG]
                        size, rest = number(int(values[0]) - before[k])
                        before[k] = int(values[0])
                        put(size, 4)
                        put(rest, size)
                        run = 0
                        for value in values[1:]:
                            if value == 0:
                                run += 1
                                continue
                            while run > 15:
                                put(AC.index(0xF0), 8)
                                run -= 16
                            size, rest = number(int(value))
                            put(AC.index(run << 4 | size), 8)
                            put(rest, size)
                            run = 0
                        if run:
                            put(0, 8)
    stream = "".join(bits)
    stream += "1" * (-len(stream) % 8)
    data = bytes(int(stream[k:k + 8], 2) for k in range(0, len(stream), 8)).replace(b"\xff", b"\xff\0")
    return out + data + b"\xff\xd9"


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
YCBCR = np.moveaxis(np.asarray(RGB.convert("YCbCr")), 2, 0)
WHOLE = [(1, 1)] * 3
FOUR = [*YCBCR, PIXELS[:, :, 3]]
(folder / "jfif_adobe.jpg").write_bytes(jpeg(YCBCR, WHOLE, [1, 2, 3], jfif=True, adobe=0))
(folder / "adobe_rgb.jpg").write_bytes(jpeg(np.moveaxis(PIXELS[:, :, :3], 2, 0), WHOLE, [1, 2, 3], adobe=0))
(folder / "adobe_unknown.jpg").write_bytes(jpeg(YCBCR, WHOLE, [1, 2, 3], adobe=7))
(folder / "four_adobe.jpg").write_bytes(jpeg(FOUR, [(1, 1)] * 4, [1, 2, 3, 4], adobe=1))
(folder / "thin_colours.jpg").write_bytes(jpeg(YCBCR, [(4, 1), (2, 1), (1, 1)], [1, 2, 3], jfif=True))
refused = folder.parent / "pictures_refused"
refused.mkdir(exist_ok=True)
(refused / "fine_colours.jpg").write_bytes(jpeg(YCBCR, [(1, 1), (2, 1), (2, 1)], [1, 2, 3], jfif=True))
(refused / "one_fine_colour.jpg").write_bytes(jpeg(YCBCR, [(2, 1), (1, 1), (1, 2)], [1, 2, 3]))
(refused / "called_rgb.jpg").write_bytes(jpeg(YCBCR, WHOLE, list(b"RGB"), jfif=True))

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
