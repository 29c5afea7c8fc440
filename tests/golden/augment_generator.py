"""Makes augment_generator.json: every parameter of Keras' ImageDataGenerator but plain shifts and flips (see augment.py), for
fixed draws, and what `fit` measures.

pip install keras_preprocessing==1.1.2 scipy numpy six pillow; python tests/golden/augment_generator.py
Made with scipy 1.17.1, numpy 2.4.6 and pillow 13.0.0.
"""

import json
import pathlib
import warnings

import numpy as np
from keras_preprocessing.image import ImageDataGenerator

warnings.simplefilter("ignore")  # options that imply others, and scipy's old name of a module
rng = np.random.default_rng(11)
SHAPE = (6, 5, 3)
IMAGES = rng.integers(0, 256, (150, *SHAPE), dtype=np.uint8)
MODES = ["constant", "nearest", "reflect", "wrap"]
GEOMETRY = [
    {"theta": 15.3},
    {"theta": -40.0, "flip_horizontal": True},
    {"shear": 20.0},
    {"zx": 0.8, "zy": 1.3},
    {"zx": 1.7, "zy": 0.55, "flip_vertical": True},
    {"theta": 123.0, "tx": 1.3, "ty": -2.1, "shear": -12.0, "zx": 0.9, "zy": 1.15, "flip_horizontal": True, "flip_vertical": True},
    {"theta": -7.0, "tx": -0.4, "ty": 0.3, "zx": 1.05, "zy": 0.95},
]


def flat(array, digits=4):
    return [round(float(value), digits) for value in np.asarray(array, dtype="float64").ravel()]


def case(generator, parameters, sample=0, x=None, **more):
    """One sample through apply_transform and standardize, as the iterators call them."""
    x = (IMAGES[sample] if x is None else x).astype("float32")
    y = generator.standardize(generator.apply_transform(x, parameters).copy())
    return {**more, "sample": sample, **parameters, "out": flat(y)}


geometry = []
for mode in MODES:
    for order in [0, 1]:
        generator = ImageDataGenerator(fill_mode=mode, cval=-7.5, interpolation_order=order)
        for parameters in GEOMETRY:
            geometry.append(case(generator, parameters, fill_mode=mode, interpolation_order=order))
        # Fractional shifts between nearest pixels: the separable way has them too.
        if order == 0:
            shift = {"tx": -1.3, "ty": 2.6, "flip_horizontal": True}
            geometry.append(case(generator, shift, fill_mode=mode, interpolation_order=order))

plain = ImageDataGenerator()
photometric = []
for intensity in [35.5, -90.0]:
    photometric.append(case(plain, {"channel_shift_intensity": intensity, "flip_vertical": True}))
for brightness in [0.0, 0.4, 1.0, 1.7]:
    photometric.append(case(plain, {"brightness": brightness, "theta": 20.0}))
photometric.append(case(plain, {"channel_shift_intensity": -20.0, "brightness": 0.9, "flip_horizontal": True}, sample=3))

# Each standardization as its options, after `fit` where that counts. In float64, where Keras' own rounding is no matter.
fitted = []
ALL = IMAGES.astype("float64")
DRAW = {"theta": 9.0, "ty": 0.7, "flip_horizontal": True}
for options in [
    {"samplewise_center": True},
    {"samplewise_std_normalization": True},
    {"samplewise_std_normalization": True, "rescale": 1 / 255},
    {"featurewise_center": True},
    {"featurewise_std_normalization": True},
    {"featurewise_std_normalization": True, "rescale": 1 / 255},
    {"featurewise_std_normalization": True, "samplewise_center": True},
    {"zca_whitening": True, "rescale": 1 / 255},
    {"zca_whitening": True, "zca_epsilon": 0.1, "rescale": 1 / 255, "featurewise_std_normalization": True},
]:
    generator = ImageDataGenerator(dtype="float64", **options)
    generator.fit(ALL)
    measured = {
        "mean": None if generator.mean is None else flat(generator.mean, 7),
        "std": None if generator.std is None else flat(generator.std, 7),
    }
    for parameters in [{}, DRAW]:
        fitted.append(case(generator, parameters, sample=2, options=options, **measured))

function = ImageDataGenerator(preprocessing_function=lambda x: x[..., ::-1] * 0.5 + 3.0, rescale=0.25)
functions = [case(function, {"theta": 12.0}), case(function, {})]

golden = {
    "shape": SHAPE, "images": IMAGES.ravel().tolist(), "cval": -7.5,
    "geometry": geometry, "photometric": photometric, "fitted": fitted, "functions": functions,
}
text = json.dumps(golden, separators=(",", ":")).replace('{"fill_mode"', '\n{"fill_mode"').replace('{"sample"', '\n{"sample"')
(pathlib.Path(__file__).parent / "augment_generator.json").write_text(text.replace('{"options"', '\n{"options"') + "\n")
