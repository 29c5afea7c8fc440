//! Random operations in an order of the caller's choice: torchvision's `Compose` and `RandomApply`.

use crate::{Draws, Error, ImageDataGenerator, Operation, Pipeline, RandAugment, RandomResizedCrop, text};
use std::fmt;
use std::sync::Arc;
use towers_philox::{Philox, domain};

/// Random operations one after the other, each always or with a probability, as in torchvision's `v2.Compose`
/// and `v2.RandomApply`.
///
/// An operation is anything that is a [`Transform`]: the random options of an [`ImageDataGenerator`], in its
/// fixed order; torchvision's transforms, such as [`ColorJitter`](crate::ColorJitter) and [`RandAugment`]; a fixed
/// [`Operation`] or [`Flip`]; another `Compose`; and types of your own. Those of torchvision have a text, so a list of them
/// can be [parsed](#impl-FromStr-for-Compose) and saved.
///
/// The draws are a pure function of (seed, epoch, sample), as all others. Those of a step depend on its place
/// in the list too, but neither on its probability nor on the other steps. In evaluation no step does
/// anything.
///
/// ```
/// use towers_augment::{Compose, Flip, ImageDataGenerator, Operation, RandomResizedCrop};
///
/// let compose = Compose::new()
///     .then(RandomResizedCrop { scale: [0.5, 1.0], ..RandomResizedCrop::default() })
///     .with_probability(0.5, Flip::Horizontal)
///     .with_probability(0.3, ImageDataGenerator::new().rotation_range(15.0))
///     .with_probability(0.1, Operation::Color(0.0)); // grey
/// // Standardization, cutout and mixup are options of the generator, which come after these steps.
/// let generator = ImageDataGenerator::new().compose(compose).rescale(1.0 / 255.0).cutout(8);
/// let pipeline = generator.build([32, 32, 3])?;
/// println!("sample 41 in epoch 3: {}", pipeline.draw(1, 3, 41));
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compose {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    transform: Arc<dyn Transform>,
    probability: f64,
}

impl PartialEq for Step {
    /// Operations are equal if they are clones of one, or have the same text.
    fn eq(&self, other: &Self) -> bool {
        let same = || self.transform.text().is_some_and(|text| other.transform.text() == Some(text));
        self.probability == other.probability && (Arc::ptr_eq(&self.transform, &other.transform) || same())
    }
}

impl Compose {
    /// No operations yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation that every sample passes.
    pub fn then(self, transform: impl Transform + 'static) -> Self {
        self.with_probability(1.0, transform)
    }

    /// Adds an operation that a sample passes with this probability.
    pub fn with_probability(mut self, probability: f64, transform: impl Transform + 'static) -> Self {
        self.steps.push(Step { transform: Arc::new(transform), probability });
        self
    }

    /// The operations with their probabilities.
    pub(crate) fn of(steps: Vec<(f64, Arc<dyn Transform>)>) -> Self {
        let step = |(probability, transform)| Step { transform, probability };
        Compose { steps: steps.into_iter().map(step).collect() }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = (f64, &dyn Transform)> {
        self.steps.iter().map(|step| (step.probability, &*step.transform))
    }

    /// A pipeline of these operations alone, for images of `shape` (height, width, channels).
    ///
    /// # Errors
    /// [`Error::Option`] for a value that makes no sense, a probability outside 0 to 1, and a step that
    /// standardizes or mixes; [`Error::EmptyImage`] for a shape without pixels.
    pub fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        ImageDataGenerator::new().compose(self.clone()).build(shape)
    }

    /// The pipelines that apply the draws of the steps.
    pub(crate) fn pipelines(&self, shape: [usize; 3]) -> Result<Vec<Pipeline>, Error> {
        let build = |Step { transform, probability }: &Step| {
            if !(0.0..=1.0).contains(probability) {
                return Err(Error::option("probability", probability, "from 0 to 1"));
            }
            let pipeline = transform.build(shape)?;
            let options = pipeline.options();
            let accepted = "made of random steps: set this option of the generator that has the `Compose`";
            for (option, on) in [
                ("a standardization", options.evaluation() != ImageDataGenerator::new()),
                ("mixup or cutmix", options.mixes()),
                ("a validation split", options.validation_split != 0.0),
            ] {
                if on {
                    return Err(Error::option("compose", format!("a list with {option}"), accepted));
                }
            }
            Ok(pipeline)
        };
        self.steps.iter().map(build).collect()
    }

    /// The draws of each step; those of a step that is left out change nothing.
    pub(crate) fn draws(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Vec<Draws> {
        // Not the caller's seed: a list in a list must not toss its coins again.
        let [low, high] = towers_philox::key(seed, const { domain("compose") });
        let own = u64::from(low) | u64::from(high) << 32;
        let draw = |(place, Step { transform, probability }): (u64, &Step)| {
            let seed = own ^ place.wrapping_mul(GOLDEN_RATIO);
            let mut coin = Philox::new(seed, const { domain("compose") }, [epoch, u64::from(sample)]);
            match coin.unit_f64() < *probability {
                true => transform.draw(shape, seed, epoch, sample),
                false => Draws::default(),
            }
        };
        (0..).zip(&self.steps).map(draw).collect()
    }
}

/// The pipeline of a transform that works on the bytes of pictures, and has this text.
///
/// # Errors
/// [`Error::Option`] for images that are no pictures.
pub(crate) fn of_bytes(text: String, shape: [usize; 3]) -> Result<Pipeline, Error> {
    if shape[2] != 1 && shape[2] != 3 {
        return Err(text::refuse(text, "left out for images that have neither 1 nor 3 channels"));
    }
    ImageDataGenerator::new().build(shape)
}

/// 2^64 divided by the golden ratio, whose multiples lie far apart: steps of one kind must not draw alike.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random operation of a [`Compose`].
///
/// Your own operation gives draws, which the pipeline applies:
///
/// ```
/// use towers_augment::{Compose, Draws, Transform};
///
/// /// A rotation by whole quarters of a turn, one after the other.
/// #[derive(Debug)]
/// struct QuarterTurns;
///
/// impl Transform for QuarterTurns {
///     fn draw(&self, _: [usize; 3], _seed: u64, epoch: u64, sample: u32) -> Draws {
///         let quarters = (epoch + u64::from(sample)) % 4;
///         Draws { rotation: 90.0 * quarters as f64, ..Draws::default() }
///     }
/// }
///
/// let pipeline = Compose::new().then(QuarterTurns).build([8, 8, 3])?;
/// assert_eq!(pipeline.draw(0, 1, 2).to_string(), "rotation 270.00 degrees");
/// # Ok::<(), towers_augment::Error>(())
/// ```
pub trait Transform: fmt::Debug + Send + Sync {
    /// The random decisions about `sample` in `epoch`, for images of `shape` (height, width, channels): a
    /// pure function.
    fn draw(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws;

    /// Checks the operation for images of `shape`, and gives the pipeline that applies its draws: by default
    /// that of a generator without options.
    ///
    /// # Errors
    /// For values that make no sense.
    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        ImageDataGenerator::new().build(shape)
    }

    /// The text that stands for it in a list of a recipe, without its probability; by default there is none.
    fn text(&self) -> Option<String> {
        None
    }
}

/// Its random options, in its fixed order.
impl Transform for ImageDataGenerator {
    fn draw(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        Draws::new(self, shape, seed, epoch, sample)
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        ImageDataGenerator::build(self, shape)
    }
}

impl Transform for RandAugment {
    fn draw(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        ImageDataGenerator::new().rand_augment(*self).draw(shape, seed, epoch, sample)
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        ImageDataGenerator::new().rand_augment(*self).build(shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

impl Transform for RandomResizedCrop {
    fn draw(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        ImageDataGenerator::new().random_resized_crop(*self).draw(shape, seed, epoch, sample)
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        ImageDataGenerator::new().random_resized_crop(*self).build(shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

/// All of its steps: with a probability this is torchvision's `RandomApply`.
impl Transform for Compose {
    fn draw(&self, shape: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        Draws { composed: self.draws(shape, seed, epoch, sample), ..Draws::default() }
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        Compose::build(self, shape)
    }
}

/// Always this operation, with its number.
impl Transform for Operation {
    fn draw(&self, _: [usize; 3], _: u64, _: u64, _: u32) -> Draws {
        Draws::of(&[*self])
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        let pipeline = RandAugment::default().build(shape)?;
        self.draw(shape, 0, 0, 0).check([shape[0], shape[1]])?;
        Ok(pipeline)
    }

    fn text(&self) -> Option<String> {
        Some(match *self {
            Operation::Sharpness(factor) => format!("random-adjust-sharpness:sharpness-factor={factor}"),
            Operation::AutoContrast => "random-autocontrast".to_owned(),
            Operation::Equalize => "random-equalize".to_owned(),
            Operation::Color(0.0) => "random-grayscale".to_owned(),
            Operation::Invert => "random-invert".to_owned(),
            Operation::Posterize(bits) => format!("random-posterize:bits={bits}"),
            Operation::Solarize(threshold) => format!("random-solarize:threshold={threshold}"),
            _ => return None,
        })
    }
}

/// A mirror image, always: give it a [probability](Compose::with_probability).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flip {
    /// Left to right.
    Horizontal,
    /// Top to bottom.
    Vertical,
}

impl Transform for Flip {
    fn draw(&self, _: [usize; 3], _: u64, _: u64, _: u32) -> Draws {
        let horizontal_flip = *self == Flip::Horizontal;
        Draws { horizontal_flip, vertical_flip: !horizontal_flip, ..Draws::default() }
    }

    fn text(&self) -> Option<String> {
        let name = if *self == Flip::Horizontal { "random-horizontal-flip" } else { "random-vertical-flip" };
        Some(name.to_owned())
    }
}
