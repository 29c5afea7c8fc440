//! What a drawn step does to the bytes of an image, where no other field of [`Draws`](crate::Draws) says it.

use core::fmt::{self, Debug, Display};
use core::ops::Deref;
use std::sync::Arc;

/// A change of an image's bytes, with everything drawn that was to draw.
///
/// `Debug` must show all of its numbers: two effects are equal if it shows them alike. `Display` is for people.
///
/// ```
/// use towers_augment::{Compose, Drawn, Draws, Effect, Scratch, Transform};
///
/// /// Salt: every n-th pixel is white.
/// #[derive(Debug)]
/// struct Salt(usize);
///
/// impl std::fmt::Display for Salt {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         write!(f, "salt on every {}. pixel", self.0)
///     }
/// }
///
/// impl Effect for Salt {
///     fn paint(&self, [_, _, c]: [usize; 3], image: &mut [u8], _: &mut Vec<u8>) {
///         image.chunks_exact_mut(c).step_by(self.0).for_each(|pixel| pixel.fill(255));
///     }
/// }
///
/// #[derive(Debug)]
/// struct RandomSalt;
///
/// impl Transform for RandomSalt {
///     fn draw(&self, _: [usize; 3], _seed: u64, epoch: u64, sample: u32) -> Draws {
///         let every = 2 + (epoch as usize + sample as usize) % 5;
///         Draws { effect: Some(Drawn::new(Salt(every))), ..Draws::default() }
///     }
/// }
///
/// let pipeline = Compose::new().then(RandomSalt).build([1, 3, 1])?;
/// let draws = pipeline.draw(0, 0, 0);
/// assert_eq!(draws.to_string(), "salt on every 2. pixel");
/// let mut out = [0.0; 3];
/// pipeline.apply(&draws, &[7, 8, 9], &mut out, &mut Scratch::default())?;
/// assert_eq!(out, [255.0, 8.0, 255.0]);
/// # Ok::<(), towers_augment::Error>(())
/// ```
pub trait Effect: Debug + Display + Send + Sync {
    /// Changes `image` (HWC of `shape`). `spare` is memory with any content.
    fn paint(&self, shape: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>);
}

/// An [`Effect`] among [`Draws`](crate::Draws).
#[derive(Clone)]
pub struct Drawn(Arc<dyn Effect>);

impl Drawn {
    /// This effect.
    pub fn new(effect: impl Effect + 'static) -> Self {
        Drawn(Arc::new(effect))
    }
}

impl Deref for Drawn {
    type Target = dyn Effect;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Drawn {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || format!("{self:?}") == format!("{other:?}")
    }
}

impl Debug for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&*self.0, f)
    }
}

impl Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&*self.0, f)
    }
}
