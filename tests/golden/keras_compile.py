# golden: by name only (it is run twice, with two versions of Keras)
"""Makes keras/compiled.keras and keras/compiled.tf215.h5: a small model that was compiled, with an optimizer of its own.

pip install keras torch h5py; KERAS_BACKEND=torch python tests/golden/keras_compile.py
Python 3.11: pip install tensorflow==2.15; python tests/golden/keras_compile.py
Made with keras 3.15.1 on torch 2.15.0, and with tensorflow 2.15.1.

    compiled.keras     SGD with Nesterov momentum, at a constant rate
    compiled.tf215.h5  Adam, whose rate follows a schedule, with clipped gradients
"""

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras

FOLDER = Path(__file__).parent / "keras"
L = keras.layers
model = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        L.Conv2D(2, 3, activation="relu", name="conv"),
        L.GlobalAveragePooling2D(name="flat"),
        L.Dense(10, activation="softmax", name="head"),
    ],
    name="compiled",
)
optimizers = keras.optimizers
if keras.__version__.startswith("2."):
    rate = optimizers.schedules.ExponentialDecay(0.003, 100, 0.9)
    model.compile(optimizers.Adam(rate, clipnorm=1.0), "categorical_crossentropy")
    model.save(FOLDER / "compiled.tf215.h5", include_optimizer=True)
else:
    model.compile(optimizers.SGD(0.02, momentum=0.8, nesterov=True), "categorical_crossentropy", metrics=["accuracy"])
    model.save(FOLDER / "compiled.keras")
