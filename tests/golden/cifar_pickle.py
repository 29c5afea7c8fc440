"""Writes small CIFAR batches with Python's and NumPy's own picklers, for the reader of crate `cifar`.

usage: python tests/golden/cifar_pickle.py      (needs: pip install numpy)

Two images a batch, byte `(7 * image + 13 * place) % 256`, labels 3 and 9; one file a protocol, one with a
column-major array, one of CIFAR-100.
"""
import pathlib
import pickle

import numpy as np

folder = pathlib.Path(__file__).parent / "cifar_pickle"
folder.mkdir(exist_ok=True)
image, place = np.indices((2, 3072))
data = ((7 * image + 13 * place) % 256).astype(np.uint8)


def write(name, batch, protocol):
    (folder / f"{name}.pickle").write_bytes(pickle.dumps(batch, protocol))


batch = {b"batch_label": b"testing", b"labels": [3, 9], b"data": data, b"filenames": [b"a.png", b"b.png"]}
for protocol in range(2, 6):
    write(f"protocol_{protocol}", batch, protocol)
    write(f"column_major_{protocol}", {**batch, b"data": np.asfortranarray(data)}, protocol)
write("text_keys", {key.decode(): value for key, value in batch.items()}, 4)
write("cifar100", {b"fine_labels": [3, 99], b"coarse_labels": [1, 19], b"data": data}, 2)
write("floats", {**batch, b"data": data.astype(np.float32)}, 4)
