use towers_program::{Device, Precision};

/// This number of emulated GPUs, or none without a C++ compiler.
pub fn gpus(count: usize) -> Option<Vec<Device>> {
    let devices: Result<Vec<_>, _> =
        (0..count).map(|_| towers_tensor_cuda::emulated(Precision::Fp32)).collect();
    devices.inspect_err(|error| println!("SKIPPED: collectives on GPUs: {error}")).ok()
}
