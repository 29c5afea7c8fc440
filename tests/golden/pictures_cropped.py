"""Makes pictures_cropped.json: pictures of pictures.py, resized by their shorter side and cropped.

pip install torchvision pillow. Made with torchvision 0.29.2 and Pillow 13.0.0.

As torchvision evaluates: Resize(side) and CenterCrop(crop) of a picture of Pillow. `default` marks the side that belongs to the crop
if none is named: 256 for 224.
"""

import json
import pathlib

from PIL import Image, ImageOps
from torchvision import transforms

HERE = pathlib.Path(__file__).parent
# The size of the image, and the shorter side.
CASES = [((7, 7), 8), ((14, 14), 16), ((8, 8), 9), ((9, 9), 9), ((6, 10), 11), ((10, 6), 15), ((21, 21), 24), ((5, 4), 12)]


def cases():
    for name in ["rgb.png", "turned.png", "deep.png", "gray.png"]:
        picture = ImageOps.exif_transpose(Image.open(HERE / "pictures" / name))
        if picture.mode.startswith("I"):
            continue
        picture = picture.convert("RGB")
        for crop, side in CASES:
            resized = transforms.Compose([transforms.Resize(side), transforms.CenterCrop(crop)])(picture)
            default = max(crop) * 8 // 7 == side
            yield {"name": name, "side": side, "default": default, "crop": crop, "pixels": resized.tobytes().hex()}


text = ",\n".join(json.dumps(case) for case in cases())
(HERE / "pictures_cropped.json").write_text(f"[\n{text}\n]\n")
