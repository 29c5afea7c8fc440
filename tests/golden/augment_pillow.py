"""Makes augment_pillow.json: RandAugment's operations and resized crops of torchvision on Pillow's pictures.

pip install torch torchvision pillow numpy; python tests/golden/augment_pillow.py
Made with torch 2.15.0, torchvision 0.29.2, pillow 13.0.0 and numpy 2.4.6.
"""

import json
import pathlib

import numpy as np
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import _apply_op

rng = np.random.default_rng(5)
# Large enough for a histogram to even out: more than 255 pixels.
SHAPE = (17, 19, 3)
y, x, c = np.indices(SHAPE)
IMAGE = np.clip(40 + 6 * y + 5 * x * (c + 1) / 2 + rng.integers(-25, 25, SHAPE), 0, 230).astype(np.uint8)
OPERATIONS = [
    ("ShearX", 0.27), ("ShearX", -0.09), ("ShearY", 0.15), ("ShearY", -0.3), ("TranslateX", 4.6), ("TranslateX", -2.3),
    ("TranslateY", 3.9), ("TranslateY", -5.1), ("Rotate", 27.0), ("Rotate", -9.0), ("Brightness", 0.63), ("Brightness", -0.27),
    ("Color", 0.81), ("Color", -0.54), ("Contrast", 0.72), ("Contrast", -0.36), ("Sharpness", 0.9), ("Sharpness", -0.45),
    ("Posterize", 4), ("Posterize", 7), ("Solarize", 178.5), ("Solarize", 42.0), ("AutoContrast", 0.0), ("Equalize", 0.0),
]


def picture(channels):
    return Image.fromarray(IMAGE) if channels == 3 else Image.fromarray(IMAGE[:, :, 1])


operations = []
for channels in [1, 3]:
    for name, magnitude in OPERATIONS:
        out = _apply_op(picture(channels), name, magnitude, InterpolationMode.NEAREST, None)
        # As bytes that JSON can hold, two digits each.
        text = np.asarray(out).tobytes().hex()
        operations.append({"name": name, "magnitude": magnitude, "channels": channels, "out": text})

crops = []
for top, left, rows, columns in [(0, 0, 17, 19), (3, 2, 9, 11), (10, 12, 7, 7), (5, 0, 1, 19), (16, 18, 1, 1)]:
    out = F.resized_crop(picture(3), top, left, rows, columns, list(SHAPE[:2]), InterpolationMode.BILINEAR)
    crops.append({"crop": [top, left, rows, columns], "out": np.asarray(out).tobytes().hex()})

golden = {"shape": SHAPE, "image": IMAGE.tobytes().hex(), "operations": operations, "crops": crops}
text = json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('{"crop"', '\n{"crop"')
(pathlib.Path(__file__).parent / "augment_pillow.json").write_text(text + "\n")
