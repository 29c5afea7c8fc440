"""Writes small .npz archives with NumPy's own savez, for the reader of crate `cifar`.

usage: python tests/golden/numpy_npz.py      (needs: pip install numpy)

Byte `(7 * image + 13 * place) % 256` of images of 3x4, with `place` over rows, columns and channels.
"""
import pathlib

import numpy as np

folder = pathlib.Path(__file__).parent / "numpy_npz"
folder.mkdir(exist_ok=True)


def images(count, *shape):
    image, place = np.indices((count, int(np.prod(shape))))
    return ((7 * image + 13 * place) % 256).astype(np.uint8).reshape(count, *shape)


def arrays(*shape, labels="<i8", column=False):
    def numbers(*values):
        array = np.array(values, dtype=labels)
        return array.reshape(-1, 1) if column else array

    return {
        "x_train": images(5, *shape), "y_train": numbers(0, 2, 1, 2, 0),
        "x_test": images(2, *shape), "y_test": numbers(1, 3),
    }


np.savez(folder / "grey.npz", **arrays(3, 4))
np.savez_compressed(folder / "rgb.npz", **arrays(3, 4, 3, labels="|u1", column=True))
validation = {"x_val": images(1, 3, 4, 1), "y_val": np.array([3], dtype=">i2")}
np.savez_compressed(folder / "channel.npz", **arrays(3, 4, 1, labels="<u2"), **validation, classes=["a", "b"])
np.savez(folder / "columns_first.npz", **{**arrays(3, 4), "x_train": np.asfortranarray(images(5, 3, 4))})
np.savez(folder / "floats.npz", **{**arrays(3, 4), "x_test": images(2, 3, 4) / 255})
np.savez(folder / "float_labels.npz", **arrays(3, 4, labels="<f4"))
np.savez(folder / "one_hot.npz", **{**arrays(3, 4), "y_test": np.eye(2, dtype=np.uint8)})
classes = {"y_train": np.eye(4, dtype=np.int64)[[0, 2, 1, 2, 0]], "y_test": np.eye(4, dtype=np.int64)[[1, 3]]}
np.savez(folder / "categorical.npz", **{**arrays(3, 4), **classes})
several = {"y_train": np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=np.uint8)}
np.savez(folder / "multi_hot.npz", **{**arrays(3, 4), **several, "y_test": np.array([[1, 0, 0], [0, 1, 0]])})
np.savez(folder / "twos.npz", **{**arrays(3, 4), **several, "y_test": np.array([[1, 0, 0], [0, 2, 0]])})
np.savez(folder / "no_test_labels.npz", **{key: value for key, value in arrays(3, 4).items() if key != "y_test"})
np.savez(folder / "four_channels.npz", **arrays(3, 4, 4))
np.savez(folder / "pickled.npz", **{**arrays(3, 4), "y_train": np.array([0, None, 1, 2, 0], dtype=object)})


def squares(count, seed):
    """Grey images with any of three bright squares, and the squares of each."""
    labels = np.random.default_rng(seed).integers(0, 2, (count, 3), dtype=np.uint8)
    pixels = np.full((count, 16, 16), 40, dtype=np.uint8)
    for image, row in zip(pixels, labels):
        for square, (y, x) in enumerate([(1, 1), (1, 9), (9, 5)]):
            image[y : y + 6, x : x + 6] += 180 * row[square]
    return pixels, labels


(x_train, y_train), (x_test, y_test) = squares(160, 1), squares(40, 2)
np.savez_compressed(folder / "squares.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
