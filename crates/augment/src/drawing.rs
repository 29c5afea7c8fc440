//! From the options to the draws of one sample.

use crate::draws::Cutout;
use crate::uniform::between;
use crate::{Draws, ImageDataGenerator};
use towers_philox::{Philox, domain};

impl Draws {
    /// The draws of `sample` in `epoch` for images of `shape` (height, width, channels).
    ///
    /// Every option has its own stream of random numbers, so switching one on leaves the draws of the others
    /// unchanged. The numbers are not NumPy's.
    pub(crate) fn new(
        options: &ImageDataGenerator,
        shape @ [h, w, _]: [usize; 3],
        seed: u64,
        epoch: u64,
        sample: u32,
    ) -> Self {
        let stream = |purpose| Philox::new(seed, purpose, [epoch, u64::from(sample)]);
        let coin = |on: bool, purpose| on && stream(purpose).below(2) == 1;
        let around = |range: f64, purpose| match range {
            0.0 => 0.0,
            _ => range * (2.0 * stream(purpose).unit_f64() - 1.0),
        };
        let horizontal_flip = if options.alternating_flip {
            // One coin for all epochs says how a sample begins.
            let mut rng = Philox::new(seed, const { domain("alternating_flip") }, [0, u64::from(sample)]);
            (u64::from(rng.below(2)) + epoch) % 2 == 1
        } else {
            coin(options.horizontal_flip, const { domain("horizontal_flip") })
        };
        let padding = options.random_crop as u32;
        let side = options.cutout;
        let composed = options.compose.as_ref();
        Draws {
            composed: composed.map_or_else(Vec::new, |compose| compose.draws(shape, seed, epoch, sample)),
            operations: options.rand_augment.map_or_else(Default::default, |policy| {
                policy.draw(&mut stream(const { domain("rand_augment") }), [h, w])
            }),
            rotation: around(options.rotation_range, const { domain("rotation") }),
            height_shift: options.height_shift_range.draw(&mut stream(const { domain("height_shift") }), h),
            width_shift: options.width_shift_range.draw(&mut stream(const { domain("width_shift") }), w),
            shear: around(options.shear_range, const { domain("shear") }),
            zoom: if options.zoom_range.is_off() {
                [1.0, 1.0]
            } else {
                let mut rng = stream(const { domain("zoom") });
                [(); 2].map(|()| between(options.zoom_range.bounds(), &mut rng))
            },
            channel_shift: around(options.channel_shift_range, const { domain("channel_shift") }),
            horizontal_flip,
            vertical_flip: coin(options.vertical_flip, const { domain("vertical_flip") }),
            brightness: options
                .brightness_range
                .map(|bounds| between(bounds, &mut stream(const { domain("brightness") }))),
            crop: if padding == 0 {
                [0, 0]
            } else {
                let mut rng = stream(const { domain("random_crop") });
                [(); 2].map(|()| rng.below(2 * padding + 1) as i32 - padding as i32)
            },
            resized_crop: options
                .random_resized_crop
                .map(|crop| crop.draw(&mut stream(const { domain("resized_crop") }), [h, w])),
            cutout: (side > 0).then(|| {
                let mut rng = stream(const { domain("cutout") });
                let (row, column) = (rng.below(h as u32) as usize, rng.below(w as u32) as usize);
                Cutout { row, column, side }
            }),
            effect: None,
            erased: None,
        }
    }
}
