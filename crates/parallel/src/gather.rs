use crate::{Collective, Result};
use program::{Device, Span};

/// Gathers the same number of values from each replica, in the order of the ranks. They travel as `f32`.
///
/// ```
/// use parallel::{gather_numbers, run_replicas};
///
/// let gathered = run_replicas(&[tensor_cpu::device(1), tensor_cpu::device(1)], |mut replica| {
///     let own = [replica.rank() as f64, 0.5];
///     let device = replica.device.clone();
///     gather_numbers(replica.collective.as_mut(), &device, &own)
/// })?;
/// assert_eq!(gathered, vec![vec![0.0, 0.5, 1.0, 0.5]; 2]);
/// # Ok::<(), parallel::Error>(())
/// ```
///
/// # Errors
/// The errors of the device and of the collective.
pub fn gather_numbers(collective: &mut dyn Collective, device: &Device, own: &[f64]) -> Result<Vec<f64>> {
    let all = Span::new(0, own.len() * collective.world());
    let mut numbers = device.alloc(all.len)?;
    let own: Vec<f32> = own.iter().map(|number| *number as f32).collect();
    device.upload(&own, &mut numbers, collective.rank() * own.len())?;
    collective.all_gather(device, &mut numbers, all)?;
    Ok(numbers.to_vec(device, 0, all.len)?.into_iter().map(f64::from).collect())
}
