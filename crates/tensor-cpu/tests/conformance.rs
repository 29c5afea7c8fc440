//! Every op of [`tensor_cpu::Cpu`] against the f64 reference, with the same bits on any number of threads.

use conformance::Subject;
use tensor_cpu::Cpu;

fn subject() -> Subject<Cpu> {
    Subject::new([1, 2, 3].map(|threads| (format!("the CPU on {threads} threads"), Cpu::new(threads))))
}

conformance::suite!(subject());
