//! The numbers of pictures, and the order of their axes.

/// A value of a picture on the scale of 0 to 255: `u8` or `f32`.
///
/// The operations of [`RandAugment`](crate::RandAugment) work on bytes: floats are rounded for them.
pub trait Pixel: Copy + Into<f32> + sealed::Sealed {
    /// The nearest byte.
    fn to_byte(self) -> u8;
}

impl Pixel for u8 {
    fn to_byte(self) -> u8 {
        self
    }
}

impl Pixel for f32 {
    fn to_byte(self) -> u8 {
        // `as` clamps to 0..=255.
        self.round() as u8
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for f32 {}
}

/// The order of a batch's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Images, rows, columns, channels: TensorFlow's.
    #[default]
    Nhwc,
    /// Images, channels, rows, columns: PyTorch's, and that of candle and burn.
    Nchw,
}

impl Layout {
    /// The axes of an image of this height, width and channels.
    pub(crate) fn dims(self, [h, w, c]: [usize; 3]) -> [usize; 3] {
        match self {
            Layout::Nhwc => [h, w, c],
            Layout::Nchw => [c, h, w],
        }
    }

    /// Brings an image (HWC of `shape`) into this order. `spare` is memory.
    pub(crate) fn arrange(self, [h, w, c]: [usize; 3], image: &mut [f32], spare: &mut Vec<f32>) {
        if self == Layout::Nhwc || c == 1 {
            return;
        }
        spare.clear();
        spare.extend_from_slice(image);
        for (channel, plane) in image.chunks_exact_mut(h * w).enumerate() {
            let values = spare.iter().skip(channel).step_by(c);
            plane.iter_mut().zip(values).for_each(|(to, &from)| *to = from);
        }
    }
}
