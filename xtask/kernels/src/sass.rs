//! The instructions of each kernel, as `nvdisasm` prints a compiled file.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::{env, fs, process};
use towers_tensor_cuda::compile::on_all_cores;

/// How many instructions of some kinds a kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    pub kernel: String,
    /// Loads of 16 bytes from global memory.
    pub wide_loads: u32,
    /// Stores of 16 bytes to global memory.
    pub wide_stores: u32,
    /// Asynchronous copies of 16 bytes to shared memory.
    pub copies: u32,
    /// Products on tensor cores.
    pub products: u32,
    /// Loads and stores of local memory.
    pub local: u32,
}

/// The kernels of compiled files, which all CPU cores read, in the order of the images. An empty image has none.
pub fn read_all(nvdisasm: &Path, images: &[&[u8]]) -> Result<Vec<Vec<Instructions>>> {
    let numbers: Vec<usize> = (0..images.len()).collect();
    let read = |number: usize| match images[number] {
        [] => Ok(Vec::new()),
        image => Ok(parse(&disassemble(nvdisasm, image, number)?)),
    };
    on_all_cores(&numbers, read).into_iter().collect()
}

fn disassemble(nvdisasm: &Path, image: &[u8], number: usize) -> Result<String> {
    let file = env::temp_dir().join(format!("towers-kernels-{}-{number}.cubin", process::id()));
    fs::write(&file, image).with_context(|| format!("{} can't be written", file.display()))?;
    let output = Command::new(nvdisasm).args(["--print-code", "--no-dataflow"]).arg(&file).output();
    fs::remove_file(&file)?;
    let output = output.with_context(|| format!("{} does not start", nvdisasm.display()))?;
    ensure!(output.status.success(), "nvdisasm: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Counts the instructions of each section of code.
fn parse(text: &str) -> Vec<Instructions> {
    let mut all: Vec<Instructions> = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(section) = line.strip_prefix(".section").map(str::trim_start) {
            let kernel = section.strip_prefix(".text.").and_then(|rest| rest.split([',', '\t', ' ']).next());
            all.extend(kernel.map(|kernel| Instructions { kernel: kernel.into(), ..Default::default() }));
        } else if let (Some(instruction), Some(kernel)) = (instruction(line), all.last_mut()) {
            let (name, kinds) = instruction.split_once('.').unwrap_or((instruction, ""));
            let is_wide = kinds.split('.').any(|kind| kind == "128");
            let count = match name {
                // LD and ST are those whose kind of memory the compiler does not know.
                "LDG" | "LD" if is_wide => &mut kernel.wide_loads,
                "STG" | "ST" if is_wide => &mut kernel.wide_stores,
                "LDGSTS" if is_wide => &mut kernel.copies,
                "HMMA" => &mut kernel.products,
                "LDL" | "STL" => &mut kernel.local,
                _ => continue,
            };
            *count += 1;
        }
    }
    all
}

/// The name of an instruction with its kinds, in a line with its address and perhaps a predicate.
fn instruction(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("/*")?.split_once("*/")?.1.split_whitespace();
    words
        .find(|word| !word.starts_with('@'))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\t.target\tsm_90
//--------------------- .text.one     --------------------------
\t.section\t.text.one,\"ax\",@progbits
one:
.text.one:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 LDG.E.128 R4, desc[UR10][R6.64] ;
        /*0020*/              @!P0 LDG.E R4, desc[UR10][R6.64] ;
        /*0030*/                   LD.E.128 R4, [R6.64] ;
        /*0040*/                   LDGSTS.E.BYPASS.128.ZFILL [R5], desc[UR4][R2.64], P1 ;
        /*0050*/                   HMMA.16816.F32.BF16 R4, R8, R16, R4 ;
        /*0060*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0070*/                   STL.64 [R1], R4 ;
.L_x_1:
        /*0080*/                   BRA `(.L_x_1);
\t.section\t.text.two,\"ax\",@progbits
        /*0000*/                   LDS.128 R4, [R3] ;
        /*0010*/                   LDL R4, [R1] ;
";

    #[test]
    fn instructions_are_counted_by_kernel() {
        let one = Instructions {
            kernel: "one".into(),
            wide_loads: 2,
            wide_stores: 1,
            copies: 1,
            products: 1,
            local: 1,
        };
        let two = Instructions { kernel: "two".into(), local: 1, ..Instructions::default() };
        assert_eq!(parse(TEXT), [one, two]);
    }
}
