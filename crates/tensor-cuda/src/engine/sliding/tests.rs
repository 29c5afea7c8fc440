#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use super::super::compared;
use super::super::product::BLOCKS;
use super::*;
use crate::layer::Pass;
use towers_program::Precision;

const PADS: [[usize; 4]; 3] = [[1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 2]];

fn convolution(x: Shape, outputs: usize, [top, bottom, left, right]: [usize; 4]) -> (Conv2d, Shape) {
    let pad = Pad { top, bottom, left, right };
    let conv = Conv2d { pad, ..Conv2d::new(x.c, outputs, [3, 3]) };
    (conv, conv.output(x).unwrap())
}

/// Asserts that the gradient equals the general kernels' result, except for rounding.
fn agrees(cuda: &Cuda, sliding: &Sliding, conv: &Conv2d) {
    let run = |places| sliding.run(cuda, "test", places);
    compared::agrees(cuda, conv, Pass::Filter, sliding.x, &format!("{sliding:?}"), run);
}

/// All numbers of warps, with the last outputs present and not, with one part and several.
#[test]
fn gradients_of_weights_are_those_of_products_of_patches() {
    for precision in [Precision::Bf16, Precision::Fp16] {
        let cuda = Cuda::emulated(precision).unwrap();
        let mut warps = Vec::new();
        for (inputs, outputs, pads) in
            [(8, 8, PADS[0]), (24, 40, PADS[1]), (40, 48, PADS[2]), (56, 64, PADS[0]), (72, 24, PADS[2])]
        {
            let x = Shape::new(7, 9, 7, inputs);
            let (conv, y) = convolution(x, outputs, pads);
            let several = Sliding::cut(&conv, x, y).unwrap();
            assert!(several.parts[0] > 1, "{several:?}");
            warps.push(several.warps);
            agrees(&cuda, &several, &conv);
            agrees(&cuda, &Sliding { parts: [1, usize::pow(2, 20)], ..several }, &conv);
        }
        warps.sort_unstable();
        assert_eq!(warps, [1, 2, 3, 3, 4]);
    }
}

/// Layers of MiniGoogLeNet: large enough for a GPU, and not in more parts than that takes.
#[test]
fn layers_of_minigooglenet() {
    let layers = [(32, 96, 32), (32, 64, 48), (15, 160, 48), (15, 160, 64), (15, 160, 80), (15, 160, 96)];
    for (size, inputs, outputs) in layers.into_iter().chain([(7, 240, 160), (7, 336, 160)]) {
        for n in [1024, 64] {
            let x = Shape::new(n, size, size, inputs);
            let (conv, y) = convolution(x, outputs, PADS[0]);
            let sliding = Sliding::cut(&conv, x, y).unwrap();
            let blocks = sliding.tiles[0] * sliding.tiles[1] * sliding.parts[0];
            assert!((96..=BLOCKS).contains(&blocks), "{blocks} blocks: {sliding:?}");
        }
    }
}

#[test]
fn others_are_left_to_others() {
    let x = Shape::new(2, 8, 8, 16);
    let (conv, y) = convolution(x, 24, PADS[0]);
    assert!(Sliding::cut(&conv, x, y).is_some());
    let wide = Conv2d { kernel: [3, 5], ..conv };
    let far = Conv2d { stride: [2, 1], ..conv };
    let padded = Conv2d { pad: Pad { left: 3, ..conv.pad }, ..conv };
    for other in [wide, far, padded] {
        assert_eq!(Sliding::cut(&other, x, other.output(x).unwrap()), None, "{other:?}");
    }
    for (inputs, outputs) in [(12, 24), (16, 20)] {
        let x = x.with_c(inputs);
        let (conv, y) = convolution(x, outputs, PADS[0]);
        assert_eq!(Sliding::cut(&conv, x, y), None, "{inputs} to {outputs}");
    }
    let lines_too_long = Shape::new(1, 4, 4000, 16);
    let (conv, y) = convolution(lines_too_long, 24, PADS[0]);
    assert_eq!(Sliding::cut(&conv, lines_too_long, y), None);
    let cuda = Cuda::emulated(Precision::Fp32).unwrap();
    let (conv, y) = convolution(x, 24, PADS[0]);
    assert_eq!(Sliding::new(&cuda, &conv, x, y), None);
}
