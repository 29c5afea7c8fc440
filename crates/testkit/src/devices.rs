use tensor::Device;

/// Runs a test on every device that is present: the f64 reference, and the CPU with one, two and three threads.
///
/// For each device that is not, prints a line that begins with `SKIPPED` and says why; with `TOWERS_REQUIRE_CUDA=1` in the
/// environment a missing CUDA device fails the test instead.
///
/// # Panics
/// As the test does, after saying on which device it ran; or for a missing device that is required.
pub fn on_every_device(mut test: impl FnMut(&Device)) {
    let cpus = [1, 2, 3].map(Device::cpu);
    for device in [Device::reference()].iter().chain(&cpus) {
        println!("device: {}, {} threads", device.kind(), device.threads());
        test(device);
    }
    let required = std::env::var_os("TOWERS_REQUIRE_CUDA").is_some_and(|value| value == "1");
    println!("{}", skipped("cuda", "not built yet", required));
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
        assert_eq!(skipped("cuda", "not built yet", false), "SKIPPED: cuda: not built yet");
    }

    #[test]
    #[should_panic(expected = "cuda is required, but not built yet")]
    fn required_devices_fail_the_test() {
        skipped("cuda", "not built yet", true);
    }

    #[test]
    fn every_kind_of_device_runs() {
        let mut seen = Vec::new();
        if std::env::var_os("TOWERS_REQUIRE_CUDA").is_none() {
            on_every_device(|device| seen.push((device.kind(), device.threads())));
            assert_eq!(seen, [("reference", 1), ("cpu", 1), ("cpu", 2), ("cpu", 3)]);
        }
    }
}
