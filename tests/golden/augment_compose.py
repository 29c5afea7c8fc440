"""Makes augment_compose.json: torchvision's transforms for lists of augmentations, on Pillow's pictures.

pip install torch torchvision pillow numpy; python tests/golden/augment_compose.py
Made with torch 2.15.0, torchvision 0.29.2, pillow 13.0.0 and numpy 2.4.6.
"""

import json
import pathlib

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment, v2
from torchvision.transforms import functional as F

rng = np.random.default_rng(6)
# Large enough for a histogram to even out, and square: Pillow turns such a picture by 90 degrees in another way.
SIDE = 18
y, x, c = np.indices((SIDE, SIDE, 3))
IMAGE = np.clip(30 + 7 * y * (c + 1) / 2 + 5 * x + rng.integers(-30, 30, (SIDE, SIDE, 3)), 0, 240).astype(np.uint8)
PICTURE = Image.fromarray(IMAGE)
COLORS = Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8))
NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def text(picture):
    """As bytes that JSON can hold, two digits each."""
    return np.asarray(picture).tobytes().hex()


def digest(picture):
    """FNV-1a in 64 bits."""
    value = 0xCBF29CE484222325
    for byte in np.asarray(picture).tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def apply(picture, name, magnitude, interpolation=NEAREST):
    return autoaugment._apply_op(picture, name, magnitude, interpolation, None)


def strengths(transform, bins, *more):
    space = transform._augmentation_space(bins, *more)
    return {name: magnitudes.tolist() if magnitudes.ndim else None for name, (magnitudes, _) in space.items()}


spaces = {
    "rand": strengths(autoaugment.RandAugment(), 31, (SIDE, SIDE)),
    "trivial": strengths(autoaugment.TrivialAugmentWide(), 31),
    "auto": strengths(autoaugment.AutoAugment(), 10, (SIDE, SIDE)),
    "mix": strengths(autoaugment.AugMix(), 10, (SIDE, SIDE)),
}

policies = {}
for policy in autoaugment.AutoAugmentPolicy:
    auto = autoaugment.AutoAugment(policy)
    pairs = []
    for k, pair in enumerate(auto._get_policies(policy)):
        picture, probabilities = PICTURE, []
        for place, (name, probability, magnitude) in enumerate(pair):
            number = 0.0 if magnitude is None else float(spaces["auto"][name][magnitude])
            # Both operations act; the first is negative in odd pairs, the second in even ones.
            if auto._augmentation_space(10, (SIDE, SIDE))[name][1] and (k + place) % 2:
                number = -number
            picture = apply(picture, name, number)
            probabilities.append(probability)
        pairs.append([probabilities, digest(picture)])
    policies[policy.value] = pairs

operations = []
for name, magnitude, interpolation in [
    ("ShearX", 0.99, NEAREST), ("TranslateX", -32.0, NEAREST), ("TranslateY", 17.0, NEAREST), ("Rotate", 90.0, NEAREST), ("Rotate", -90.0, NEAREST),
    ("Rotate", 135.0, NEAREST), ("Sharpness", 0.99, NEAREST), ("Posterize", 2, NEAREST), ("Solarize", 238.0, NEAREST), ("Invert", 0.0, NEAREST),
    ("ShearX", 0.1, BILINEAR), ("ShearY", -0.3, BILINEAR), ("TranslateX", 4.7, BILINEAR), ("TranslateY", -2.0, BILINEAR), ("Rotate", 20.0, BILINEAR),
    ("Rotate", -6.6667, BILINEAR),
]:
    out = text(apply(PICTURE, name, magnitude, interpolation))
    operations.append({"name": name, "magnitude": magnitude, "bilinear": interpolation == BILINEAR, "out": out})

hues = [{"hue": hue, "out": text(F.adjust_hue(COLORS, hue))} for hue in [-0.5, -0.13, 0.0, 0.07, 0.31, 0.5]]

jitters = []
for order, factors in [([2, 0, 3, 1], [1.3, 0.6, 1.7, -0.1]), ([3, 1, 0, 2], [0.7, 1.4, 0.2, 0.25]), ([1, 0, 2, 3], [None, 0.5, None, 0.05])]:
    names = ["brightness_factor", "contrast_factor", "saturation_factor", "hue_factor"]
    out = v2.ColorJitter().transform(PICTURE, {"fn_idx": torch.tensor(order), **dict(zip(names, factors))})
    jitters.append({"order": order, "factors": factors, "out": text(out)})

blurs = []
for channels in [1, 3]:
    picture = PICTURE if channels == 3 else Image.fromarray(IMAGE[:, :, 1])
    for size, sigma in [(3, 0.1), (3, 1.0), (5, 0.7), (9, 2.0)]:
        out = v2.GaussianBlur(size).transform(picture, {"sigma": [sigma, sigma]})
        blurs.append({"channels": channels, "kernel_size": size, "sigma": sigma, "out": text(out)})

perspectives = []
for corners in [[[0, 0], [17, 0], [17, 17], [0, 17]], [[2, 3], [16, 1], [14, 13], [4, 17]], [[4, 0], [13, 4], [17, 15], [1, 13]], [[8, 8], [9, 0], [17, 9], [0, 17]]]:
    start = [[0, 0], [SIDE - 1, 0], [SIDE - 1, SIDE - 1], [0, SIDE - 1]]
    perspectives.append({"corners": corners, "out": text(F.perspective(PICTURE, start, corners, BILINEAR, None))})

# AugMix as torchvision mixes, but with the operations of Pillow, not those on tensors.
mixtures = []
for own, shares, chains in [
    (0.25, [0.5, 0.3, 0.2], [[("Rotate", -6.5), ("Equalize", 0.0)], [("Solarize", 170.0)], [("ShearX", 0.0667), ("Color", 0.2), ("TranslateY", -1.3)]]),
    (0.9, [1.0], [[("Posterize", 3), ("Brightness", -0.1)]]),
]:
    left = [step for chain in chains for step in chain]

    class Fixed(v2.AugMix):
        def _sample_dirichlet(self, params):
            return torch.tensor([[own, 1 - own]] if params.shape[-1] == 2 else [shares])

        def _apply_image_or_video_transform(self, image, transform_id, magnitude, interpolation, fill):
            if self.depth == 0:
                self.chain, self.depth = self.left.pop(0), 9
            for name, number in self.chain:
                image = v2.functional.pil_to_tensor(apply(v2.functional.to_pil_image(image[0]), name, number, BILINEAR))[None]
            self.depth = 0
            return image

    mix = Fixed(mixture_width=len(shares), chain_depth=1)
    mix.left, mix.depth = list(chains), 0
    mixtures.append({"own": own, "shares": shares, "chains": chains, "out": text(mix(PICTURE))})

MEAN, STD = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]
erasures = []
for row, column, rows, columns, values in [(2, 3, 5, 9, [0.0]), (9, 0, 8, 17, [0.5, -1.0, 2.0])]:
    # A standardized image, then the rectangle.
    image = v2.functional.normalize(v2.functional.to_dtype(v2.functional.pil_to_tensor(PICTURE), torch.float32, scale=True), MEAN, STD)
    image = v2.functional.erase(image, row, column, rows, columns, torch.tensor(values)[:, None, None])
    out = [round(float(value), 5) for value in image.permute(1, 2, 0).flatten()[::7]]
    erasures.append({"rectangle": [row, column, rows, columns], "values": values, "out": out})

golden = {
    "side": SIDE, "image": text(PICTURE), "colors": text(COLORS), "mean": MEAN, "std": STD, "spaces": spaces, "policies": policies,
    "operations": operations, "grayscale": text(v2.RandomGrayscale(1.0)(PICTURE)), "hues": hues, "jitters": jitters, "blurs": blurs,
    "perspectives": perspectives, "mixtures": mixtures, "erasures": erasures,
}
path = pathlib.Path(__file__).parent / "augment_compose.json"
path.write_text(json.dumps(golden, separators=(",", ":")).replace('},{"', '},\n{"') + "\n")
