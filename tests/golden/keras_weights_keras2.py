# golden: by name only (it needs a Python 3.11 of its own, with Keras 2.3.1)
"""Makes keras/tiny.keras2.h5 and keras/parallel.keras2.h5: the weights of keras/tiny.h5, saved by the real Keras 2.3.1.

Python 3.11: pip install keras==2.3.1 keras_applications keras_preprocessing==1.1.2 Theano-PyMC==1.1.2 \
    numpy==1.23.5 "scipy<1.12" "h5py<3.12" pyyaml "setuptools<66"; python tests/golden/keras_weights_keras2.py
Needs keras/tiny.h5 of keras_weights.py. Theano is only there for Keras to start.

    tiny.keras2.h5      model.save: weights and configuration
    parallel.keras2.h5  model.save_weights of a model inside of a model, as multi_gpu_model makes it, the second of a session
"""

import collections
import collections.abc
import os
import pathlib

os.environ["THEANO_FLAGS"] = "cxx=,blas__ldflags=,device=cpu,floatX=float32"
os.environ["KERAS_BACKEND"] = "theano"
collections.Iterable = collections.abc.Iterable
import theano.sandbox.rng_mrg

theano.sandbox.rng_mrg.MRG_RandomStreams = theano.sandbox.rng_mrg.MRG_RandomStream
import h5py
import keras
import numpy as np
from keras import layers as L

assert keras.__version__ == "2.3.1"
keras.backend.set_image_data_format("channels_last")
FOLDER = pathlib.Path(__file__).parent / "keras"


def conv_module(x, filters, kernel, strides=1, padding="same"):
    x = L.Conv2D(filters, kernel, strides=strides, padding=padding)(x)
    return L.Activation("relu")(L.BatchNormalization()(x))


def tiny():
    """As in keras_weights.py."""
    inputs = L.Input((8, 8, 3))
    x = conv_module(inputs, 4, 3)
    b = conv_module(x, 5, 3)
    x = L.Concatenate()([conv_module(x, 4, 1), b])
    x = L.Concatenate()([conv_module(x, 6, 3, 2, "valid"), L.MaxPooling2D(3, strides=2)(x)])
    x = L.Dropout(0.5)(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(3)(x))


def load(model, file):
    """Names differ by what was made before; the order in which layers were made is the same."""
    made = sorted(model.layers, key=lambda layer: int(layer.name.rsplit("_", 1)[1]))
    for kind, names in [(L.Conv2D, "conv2d"), (L.BatchNormalization, "batch_normalization"), (L.Dense, "dense")]:
        for k, layer in enumerate(layer for layer in made if type(layer) is kind):
            name = f"{names}_{k}" if k else names
            group = file["model_weights"][name]
            layer.set_weights([group[weight][()] for weight in group.attrs["weight_names"]])
    return model


with h5py.File(FOLDER / "tiny.h5", "r") as file:
    load(tiny(), file).save(str(FOLDER / "tiny.keras2.h5"), include_optimizer=False)
    inner = load(tiny(), file)
inputs = L.Input((8, 8, 3))
keras.Model(inputs, inner(inputs)).save_weights(str(FOLDER / "parallel.keras2.h5"))
