"""Which models of keras.applications are read, and how far their class scores are from Keras' own.

usage: import_keras.py BINARY OUT.jsonl [PATTERN]

BINARY is `target/release/examples/onnx_logits` (cargo build --release -p towers-interchange --example onnx_logits). PATTERN keeps the
names that match it. A row is appended for each model; models with a row are left out, so that it can go on.
`import_keras.py table OUT.jsonl` prints a table in Markdown, and fails if one is not right.

With Keras 3 (KERAS_BACKEND=torch or another) files are `.keras`; with tf.keras of TensorFlow 2.15 they are `.h5`.

Keras 3 computes in float64, since what deep networks compute in float32 is off by as much as what is looked for.
All models have random weights. Each normalization has other statistics, so that a wrong one is seen. The last softmax is
replaced by its logits in what Keras computes.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from import_onnx import is_right

os.environ.setdefault("JAX_ENABLE_X64", "1")
try:
    import keras

    LIBRARY, ENDING = f"keras {keras.__version__}", ".keras"
    if keras.__version__.startswith("2."):
        ENDING = ".h5"
except ImportError:
    keras = None

BATCH = 2
SEED = 44


def names():
    from keras import applications

    classes = [name for name in dir(applications) if name[0].isupper() and callable(getattr(applications, name))]
    return sorted(classes)


def settled(model, images):
    """Other numbers where random weights begin with zeros and ones, and statistics of a batch, without which deep networks are chaotic."""
    draw = np.random.default_rng(SEED)
    for layer in model.layers:
        kind = type(layer).__name__
        if kind == "BatchNormalization":
            values = layer.get_weights()
            own = [variable.name.split("/")[-1].split(":")[0] for variable in layer.weights]
            drawn = {"gamma": (0.7, 1.3), "beta": (-0.1, 0.1), "moving_mean": (-0.1, 0.1), "moving_variance": (0.5, 1.5)}
            layer.set_weights([draw.uniform(*drawn[name], value.shape) for name, value in zip(own, values)])
        elif kind in ("LayerNormalization", "LayerScale"):
            layer.set_weights([draw.uniform(0.5, 1.5, value.shape) for value in layer.get_weights()])
    for layer in model.layers:
        if type(layer).__name__ == "BatchNormalization":
            layer.momentum = 0.0
    model(images, training=True)
    # Scores of the size of 1, whatever the depth.
    last = [layer for layer in model.layers if layer.get_weights()][-1]
    kernel, *rest = last.get_weights()
    last.set_weights([kernel, *[draw.uniform(-0.5, 0.5, value.shape) for value in rest]])


def logits(model, images):
    last = model.layers[-1]
    if type(last).__name__ in ("Activation", "Softmax"):
        model = keras.Model(model.input, last.input)
    else:
        last.activation = keras.activations.linear
        model = keras.Model(model.input, last(last.input))
    return model.predict(images, verbose=0).astype(np.float64)


def precision(name):
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


def compared(binary, name, folder):
    model = getattr(keras.applications, name)(weights=None)
    side = model.input_shape[1] or 224
    draw = np.random.default_rng(SEED)
    # Pixels, if the model normalizes them by itself.
    kinds = [type(layer).__name__ for layer in model.layers[:4]]
    images = draw.standard_normal((BATCH, side, side, 3)).astype(np.float32)
    if "Rescaling" in kinds or "Normalization" in kinds or "PreStem" in kinds:
        images = draw.uniform(0, 255, images.shape).astype(np.float32)
    settled(model, images)
    file = Path(folder) / f"net{ENDING}"
    model.save(file)
    rounding = None
    if ENDING == ".h5":
        theirs = logits(model, images)
    else:
        in_float32 = logits(model, images)
        precision("float64")
        twin = getattr(keras.applications, name)(weights=None)
        twin.set_weights(model.get_weights())
        theirs = logits(twin, images.astype(np.float64))
        precision("float32")
        # How far Keras' own float32 is from its float64.
        rounding = float(abs(in_float32 - theirs).max() / abs(theirs).max())
    begun = time.monotonic()
    run = subprocess.run([binary, file, str(side), str(side)], input=images.tobytes(), capture_output=True)
    seconds = time.monotonic() - begun
    told = run.stderr.decode().splitlines()
    if run.returncode:
        error = next((line for line in reversed(told) if line.startswith("error")), told[-1] if told else "?")
        return {"error": re.sub(r"^error: \S+net\.\w+: ", "", error)[:300]}
    ours = np.frombuffer(run.stdout, np.float32).reshape(BATCH, -1).astype(np.float64)
    if ours.shape != theirs.shape:
        return {"error": f"{ours.shape} scores instead of {theirs.shape}"}
    difference = float(abs(ours - theirs).max() / abs(theirs).max())
    # Scores that are equal for both images would hide a mistake.
    spread = float(abs(theirs[0] - theirs[1]).max() / abs(theirs).max())
    phases = {line.split()[0]: float(line.split()[1]) for line in told if len(line.split()) == 2}
    return {"difference": difference, "rounding": rounding, "spread": spread, "phases": phases, "seconds": round(seconds, 2)}


def table(file):
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    print("| file | model | largest difference | first thing missing |\n| --- | --- | --- | --- |")
    for row in sorted(rows, key=lambda row: row["name"]):
        right = is_right(row)
        difference = f"{row['difference']:.1e}" if "difference" in row else "-"
        print(f"| {row['library']} | {row['name']} | {difference} | {'' if right else row.get('error', 'differs')} |")
    right = sum(map(is_right, rows))
    print(f"\n{right} of {len(rows)} within 1e-4 of the largest score, or twice as far from float64 as Keras' float32")
    sys.exit(right < len(rows))


def main():
    if sys.argv[1] == "table":
        return table(sys.argv[2])
    binary, out = sys.argv[1], Path(sys.argv[2])
    pattern = sys.argv[3] if len(sys.argv) > 3 else "."
    done = set()
    if out.exists():
        done = {json.loads(line)["name"] for line in out.read_text().splitlines()}
    for name in names():
        if name in done or not re.search(pattern, name):
            continue
        row = {"library": LIBRARY, "name": name}
        try:
            with tempfile.TemporaryDirectory() as folder:
                row |= compared(binary, name, folder)
        except Exception as error:
            row["error"] = f"not made: {type(error).__name__}: {error}"[:300]
        keras.backend.clear_session()
        print(json.dumps(row), flush=True)
        with out.open("a") as rows:
            rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
