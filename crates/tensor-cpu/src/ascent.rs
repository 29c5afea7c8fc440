use crate::Cpu;
use crate::dispatch::multiversion;
use crate::optimizer::{BLOCK, PARTS, for_parts};
use crate::threads::Shards;
use towers_optim::Sam;
use towers_program::Span;

/// See `Backend::ascend`. The sums are of parts that depend on a parameter's length alone.
pub(crate) fn ascend(
    cpu: &Cpu,
    sam: &Sam,
    params: &mut [f32],
    grads: &[f32],
    at: &[Span],
    norms: &mut [f32],
) {
    let (simd, sam) = (cpu.simd(), *sam);
    for (norm, at) in norms.iter_mut().zip(at) {
        let mut sums = [0.0; PARTS];
        let (part, shared) = (at.len.div_ceil(PARTS).max(BLOCK), Shards::new(&mut sums));
        let (params, grads) = (&mut params[at.range()], &grads[at.range()]);
        for_parts(cpu, part, params, grads, Default::default(), |k, params, grads, _| {
            // SAFETY: each task has its own sum.
            let sum = unsafe { shared.part(k..k + 1) };
            squares(simd, sam, params, grads, &mut sum[0]);
        });
        *norm = sums.iter().sum::<f64>().sqrt() as f32;
    }
    let all = norms.iter().map(|&norm| f64::from(norm) * f64::from(norm)).sum::<f64>().sqrt() as f32;
    let factor = sam.factor(all);
    for at in at {
        let (params, grads) = (&mut params[at.range()], &grads[at.range()]);
        for_parts(cpu, BLOCK, params, grads, Default::default(), |_, params, grads, _| {
            add(simd, sam, factor, params, grads);
        });
    }
}

multiversion! {
    fn squares(sam: Sam, params: &[f32], grads: &[f32], sum: &mut f64) {
        *sum = sam.squares(params, grads);
    }
}

multiversion! {
    fn add(sam: Sam, factor: f32, params: &mut [f32], grads: &[f32]) {
        sam.add(factor, params, grads);
    }
}
