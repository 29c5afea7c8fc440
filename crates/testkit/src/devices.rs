use std::sync::LazyLock;
use towers_program::{Device, Precision};
use towers_tensor_cuda::Options as CudaOptions;

/// Runs a test on every device of the machine: the f64 reference, the CPU with one, two and three threads,
/// and the CUDA backend. The backend runs on an emulated GPU if there is a C++ compiler, and on a real one.
///
/// For each missing device it prints a line that begins with `SKIPPED` and says why; with
/// `TOWERS_REQUIRE_CUDA=1` in the environment a missing GPU fails the test instead.
///
/// # Panics
/// As the test does, after saying on which device it ran; or for a missing device that is required.
pub fn on_every_device(mut test: impl FnMut(&Device)) {
    let cpus = [1, 2, 3].map(towers_tensor_cpu::device);
    for device in [towers_tensor_cpu::reference()].iter().chain(&cpus) {
        println!("device: {}, {} threads", device.kind(), device.threads());
        test(device);
    }
    match towers_tensor_cuda::emulated(Precision::Fp32) {
        Ok(device) => {
            println!("device: {}, emulated", device.kind());
            test(&device);
        }
        Err(why) => println!("{}", skipped("emulated cuda", &why.to_string(), false)),
    }
    match gpu() {
        Ok(device) => {
            println!("device: {}", device.kind());
            test(device);
        }
        Err(why) => {
            let required = std::env::var_os("TOWERS_REQUIRE_CUDA").is_some_and(|value| value == "1");
            println!("{}", skipped("cuda", why, required));
        }
    }
}

/// The first GPU, opened once: that takes long.
fn gpu() -> Result<&'static Device, &'static str> {
    static GPU: LazyLock<Result<Device, String>> = LazyLock::new(|| {
        towers_tensor_cuda::device(CudaOptions::default()).map_err(|error| error.to_string())
    });
    GPU.as_ref().map_err(String::as_str)
}

/// The line for an absent device.
fn skipped(device: &str, why: &str, required: bool) -> String {
    assert!(!required, "{device} is required, but {why}");
    format!("SKIPPED: {device}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_devices_are_named() {
        assert_eq!(skipped("cuda", "there is no driver", false), "SKIPPED: cuda: there is no driver");
    }

    #[test]
    #[should_panic(expected = "cuda is required, but there is no driver")]
    fn required_devices_fail_the_test() {
        skipped("cuda", "there is no driver", true);
    }

    #[test]
    fn every_kind_of_device_runs() {
        let mut seen = Vec::new();
        if std::env::var_os("TOWERS_REQUIRE_CUDA").is_none() {
            on_every_device(|device| seen.push((device.kind(), device.threads())));
            assert_eq!(seen[..4], [("reference", 1), ("cpu", 1), ("cpu", 2), ("cpu", 3)]);
            assert!(seen[4..].iter().all(|&(kind, _)| kind == "cuda"));
        }
    }
}
