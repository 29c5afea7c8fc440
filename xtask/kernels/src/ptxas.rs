//! What the assembler says about each kernel, read from NVRTC's log.

/// What makes the assembler say it.
pub const VERBOSE: &str = "--ptxas-options=-v";

/// What a kernel takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub kernel: String,
    /// Of a thread.
    pub registers: u32,
    /// Bytes of a block, without those that a launch adds.
    pub shared: u32,
    /// Bytes of local memory of a thread, spills included.
    pub stack: u32,
    /// Bytes that a thread stores because it runs out of registers, and loads again.
    pub spilled: u32,
}

/// Reads the log into one entry a kernel, in the assembler's order, and the rest of it: warnings.
pub fn read(log: &str) -> (Vec<Usage>, String) {
    let (mut all, mut rest): (Vec<Usage>, String) = Default::default();
    for line in log.lines() {
        if let Some(kernel) = between(line, "Compiling entry function '", "'") {
            all.push(Usage { kernel: kernel.to_owned(), ..Usage::default() });
        } else if let (true, Some(last)) = (line.contains(" bytes stack frame"), all.last_mut()) {
            // A function that was not inlined has another line, among those of the kernel that calls it.
            last.stack += number_before(line, " bytes stack frame");
            last.spilled +=
                number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        } else if let (true, Some(last)) = (line.contains(" registers"), all.last_mut()) {
            last.registers = number_before(line, " registers");
            last.shared = number_before(line, " bytes smem");
        } else if !line.starts_with("ptxas info") && !line.trim().is_empty() {
            rest += line;
            rest.push('\n');
        }
    }
    (all, rest)
}

/// The kernels that PTX defines, in their order.
pub fn entries(ptx: &str) -> Vec<String> {
    let entries = ptx.split(".entry ").skip(1);
    entries.filter_map(|rest| Some(rest.split('(').next()?.trim().to_owned())).collect()
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split(after).next()
}

/// The number that stands before `unit`; 0 where the line has none.
fn number_before(line: &str, unit: &str) -> u32 {
    let before = line.split_once(unit).map(|(before, _)| before).unwrap_or_default();
    before.rsplit([' ', ',']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "a.cu(3): warning #177-D: variable \"x\" was declared but never referenced

ptxas info    : 4 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
ptxas         .     48 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Function properties for helper
ptxas         .     8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads
ptxas info    : Compile time = 2.012 ms
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
";

    #[test]
    fn the_log_is_read_by_kernel() {
        let (all, rest) = read(LOG);
        let one = Usage { kernel: "one".into(), registers: 255, shared: 1024, stack: 56, spilled: 44 };
        let two = Usage { kernel: "two".into(), registers: 8, ..Usage::default() };
        assert_eq!(all, [one, two]);
        assert_eq!(rest, "a.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n");
    }

    #[test]
    fn the_kernels_of_ptx_are_found() {
        let ptx = ".visible .entry one(\n .param .u64 a\n)\n{ ret; }\n.visible .entry two()\n{}";
        assert_eq!(entries(ptx), ["one", "two"]);
        assert_eq!(entries(".func x()"), [""; 0]);
    }
}
