use crate::{Error, Result};
use layers::AcrossReplicas;
use parallel::Collective;
use std::time::{Duration, Instant};
use tensor::{Device, Span, Storage};

/// The way of a network's layers to those of the other replicas in the middle of a pass: the run's collective.
pub(crate) struct Across<'a> {
    collective: &'a mut dyn Collective,
    /// How long the pass has waited for the others.
    waited: Duration,
    /// What kept the replicas from meeting, for layers hand on no more than its words.
    failure: Option<parallel::Error>,
}

impl<'a> Across<'a> {
    pub(crate) fn new(collective: &'a mut dyn Collective) -> Self {
        Across { collective, waited: Duration::ZERO, failure: None }
    }

    /// Runs a pass that may meet the other replicas. Returns how long it waited for them.
    pub(crate) fn run(
        mut self,
        pass: impl FnOnce(&mut dyn AcrossReplicas) -> layers::Result<()>,
    ) -> Result<Duration> {
        match pass(&mut self) {
            Ok(()) => Ok(self.waited),
            Err(error) => Err(self.failure.map_or(Error::from(error), Error::from)),
        }
    }

    fn meet(&mut self, meet: impl FnOnce(&mut dyn Collective) -> parallel::Result<()>) -> tensor::Result<()> {
        let began = Instant::now();
        let met = meet(self.collective);
        self.waited += began.elapsed();
        met.map_err(|error| {
            let message = error.to_string();
            self.failure = Some(error);
            tensor::Error::Device { device: "the way to the other replicas".into(), message }
        })
    }
}

impl AcrossReplicas for Across<'_> {
    fn rank(&self) -> usize {
        self.collective.rank()
    }

    fn world(&self) -> usize {
        self.collective.world()
    }

    fn sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> tensor::Result<()> {
        self.meet(|collective| collective.all_reduce_sum(device, data, at))
    }

    fn gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> tensor::Result<()> {
        self.meet(|collective| collective.all_gather(device, data, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parallel::run_replicas;

    /// A pass that hears of another replica's failure ends with that, not with the words that layers made of it.
    #[test]
    fn what_keeps_replicas_from_meeting_is_told_as_it_is() {
        let devices = [Device::cpu(1), Device::cpu(1)];
        let heard = std::sync::Mutex::new(None);
        let ended = run_replicas(&devices, |mut replica| {
            if replica.rank() == 1 {
                return Err(Error::Device("a device is gone".into()));
            }
            let mut data = tensor::Backend::alloc(&replica.device, 2)?;
            let across = Across::new(replica.collective.as_mut());
            let met = across.run(|replicas| Ok(replicas.gather(&devices[0], &mut data, Span::new(0, 2))?));
            *heard.lock().unwrap() = Some(met.unwrap_err());
            Ok(())
        });
        assert_eq!(ended.unwrap_err().to_string(), "a device is gone");
        let heard = heard.lock().unwrap().take().unwrap();
        assert!(matches!(heard, Error::Parallel(_)), "{heard}");
        assert!(heard.to_string().contains("a device is gone"), "{heard}");
    }
}
