//! What the benchmarks share.

use towers_tensor_cpu::Cpu;

/// The device of the command line, `[THREADS] [--bf16]`, and its arguments. Without the unit that bf16 wants, none, which is said.
pub fn device() -> Option<(Cpu, Vec<String>)> {
    let (options, args): (Vec<String>, _) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let cpu = Cpu::new(args.first().and_then(|threads| threads.parse().ok()).unwrap_or(0));
    if !options.contains(&"--bf16".to_owned()) {
        return Some((cpu, args));
    }
    let narrow = cpu.with_bf16();
    if narrow.is_none() {
        println!("SKIPPED: the processor has no AMX");
    }
    Some((narrow?, args))
}
