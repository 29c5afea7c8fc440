use crate::Result;
use tensor::{Device, Span, Storage};

/// What replicas do together. Every replica of a group calls the same operations in the same order; each call returns when
/// all have come, or with an error in bounded time when one has failed.
pub trait Collective: Send {
    /// This replica's number, from 0.
    fn rank(&self) -> usize;

    /// How many replicas there are.
    fn world(&self) -> usize;

    /// Replaces the run `at` of `data` by its sum over all replicas, added in the order of the ranks: the same bits on all.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Replaces the run `at` of `data` by what replica `root` has there.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()>;

    /// Waits until all replicas have come here.
    ///
    /// # Errors
    /// If another replica failed.
    fn barrier(&mut self) -> Result<()>;

    /// Makes every operation of every replica fail, now and later, with this reason.
    fn abort(&self, reason: &str);
}
