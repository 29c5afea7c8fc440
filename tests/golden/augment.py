"""Makes augment.json: what Keras' ImageDataGenerator gives for fixed draws.

pip install keras_preprocessing==1.1.2 scipy numpy six; python tests/golden/augment.py
Made with scipy 1.17.1 and numpy 2.4.6.
"""

import json
import pathlib

import numpy as np
from keras_preprocessing.image import ImageDataGenerator

rng = np.random.default_rng(7)
SHAPE = (6, 5, 3)
IMAGES = rng.integers(0, 256, (4, *SHAPE), dtype=np.uint8)
# Rows first, as in Keras: tx moves along the height.
SHIFTS = [(0, 0), (0, 1), (-1, 0), (2, -3), (0.3, 0), (0, -0.3), (-1.4, 2.75), (3.2, -3.2), (-6, 5), (8.5, -11.25), (-13, 8)]
MODES = ["constant", "nearest", "reflect", "wrap"]


def flat(array):
    return [round(float(value), 5) for value in np.asarray(array, dtype="float64").ravel()]


def case(name, generator, x, tx, ty, horizontal=False, vertical=False, **more):
    """One sample through apply_transform and standardize, as the iterators call them."""
    parameters = {"tx": tx, "ty": ty, "flip_horizontal": horizontal, "flip_vertical": vertical}
    y = generator.apply_transform(x.astype("float32"), parameters)
    y = generator.standardize(y.copy())
    return {
        "name": name, "fill_mode": generator.fill_mode, "cval": generator.cval, "height_shift": tx, "width_shift": ty,
        "horizontal_flip": horizontal, "vertical_flip": vertical, "out": flat(y), **more,
    }


geometry = []
for mode in MODES:
    generator = ImageDataGenerator(fill_mode=mode, cval=-7.5)
    for tx, ty in SHIFTS:
        geometry.append(case("shift", generator, IMAGES[0], tx, ty))
    for horizontal, vertical in [(True, False), (False, True), (True, True)]:
        geometry.append(case("flip", generator, IMAGES[0], 1.25, -2.6, horizontal, vertical))

# The whole flow of the two tutorials, and of featurewise_center after fit.
flows = []
as_float = IMAGES.astype("float")
mean = np.mean(as_float, axis=0)
minigooglenet = ImageDataGenerator(width_shift_range=0.1, height_shift_range=0.1, horizontal_flip=True)
keras_cnn = ImageDataGenerator(width_shift_range=0.1, height_shift_range=0.1, horizontal_flip=True)
centred = ImageDataGenerator(featurewise_center=True, rescale=1 / 127.5, fill_mode="constant", cval=255.0)
centred.fit(IMAGES.astype("float32"))
for sample, (tx, ty, flip) in enumerate([(0.6, -0.5, True), (-0.25, 0.1, False), (0, 0, True), (-0.6, 0.5, False)]):
    flows.append(case("mean first", minigooglenet, as_float[sample] - mean, tx, ty, flip, sample=sample))
    flows.append(case("divided by 255", keras_cnn, IMAGES[sample].astype("float32") / 255, tx, ty, flip, sample=sample))
    flows.append(case("featurewise_center", centred, IMAGES[sample], tx, ty, flip, sample=sample))

golden = {
    "shape": SHAPE, "images": IMAGES.ravel().tolist(), "mean": flat(mean), "channel_mean": flat(centred.mean),
    "geometry": geometry, "flows": flows,
}
text = json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"')
(pathlib.Path(__file__).parent / "augment.json").write_text(text + "\n")
