# golden: by name only (it needs timm, and for some files a Python of its own, with TensorFlow 2.15)
"""Makes the folder real: small networks of keras.applications, torchvision and timm, as their files, and their scores.

pip install torch torchvision timm onnx onnxscript keras h5py; KERAS_BACKEND=torch python tests/golden/real_files.py
Python 3.11, for the files that end in .h5: pip install tensorflow-cpu==2.15.1; python tests/golden/real_files.py
Made with torch 2.15.0, torchvision 0.29.2, timm 1.0.31, onnx 1.23.2, onnxscript 0.7.2, keras 3.15.1; tensorflow 2.15.1.

All are built by the packages' own code, with fewer channels and blocks. Statistics of normalizations are those of a batch.
Images are `numbers`, which the test computes too.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from shared.numbers import numbers

HERE = Path(__file__).with_suffix("").parent / "real"
BATCH, SIDE, CLASSES = 2, 32, 5


def images():
    """Blocks of a colour, and noise, from -1.5 to 1.5. Networks of Keras are shown them as pixels from 0 to 255."""
    colours = numbers("colours", (BATCH, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
    return colours + numbers("noise", (BATCH, SIDE, SIDE, 3)) / 2


def torch_networks():
    """The name, the network, and whether the newer exporter writes it."""
    from functools import partial

    from timm.models import byobnet as B
    from torchvision import models as M

    conv, mb3 = M.efficientnet.MBConvConfig, M.mobilenetv3.InvertedResidualConfig
    few = [conv(1, 3, 1, 16, 8, 1), conv(6, 5, 2, 8, 8, 2)]
    yield "efficientnet_of_two_blocks", M.EfficientNet(few, 0.2, num_classes=CLASSES, last_channel=32), True
    yield "mobilenet_v2", M.MobileNetV2(CLASSES, 0.1, [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]]), False
    bneck = partial(mb3, dilation=1, width_mult=1.0)
    rows = [bneck(8, 3, 16, 8, True, "RE", stride=2), bneck(8, 5, 24, 16, True, "HS", stride=2), bneck(16, 5, 32, 16, False, "HS", stride=1)]
    yield "mobilenet_v3", M.MobileNetV3(rows, 32, num_classes=CLASSES), True
    yield "shufflenet_v2", M.ShuffleNetV2([2, 1, 1], [8, 16, 24, 32, 40], CLASSES), False
    block = M.convnext.CNBlockConfig
    yield "convnext", M.ConvNeXt([block(8, 16, 1), block(16, None, 1)], num_classes=CLASSES), True
    yield "regnet_y", M.RegNet(M.regnet.BlockParams([1, 2], [16, 24], [8, 8], [1.0, 1.0], [2, 2], se_ratio=0.25), CLASSES), False
    yield "densenet", M.DenseNet(4, (2, 2), 8, 2, num_classes=CLASSES), True
    bottle = B.ByoBlockCfg(type="bottle", d=2, c=32, s=2, gs=8, br=0.5)
    yield "byobnet", B.ByobNet(B.ByoModelCfg((bottle, bottle), stem_chs=8, act_layer="silu", attn_layer="eca"), CLASSES), False


def settled(model):
    import torch

    torch.manual_seed(44)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    # The exporter would take equal numbers for one tensor.
    for name, values in model.named_parameters():
        if values.ndim == 1:
            low, high = (0.5, 1.5) if name.endswith("weight") else (-0.2, 0.2)
            torch.nn.init.uniform_(values, low, high)
    with torch.no_grad():
        model.train()(torch.randn(16, 3, SIDE, SIDE))
    return model.eval()


def write_torch(scores):
    import torch

    torch.manual_seed(44)
    for name, model, dynamo in torch_networks():
        model, file = settled(model), f"{name}.onnx"
        of_one = torch.randn(1, 3, SIDE, SIDE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if dynamo:
                torch.onnx.export(model, (of_one,), HERE / file, dynamo=True, verbose=False, external_data=False)
                stripped(HERE / file)
            else:
                torch.onnx.export(model, (of_one,), HERE / file, dynamo=False)
        with torch.no_grad():
            x = torch.from_numpy(images()).permute(0, 3, 1, 2)
            scores[file] = model.double()(x.double()).flatten().tolist()


def stripped(file):
    """The newer exporter notes lines and stacks of the sources: ten times the graph."""
    import onnx

    model = onnx.load(file)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
    del model.graph.value_info[:]
    onnx.save(model, file)


def keras_networks(ending):
    from keras.src.applications import convnext, efficientnet, mobilenet_v3, resnet

    of = dict(weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES, classifier_activation=None)
    block = dict(repeats=1, se_ratio=0.25, id_skip=True, kernel_size=3)
    blocks = [dict(block, filters_in=32, filters_out=16, expand_ratio=1, strides=1), dict(block, filters_in=16, filters_out=16, expand_ratio=6, strides=2)]
    yield "efficientnet_of_two_blocks", efficientnet.EfficientNet(0.25, 0.5, 32, 0.2, blocks_args=blocks, **of)

    def blocks_of_v3(x, kernel, activation, se_ratio):
        x = mobilenet_v3._inverted_res_block(x, 1, 8, 3, 2, se_ratio, mobilenet_v3.relu, 0)
        return mobilenet_v3._inverted_res_block(x, 3, 8, kernel, 1, se_ratio, activation, 1)

    yield "mobilenet_v3", mobilenet_v3.MobileNetV3(blocks_of_v3, 32, include_preprocessing=True, alpha=0.25, **of)
    if ending == ".h5":
        return
    yield "convnext", convnext.ConvNeXt([1, 1, 1, 1], [8, 8, 16, 16], name="convnext", **of)
    yield "resnet_v2", resnet.ResNet(lambda x: resnet.stack_residual_blocks_v2(x, 8, 2), True, True, **of)


def write_keras(scores):
    import keras

    ending = ".keras" if keras.__version__ >= "3" else ".h5"
    keras.utils.set_random_seed(44)
    draw = np.random.default_rng(44)
    for name, model in keras_networks(ending):
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                low = dict(gamma=0.5, beta=-0.2, moving_mean=-0.2, moving_variance=0.5)
                high = dict(gamma=1.5, beta=0.2, moving_mean=0.2, moving_variance=1.5)
                kinds = [variable.name.split("/")[-1].split(":")[0] for variable in layer.weights]
                layer.set_weights([draw.uniform(low[k], high[k], w.shape) for k, w in zip(kinds, layer.get_weights())])
        file = f"{name}{ending}"
        model.save(HERE / file)
        scores[file] = np.asarray(model.predict(images() * 85 + 128, verbose=0)).flatten().tolist()


def main():
    HERE.mkdir(exist_ok=True)
    file = HERE / "scores.json"
    scores = json.loads(file.read_text()) if file.exists() else {}
    write_keras(scores)
    if "torch" in sys.modules:
        write_torch(scores)
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps([float(f'{x:.9g}') for x in scores[name]])}" for name in sorted(scores))
    file.write_text("{\n" + rows + "\n}\n")


main()
