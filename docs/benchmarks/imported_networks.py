"""Networks of Keras as files for `towers bench --model`, and the same of torchvision, timed.

usage: imported_networks.py keras DIR
       imported_networks.py torch NAME train|infer BATCH SECONDS [compiled]

Needs keras with a backend, or torch and torchvision. The networks are resnet50, vgg16, densenet121, inceptionv3, and
vgg_cifar: ten 3x3 convolutions of 64 to 512 channels with batch normalization, for images of 32x32. All have ten classes.
"""

import resource
import sys
import time

SIZES = {"inceptionv3": 299, "vgg_cifar": 32}
WIDTHS = [(64, 2), (128, 2), (256, 3), (512, 3)]


def keras_files(folder):
    import keras
    from keras import applications, layers

    built_in = {
        "resnet50": applications.ResNet50,
        "vgg16": applications.VGG16,
        "densenet121": applications.DenseNet121,
        "inceptionv3": applications.InceptionV3,
    }
    vgg = keras.Sequential([keras.Input((32, 32, 3))])
    for width, count in WIDTHS:
        for _ in range(count):
            vgg.add(layers.Conv2D(width, 3, padding="same", use_bias=False))
            vgg.add(layers.BatchNormalization())
            vgg.add(layers.Activation("relu"))
        vgg.add(layers.MaxPooling2D(2))
    vgg.add(layers.GlobalAveragePooling2D())
    vgg.add(layers.Dense(10, activation="softmax"))
    models = {"vgg_cifar": vgg}
    for name, make in built_in.items():
        side = SIZES.get(name, 224)
        models[name] = make(weights=None, classes=10, input_shape=(side, side, 3))
    for name, model in models.items():
        with open(f"{folder}/{name}.json", "w") as file:
            file.write(model.to_json())


def torch_network(name):
    from torch import nn
    from torchvision import models

    if name == "vgg_cifar":
        parts, inputs = [], 3
        for width, count in WIDTHS:
            for _ in range(count):
                parts += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
                inputs = width
            parts.append(nn.MaxPool2d(2))
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
    options = {
        "vgg16": {"dropout": 0.0},
        "inceptionv3": {"aux_logits": False, "init_weights": False, "transform_input": False},
    }
    make = {"inceptionv3": "inception_v3"}.get(name, name)
    return getattr(models, make)(num_classes=10, **options.get(name, {}))


def torch_time(name, mode, batch, seconds, compiled):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(2)
    torch.manual_seed(0)
    network = torch_network(name).to(memory_format=torch.channels_last)
    network.train(mode == "train")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    called = torch.compile(network) if compiled else network
    side = SIZES.get(name, 224)
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))

    def step():
        if mode == "train":
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(called(images), labels).backward()
            optimizer.step()
        else:
            with torch.inference_mode():
                called(images)

    step()
    steps, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds or steps < 2:
        step()
        steps += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name} {mode}, batch {batch}: {steps * batch / taken:.2f} images/s ({memory:.0f} MB)")


if sys.argv[1:2] == ["keras"]:
    keras_files(sys.argv[2])
elif sys.argv[1:2] == ["torch"]:
    name, mode, batch, seconds = sys.argv[2:6]
    torch_time(name, mode, int(batch), float(seconds), "compiled" in sys.argv[6:])
else:
    sys.exit(__doc__)
