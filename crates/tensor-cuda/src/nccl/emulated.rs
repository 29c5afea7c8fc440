//! A group of emulated GPUs in one process, for tests.

use super::calls::UniqueId;
use super::communicator::Communicator;
use super::session::{Failed, Join};
use super::transport::{MemoryTransport, Transport};
use super::wire::Wire;
use crate::Cuda;
use std::sync::Arc;
use std::time::Duration;
use towers_program::Result;

/// A group of ranks on emulated devices, one each, with the time-out `patience`. `failed` makes each rank's
/// source of the others' failures, given its rank.
///
/// # Errors
/// None yet, as for [`Communicator::join`].
pub fn emulated(
    devices: &[Cuda],
    patience: Duration,
    failed: impl Fn(usize) -> Option<Failed>,
) -> Result<Vec<Communicator>> {
    let transport: Arc<dyn Transport> = Arc::new(MemoryTransport::default());
    let begin = |(rank, cuda): (usize, &Cuda)| {
        let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
        let join = Join { id, rank, world: devices.len(), patience, failed: failed(rank) };
        let wire = Wire::new(Arc::clone(&transport), cuda, &join);
        Communicator::begin_by(Box::new(wire), cuda, join)
    };
    let joining = devices.iter().enumerate().map(begin).collect::<Result<Vec<_>>>()?;
    joining.into_iter().map(|joining| joining.finish()).collect()
}
