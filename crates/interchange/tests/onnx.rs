//! What the writer wrote, decoded again: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has the numbers of the fields.

use std::collections::HashSet;
use std::path::Path;
use towers_checkpoint::Tensors;
use towers_interchange::onnx::OnnxNetwork;
use towers_interchange::{Error, Pixels, Source, onnx, pytorch};
use towers_layers::{
    AveragePooling2D, ChannelShuffle, ChannelSlice, Conv2D, Cropping2D, Dense, Dropout, Flatten, Graph,
    Initializer, Layer, LocalResponseNormalization, Lower, MaxPooling2D, Mode, Network, Padding, ParamSpec,
    Role, Step, UpSampling2D, ZeroPadding2D,
};
use towers_models::Model;
use towers_program::{Activation, Noise, Pad, Shape, TensorId, ops};

/// A field of a message: its number, and its number or its bytes.
type Field<'a> = (u64, u64, &'a [u8]);

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number goes on");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    unreachable!("the loop has no end")
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (number, len) = match tag & 7 {
            0 => (varint(&mut bytes), 0),
            2 => (0, varint(&mut bytes) as usize),
            5 => (0, 4),
            kind => panic!("a field of kind {kind}"),
        };
        let (own, rest) = bytes.split_at(len);
        fields.push((tag >> 3, number, own));
        bytes = rest;
    }
    fields
}

fn all(message: &[u8], field: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|f| f.0 == field).map(|f| f.2).collect()
}

fn numbers(message: &[u8], field: u64) -> Vec<u64> {
    fields(message).into_iter().filter(|f| f.0 == field).map(|f| f.1).collect()
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(all(message, field)[0].to_vec()).unwrap()
}

/// Parameters that count up, so that each has another value.
fn tensors(model: &Model) -> Tensors {
    let mut tensors = Tensors::new();
    for step in model.steps() {
        for spec in step.params {
            let values = (0..spec.shape.iter().product()).map(|k: usize| k as f32).collect();
            tensors.insert(format!("{}/{}", step.name, spec.name), spec.shape, values).unwrap();
        }
    }
    tensors
}

fn source<'a>(
    model: &'a Model,
    name: &'a str,
    tensors: &'a Tensors,
    classes: &'a [String],
    pixels: Pixels,
) -> Source<'a> {
    Source::of(model, tensors).name(name).pixels(pixels).classes(classes).dataset("pets")
}

fn classes(n: usize) -> Vec<String> {
    (0..n).map(|k| k.to_string()).collect()
}

#[test]
fn graphs_have_the_right_nodes() {
    let (plain, scaled) = (vec![1.0; 3], vec![1.0 / 255.0; 3]);
    for (name, scale, shift, expected) in [
        (
            "small_cnn",
            scaled.clone(),
            vec![0.0; 3],
            "Mul 1 Conv 3 BatchNormalization 3 Relu 3 MaxPool 3 Transpose 1 Flatten 1 Gemm 1",
        ),
        (
            "keras_cnn",
            scaled.clone(),
            vec![0.0; 3],
            "Mul 1 Conv 4 Relu 5 MaxPool 2 Transpose 1 Flatten 1 Gemm 2",
        ),
        (
            "airbench94",
            scaled.clone(),
            vec![-2.0; 3],
            "Mul 16 Add 8 Conv 7 Div 7 Erf 7 MaxPool 4 BatchNormalization 6 Flatten 1 Gemm 1",
        ),
        (
            "minigooglenet",
            plain,
            vec![-1.0; 3072],
            "Add 1 Conv 19 BatchNormalization 19 Relu 19 Concat 10 MaxPool 2 AveragePool 1 Flatten 1 Gemm 1",
        ),
        (
            "resnet18",
            scaled,
            vec![-2.0; 3],
            "Mul 1 Add 9 Conv 20 BatchNormalization 20 Relu 17 GlobalAveragePool 1 Flatten 1 Gemm 1",
        ),
    ] {
        let model = towers_models::by_name(name, 10).unwrap().unwrap();
        let (tensors, classes) = (tensors(&model), classes(10));
        let bytes = onnx::write(&source(&model, name, &tensors, &classes, Pixels { scale, shift })).unwrap();
        let opset = all(&bytes, 8)[0];
        assert_eq!((numbers(&bytes, 1), numbers(opset, 2)), (vec![8], vec![17]));
        let graph = all(&bytes, 7)[0];
        assert_eq!((text(graph, 2), text(all(graph, 11)[0], 1)), (name.to_owned(), "images".to_owned()));
        assert_eq!(text(all(graph, 12)[0], 1), "logits");
        // Every value is computed or given before it is read, under a unique name.
        let mut known = HashSet::from(["images".to_owned()]);
        assert!(all(graph, 5).iter().all(|tensor| known.insert(text(tensor, 8))), "{name}");
        let mut ops: Vec<(String, usize)> = Vec::new();
        for node in all(graph, 1) {
            for operand in all(node, 1) {
                let operand = String::from_utf8(operand.to_vec()).unwrap();
                assert!(known.contains(&operand), "{name}: {operand}");
            }
            assert!(known.insert(text(node, 2)), "{name}: {}", text(node, 2));
            match ops.iter_mut().find(|(op, _)| *op == text(node, 4)) {
                Some((_, count)) => *count += 1,
                None => ops.push((text(node, 4), 1)),
            }
        }
        assert!(known.contains("logits"));
        let mut told: Vec<String> = ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        let mut expected: Vec<String> =
            expected.split(' ').collect::<Vec<_>>().chunks(2).map(|pair| pair.join(" ")).collect();
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "{name}");
    }
}

#[test]
fn tensors_lie_as_in_pytorch() {
    let model = towers_models::small_cnn(10).unwrap();
    let (tensors, classes) = (tensors(&model), classes(10));
    let pixels = Pixels { scale: vec![1.0; 3], shift: (0..3072).map(|k| k as f32).collect() };
    let source = source(&model, "small_cnn", &tensors, &classes, pixels);
    let state = pytorch::state_dict(&source).unwrap();
    let kernel = state.get("conv2d_1.weight").unwrap();
    assert_eq!(kernel.shape(), [32, 16, 3, 3]);
    // w[k, c, y, x] was w[y, x, c, k].
    let (k, c, y, x) = (5, 7, 1, 2);
    let place = |[a, b, c, d]: [usize; 4], [_, nb, nc, nd]: [usize; 4]| ((a * nb + b) * nc + c) * nd + d;
    let was = place([y, x, c, k], [3, 3, 16, 32]) as f32;
    assert_eq!(kernel.data()[place([k, c, y, x], [32, 16, 3, 3])], was);
    let dense = state.get("dense.weight").unwrap();
    assert_eq!((dense.shape(), dense.data()[1]), (&[10, 1024][..], 10.0));
    let shift = state.get("pixel_shift").unwrap();
    assert_eq!((shift.shape(), shift.data()[1], shift.data()[1024]), (&[3, 32, 32][..], 3.0, 1.0));
    let graph = onnx::write(&source).unwrap();
    let graph = all(&graph, 7)[0];
    let tensor = all(graph, 5).into_iter().find(|tensor| text(tensor, 8) == "conv2d_1.weight").unwrap();
    assert_eq!(numbers(tensor, 1), [32, 16, 3, 3]);
    let bytes: Vec<u8> = kernel.data().iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(all(tensor, 9)[0], bytes);
    let module = pytorch::module(&source, "net.safetensors").unwrap();
    for line in [
        "        self.register_buffer(\"pixel_shift\", torch.zeros(3, 32, 32))\n",
        "        self.conv2d_1 = nn.Conv2d(16, 32, (3, 3), padding=(1, 1))\n",
        "        self.batch_normalization = nn.BatchNorm2d(16, eps=0.001, momentum=0.1)\n",
        "        batch_normalization = F.relu(self.batch_normalization(conv2d))\n",
        "        flatten = max_pooling2d_2.permute(0, 2, 3, 1).flatten(1)\n",
        "        return dense\n",
    ] {
        assert!(module.contains(line), "{line}\n{module}");
    }
}

/// Logits of a picture, by a network with these tensors; without them its first weights, which are returned.
fn predicted(model: &Model, tensors: Option<&Tensors>) -> (Vec<f32>, Tensors) {
    let device = towers_tensor_cpu::device(1);
    let mut network: Network = model.build(&device, 1, Mode::Inference).unwrap();
    network.init(3).unwrap();
    for slot in network.arena().slots().to_vec() {
        if let Some(tensors) = tensors {
            let tensor = tensors.get(&slot.name).unwrap();
            network.arena_mut().load(&device, &slot, tensor.data()).unwrap();
        }
    }
    let own = towers_interchange::tensors(&network).unwrap();
    let images: Vec<f32> = (0..network.sample_len()).map(|k| (k * 37 % 101) as f32 / 101.0 - 0.5).collect();
    network.set_input(&images, &[0]).unwrap();
    network.predict().unwrap();
    let logits = network.logits();
    (logits.data.to_vec(&device, logits.layout.offset, logits.layout.shape.len()).unwrap(), own)
}

#[test]
fn graphs_come_back_with_the_same_logits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    let classes = classes(10);
    for name in towers_models::NAMES {
        let model = towers_models::by_name(name, 10).unwrap().unwrap();
        let (expected, tensors) = predicted(&model, None);
        let pixels = Pixels { scale: vec![0.5; 3], shift: (0..3072).map(|k| k as f32).collect() };
        std::fs::write(
            &file,
            onnx::write(&source(&model, name, &tensors, &classes, pixels.clone())).unwrap(),
        )
        .unwrap();
        let read = OnnxNetwork::read(&file).unwrap();
        let network = read.network();
        assert_eq!((network.classes, network.image), (Some(10), Some([32, 32])), "{name}");
        assert_eq!(
            (read.pixels(), read.named(10).unwrap().unwrap().classes),
            (Some(pixels), classes.clone())
        );
        let back = network.architecture.build(&network.name, [32, 32, 3], 10).unwrap();
        let momenta = |model: &Model| model.steps().iter().filter_map(Step::momentum).collect::<Vec<_>>();
        assert_eq!(momenta(&back), momenta(&model), "{name}");
        let tensors = read.assign(&back.steps()).unwrap();
        assert_eq!(predicted(&back, Some(&tensors)).0, expected, "{name}");
    }
    // A graph without nodes for the pixels takes them as they are, if it has been exported.
    let model = towers_models::small_cnn(10).unwrap();
    let (tensors, pixels) = (tensors(&model), Pixels::unchanged(3));
    std::fs::write(&file, onnx::write(&source(&model, "a", &tensors, &classes, pixels.clone())).unwrap())
        .unwrap();
    assert_eq!(OnnxNetwork::read(&file).unwrap().pixels(), Some(pixels));
}

#[test]
fn hostile_graphs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    let model = towers_models::small_cnn(10).unwrap();
    let (tensors, classes) = (tensors(&model), classes(10));
    let pixels = Pixels { scale: vec![0.5; 3], shift: vec![0.0; 3] };
    let whole = onnx::write(&source(&model, "small_cnn", &tensors, &classes, pixels)).unwrap();
    let read = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let read = OnnxNetwork::read(&file).map_err(|error| error.to_string())?;
        let Some(network) = Some(read.network()).filter(|network| network.architecture.layers.len() < 99)
        else {
            return Err(String::new());
        };
        let model = network.architecture.build("net", [32, 32, 3], 10).map_err(|error| error.to_string())?;
        read.assign(&model.steps()).map_err(|error| error.to_string())
    };
    assert!(read(&whole).is_ok());
    assert!(read(b"").unwrap_err().ends_with("there is no graph in it"));
    assert!(read(b"\xff\xff").unwrap_err().contains("it is no ONNX file"));
    // Nodes without their operands, whose fields have another number.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/torch_models");
    let of_torch = std::fs::read(golden.join("normalized_script.onnx")).unwrap();
    let operands = all(all(&of_torch, 7)[0], 1).into_iter().flat_map(|node| all(node, 1));
    for operand in operands.collect::<HashSet<_>>() {
        let field = [&[0x0a, operand.len() as u8], operand].concat();
        let mut bytes = of_torch.clone();
        for at in 0..bytes.len() - field.len() {
            if bytes[at..].starts_with(&field) {
                bytes[at] = 0x7a;
            }
        }
        assert!(read(&bytes).is_err());
    }
    let (mut word, mut refused) = (1_u64, 0);
    for part in 0..600 {
        let whole = if part < 300 { &whole } else { &of_torch };
        let mut bytes = whole.clone();
        let part = part % 300;
        bytes.truncate(if part < 30 { whole.len() * part / 30 } else { whole.len() });
        for _ in 0..4 {
            // Knuth's generator; most of the structure is at the beginning.
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if let Some(byte) = bytes.get_mut((word >> 33) as usize % 2500) {
                *byte = (word >> 8) as u8;
            }
        }
        refused += usize::from(read(&bytes).is_err());
    }
    assert!(refused > 200, "{refused}");
}

/// `x` times the logistic function of `x`.
#[test]
fn silu_is_a_sigmoid_and_a_product() {
    let mut graph = Graph::new("silu", [32, 32, 3]);
    let x = graph.add(Activation::Silu, graph.input()).unwrap();
    let (model, nothing) = (Model::new(graph, x), Tensors::new());
    let pixels = Pixels::unchanged(3);
    let bytes = onnx::write(&source(&model, "silu", &nothing, &classes(3), pixels)).unwrap();
    let nodes = all(all(&bytes, 7)[0], 1).into_iter().map(|node| text(node, 4));
    assert!(nodes.collect::<Vec<_>>().windows(2).any(|pair| pair == ["Sigmoid", "Mul"]));
}

/// SiLU has a node of a sigmoid, which is no layer.
#[test]
fn activations_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    let written = |model: &Model, tensors: &Tensors| {
        let pixels = Pixels::unchanged(3);
        let classes = classes(3);
        let source = source(model, "net", tensors, &classes, pixels);
        std::fs::write(&file, onnx::write(&source).unwrap()).unwrap();
        OnnxNetwork::read(&file)
    };
    let mut graph = Graph::new("activations", [8, 8, 3]);
    let mut x = graph.input();
    for activation in Activation::ALL {
        x = graph.add(activation, x).unwrap();
    }
    let x = graph.add(Flatten, x).unwrap();
    let x = graph.add(Dense::new(3), x).unwrap();
    let model = Model::new(graph, x);
    let (expected, tensors) = predicted(&model, None);
    let read = written(&model, &tensors).unwrap();
    let back = read.network().architecture.build("net", [8, 8, 3], 3).unwrap();
    let tensors = read.assign(&back.steps()).unwrap();
    assert_eq!(predicted(&back, Some(&tensors)).0, expected);

    let mut graph = Graph::new("ends", [8, 8, 3]);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let x = graph.add(Dense::new(3), x).unwrap();
    let model = Model::new(graph, x).multi_label();
    let (expected, tensors) = predicted(&model, None);
    let read = written(&model, &tensors).unwrap();
    let mut architecture = read.network().architecture.clone();
    let back = architecture.build("net", [8, 8, 3], 3).unwrap();
    assert!(back.is_multi_label());
    assert_eq!(predicted(&back, Some(&read.assign(&back.steps()).unwrap())).0, expected);
    // A new head has no sigmoids.
    assert!(architecture.take_sigmoid());
    assert!(!architecture.build("net", [8, 8, 3], 5).unwrap().is_multi_label());
}

/// What counts of a padding is an op of its own there.
#[test]
fn windows_and_sides_come_back() {
    let pad = |top, bottom, left, right| Pad { top, bottom, left, right };
    let mut graph = Graph::new("sides", [11, 9, 3]);
    let mut x = graph.add(Conv2D::new(6, 3), graph.input()).unwrap();
    x = graph.add(ZeroPadding2D::of(pad(1, 0, 2, 1)), x).unwrap();
    x = graph.add(MaxPooling2D::new(3).strides(2).ceil_mode(true), x).unwrap();
    x = graph.add(UpSampling2D::of([2, 3]), x).unwrap();
    x = graph.add(LocalResponseNormalization::new(3).alpha(0.5), x).unwrap();
    x = graph.add(Cropping2D::of(pad(0, 0, 2, 0)), x).unwrap();
    let average = AveragePooling2D::new(3).strides(2).ceil_mode(true);
    x = graph.add(average.padding(Padding::Pixels(1)).count_include_pad(true), x).unwrap();
    x = graph.add(average.padding(Padding::Pixels(1)), x).unwrap();
    x = graph.add(UpSampling2D::new(2).bilinear(true), x).unwrap();
    x = graph.add(Dropout::new(0.5).noise(Noise::Sample), x).unwrap();
    x = graph.add(Flatten, x).unwrap();
    x = graph.add(Dense::new(3), x).unwrap();
    let model = Model::new(graph, x);
    let (expected, tensors) = predicted(&model, None);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    let pixels = Pixels::unchanged(3);
    let classes = classes(3);
    let source = source(&model, "net", &tensors, &classes, pixels);
    std::fs::write(&file, onnx::write(&source).unwrap()).unwrap();
    let read = OnnxNetwork::read(&file).unwrap();
    let back = read.network().architecture.build("net", [11, 9, 3], 3).unwrap();
    let tensors = read.assign(&back.steps()).unwrap();
    assert_eq!(predicted(&back, Some(&tensors)).0, expected);
    let module = pytorch::module(&source, "net.safetensors").unwrap();
    for line in [
        "zero_padding2d = F.pad(conv2d, (2, 1, 1, 0))\n",
        "up_sampling2d = F.interpolate(max_pooling2d, scale_factor=(2, 3), mode=\"nearest\")\n",
        "k=1)\n",
        "cropping2d = F.pad(local_response_normalization, (-2, 0, 0, 0))\n",
        "average_pooling2d = F.avg_pool2d(cropping2d, (3, 3), stride=(2, 2), padding=(1, 1), ceil_mode=True)\n",
        "average_pooling2d, (3, 3), stride=(2, 2), padding=(1, 1), ceil_mode=True, count_include_pad=False)\n",
        "F.dropout(up_sampling2d_1.new_ones((len(up_sampling2d_1), 1, 1, 1)), 0.5, self.training)\n",
    ] {
        assert!(module.contains(line), "{line}\n{module}");
    }
}

/// Layers may be called as the graph's input and output, as other layers' weights, and as helpers of the
/// writer.
#[test]
fn groups_dilation_shuffles_and_slices_come_back() {
    let mut graph = Graph::new("grouped", [8, 8, 3]);
    let x = graph.add(Conv2D::new(12, 3).groups(3).same(), graph.input()).unwrap();
    let x = graph.add(ChannelShuffle::new(2), x).unwrap();
    let x = graph.add(Conv2D::new(8, 3).groups(2).dilation_rate([2, 1]).same().strides(2), x).unwrap();
    let x = graph.add(ChannelSlice::new(1, 6), x).unwrap();
    let x =
        graph.add(Conv2D::new(6, 3).groups(2).dilation_rate([1, 2]).padding(Padding::Pixels(2)), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let x = graph.add(Dense::new(3), x).unwrap();
    let model = Model::new(graph, x);
    let (expected, tensors) = predicted(&model, None);
    let (folder, pixels) = (tempfile::tempdir().unwrap(), Pixels::unchanged(3));
    let file = folder.path().join("net.onnx");
    let classes = classes(3);
    let source = source(&model, "net", &tensors, &classes, pixels);
    let bytes = onnx::write(&source).unwrap();
    let nodes: Vec<_> = all(all(&bytes, 7)[0], 1).into_iter().map(|node| text(node, 4)).collect();
    let shuffle = ["Conv", "Reshape", "Transpose", "Reshape", "Conv", "Slice", "Conv"];
    assert_eq!(nodes[..7], shuffle);
    std::fs::write(&file, bytes).unwrap();
    let read = OnnxNetwork::read(&file).unwrap();
    let back = read.network().architecture.build("net", [8, 8, 3], 3).unwrap();
    let tensors = read.assign(&back.steps()).unwrap();
    assert_eq!(predicted(&back, Some(&tensors)).0, expected);
}

#[test]
fn layers_of_any_name_make_sound_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.onnx");
    let mut graph = Graph::new("names", [8, 8, 3]);
    let mut x = graph.input();
    let names = [
        "images",
        "logits",
        "x",
        "x_linear",
        "x_sqrt2",
        "x_twice",
        "x_sigmoid",
        "pixel_scale",
        "dense.weight",
        "flatten_order",
        "pixel_scale_applied",
        "images_1",
        "flatten",
    ];
    for name in names {
        x = match name {
            "flatten" => graph.add_named(name, Flatten, x).unwrap(),
            "images_1" => graph.add_named(name, MaxPooling2D::new(2), x).unwrap(),
            "x" => graph.add_named(name, Activation::Gelu, x).unwrap(),
            name => graph.add_named(name, Activation::Silu, x).unwrap(),
        };
    }
    let x = graph.add(Dense::new(3), x).unwrap();
    let model = Model::new(graph, x);
    let (expected, tensors) = predicted(&model, None);
    let (pixels, classes) = (Pixels { scale: vec![0.5; 3], shift: vec![1.0; 3] }, classes(3));
    let source = source(&model, "names", &tensors, &classes, pixels.clone());
    let bytes = onnx::write(&source).unwrap();
    let graph = all(&bytes, 7)[0];
    let mut known = HashSet::from(["images".to_owned()]);
    let tensors = all(graph, 5).into_iter().map(|tensor| text(tensor, 8));
    for name in tensors.chain(all(graph, 1).into_iter().map(|node| text(node, 2))) {
        assert!(known.insert(name.clone()), "{name} is there twice");
    }
    std::fs::write(&file, &bytes).unwrap();
    let read = OnnxNetwork::read(&file).unwrap();
    assert_eq!(read.pixels(), Some(pixels));
    let back = read.network().architecture.build("net", [8, 8, 3], 3).unwrap();
    assert_eq!(predicted(&back, Some(&read.assign(&back.steps()).unwrap())).0, expected);

    let nine: Vec<String> = classes[..2].to_vec();
    let told = onnx::write(&source.classes(&nine)).unwrap_err().to_string();
    assert!(told.ends_with("for ONNX: it gives 3 scores, but there are 2 classes"), "{told}");
}

/// A layer of somebody's own whose op reads another number than its parameter.
#[derive(Debug)]
struct Secret;

impl Layer for Secret {
    fn params(&self, _inputs: &[Shape]) -> Vec<ParamSpec> {
        vec![ParamSpec { name: "scale", shape: vec![1], init: Initializer::Ones, role: Role::Trainable }]
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> towers_program::Result<TensorId> {
        to.push(ops::Scale { factor: 2.0 }, inputs)
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let mut graph = Graph::new("secret", [32, 32, 3]);
    let x = graph.add(Secret, graph.input()).unwrap();
    let model = Model::new(graph, x);
    let (there, classes) = (tensors(&model), classes(1));
    let pixels = || Pixels::unchanged(3);
    let secret = source(&model, "secret", &there, &classes, pixels());
    let told = onnx::write(&secret).unwrap_err().to_string();
    assert_eq!(
        told,
        "the layer `secret` can't be written for ONNX: it is not a single op on its input and its parameters"
    );
    let told = pytorch::module(&secret, "net.safetensors").unwrap_err().to_string();
    assert_eq!(
        told,
        "the layer `secret` can't be written for PyTorch: it is not a single op on its input and its parameters"
    );
    let nothing = Tensors::new();
    let missing = source(&model, "secret", &nothing, &classes, pixels());
    assert!(matches!(onnx::write(&missing), Err(Error::Tensor { name, .. }) if name == "secret/scale"));
    // One side of the padding is wider: PyTorch's layers have no word for that, so it is done before them.
    let mut graph = Graph::new("uneven", [32, 32, 3]);
    let x = graph.add(MaxPooling2D::new(3).strides(2).padding(Padding::Same), graph.input()).unwrap();
    let model = Model::new(graph, x);
    let uneven = source(&model, "uneven", &nothing, &classes, pixels());
    let module = pytorch::module(&uneven, "net.safetensors").unwrap();
    assert!(
        module.contains("F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=float(\"-inf\")), (3, 3), stride=(2, 2))")
    );
}
