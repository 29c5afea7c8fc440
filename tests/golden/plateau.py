"""The learning rates of Keras' ReduceLROnPlateau for random sequences: writes plateau.json beside this script.

Run it with KERAS_BACKEND=torch and Keras 3.
"""

import json
import pathlib
import random

from keras.callbacks import ReduceLROnPlateau
from keras.optimizers import SGD


class Model:
    def __init__(self):
        self.optimizer = SGD(learning_rate=1.0)


def rates(values, **options):
    """The rate after each epoch."""
    callback = ReduceLROnPlateau(monitor="val_loss", **options)
    callback.set_model(Model())
    callback.on_train_begin()
    seen = []
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {"val_loss": value})
        seen.append(float(callback.model.optimizer.learning_rate))
    return seen


draw = random.Random(2)
cases = []
for case in range(120):
    options = {
        "mode": draw.choice(["min", "max"]),
        "factor": draw.choice([0.5, 0.1, 0.3]),
        "patience": draw.randrange(4),
        "min_delta": draw.choice([0.0, 0.0001, 0.25]),
        "cooldown": draw.choice([0, 0, 1, 3]),
        "min_lr": draw.choice([0.0, 0.0, 0.2, 0.001]),
    }
    trend = draw.choice([-0.125, 0.0, 0.125])
    # Multiples of 1/16 compare without rounding.
    values = [2.0 + trend * epoch + draw.randrange(-8, 9) / 16 for epoch in range(14)]
    cases.append({**options, "values": values, "rates": rates(values, **options)})

lines = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
