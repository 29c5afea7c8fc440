//! Lists what of CUDA is on this machine, and computes a softmax on its first GPU.

use towers_program::{Device, Layout, Result, Shape, View, ViewMut};
use towers_tensor_cuda::{Options, device, gpus, libraries};

/// The softmax of three numbers.
fn softmax(device: &Device) -> Result<Vec<f32>> {
    let (mut x, mut y) = (device.alloc_activations(3)?, device.alloc_activations(3)?);
    device.upload(&[0.0, 0.0, 2_f32.ln()], &mut x, 0)?;
    let at = Layout::contiguous(Shape::vectors(1, 3));
    device.softmax(View::new(&x, at), ViewMut::new(&mut y, at))?;
    y.to_vec(device, 0, 3)
}

fn main() -> Result<()> {
    for library in libraries() {
        let state = library.state.map_or_else(|missing| missing.to_string(), |_| "found".to_owned());
        println!("{}, for {}: {state}", library.name, library.purpose);
    }
    match gpus() {
        Ok(gpus) => {
            gpus.iter()
                .for_each(|gpu| println!("GPU {}: {}, {} MiB", gpu.number, gpu.name, gpu.memory >> 20));
            println!("{:?}", softmax(&device(Options::default())?)?);
        }
        Err(none) => println!("There is no GPU here: {none}"),
    }
    Ok(())
}

#[test]
fn it_runs_with_and_without_a_gpu() {
    main().unwrap();
}

/// The same kernel on the processor.
#[cfg(feature = "emulation")]
#[test]
fn a_softmax_is_right() {
    let device = towers_tensor_cuda::emulated(towers_program::Precision::Fp32).unwrap();
    let error = softmax(&device).unwrap().into_iter().zip([0.25, 0.25, 0.5]).map(|(p, q)| (p - q).abs());
    assert!(error.fold(0.0, f32::max) < 1e-6);
}
