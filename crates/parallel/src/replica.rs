use crate::{Collective, Local};
use program::Device;

/// The argument of a replica's body.
pub struct Replica {
    /// The replica's device.
    pub device: Device,
    /// The collective of all replicas.
    pub collective: Box<dyn Collective>,
}

impl Replica {
    /// A single replica.
    pub fn alone(device: Device) -> Self {
        Replica { device, collective: Box::new(Local::alone()) }
    }

    /// The replica's number, from 0.
    pub fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// How many replicas there are.
    pub fn world(&self) -> usize {
        self.collective.world()
    }
}
