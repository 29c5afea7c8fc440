use crate::Result;
use program::{Device, Layout, Shape, Span, Storage, View, ViewMut, Write};

/// Sets the run `at` of `into` to the sum of that run of `parts`, on the device, added one after the other.
/// This is the all-reduce of a single replica.
///
/// The sum of two f32 has one result, so the host would compute the same bits.
pub(crate) fn add_in_order(device: &Device, parts: &[Storage], at: Span, into: &mut Storage) -> Result<()> {
    let layout = Layout { offset: at.offset, ..Layout::contiguous(Shape::vectors(1, at.len)) };
    let Some((first, rest)) = parts.split_first() else {
        return Ok(device.fill(0.0, into, at)?);
    };
    device.copy(View::new(first, layout), ViewMut::new(into, layout), Write::Set)?;
    for part in rest {
        device.copy(View::new(part, layout), ViewMut::new(into, layout), Write::Add)?;
    }
    Ok(())
}

/// Adds numbers of the host to those in place.
pub(crate) fn add(sums: &mut [f32], part: &[f32]) {
    sums.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
}
