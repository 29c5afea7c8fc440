"""Makes whitening.json: filters that whiten the 2x2 patches of a few images, by PyTorch in f64.

pip install torch numpy; python tests/golden/whitening.py
Made with torch 2.15.0, numpy 2.4.6.

The images hold sums of neighbouring random numbers, so that all eigenvalues differ. The kernel is laid out as
(rows, columns, channels, filters).
"""

import json
import pathlib

import numpy as np
import torch

EPSILON = 2.0**-10

rng = np.random.default_rng(94)
noise = np.round(rng.standard_normal((4, 8, 7, 3)) * 64) / 64
colours = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.0, 0.25, 1.0]])
images = (noise[:, :-2, :-2] + 0.5 * noise[:, 1:-1, :-2] + 0.25 * noise[:, 2:, 2:]) @ colours  # exact in f32
assert (images == images.astype(np.float32)).all()

x = torch.from_numpy(images).permute(0, 3, 1, 2)
patches = torch.nn.functional.unfold(x, (2, 2))  # samples, (channel, row, column), places
patches = patches.permute(0, 2, 1).reshape(-1, 12)
values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
filters = []
for value, vector in sorted(zip(values.tolist(), vectors.T.numpy()), key=lambda pair: -pair[0]):
    vector = vector.reshape(3, 2, 2).transpose(1, 2, 0).ravel()
    sign = np.sign(vector[np.argmax(np.abs(vector))])
    filters.append(sign * vector / np.sqrt(value + EPSILON))
kernel = np.array([*filters, *(-filter for filter in filters)]).T
golden = {"epsilon": EPSILON, "images": images.ravel().tolist(), "kernel": kernel.astype(np.float32).ravel().tolist()}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
