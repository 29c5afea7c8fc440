//! Finds the ops that a device computes wrong: here one that forgets to scale the loss.

use towers_conformance::{Check, Checked, Subject, checks};
use towers_tensor_cpu::Cpu;

/// The checks of a topic that fail, each with what it says.
fn failures(subject: &Subject, topic: &str) -> Vec<(&'static str, String)> {
    let run = |check: &Check| {
        let Checked { results, worst, failure } = check.run(subject);
        println!("{topic}, {}: {results} results, {:.0}% of the tolerance", check.name, 100.0 * worst);
        Some((check.name, failure?))
    };
    checks().iter().filter(|check| check.topic == topic).filter_map(run).collect()
}

#[cfg_attr(test, test)]
fn main() {
    let subject = || Subject::new([("the CPU".to_owned(), Cpu::new(2))]);
    assert_eq!(failures(&subject(), "softmax"), []);
    // The failure names the case, the element, both values and the tolerance.
    let wrong = failures(&subject().loss_scale(2.0), "softmax");
    wrong.iter().for_each(|(check, why)| println!("{check} FAILED: {why}"));
    assert!(wrong.iter().any(|(_, why)| why.contains("on the CPU") && why.contains(" is ")));
}
