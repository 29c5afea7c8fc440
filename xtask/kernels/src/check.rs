//! Compiles all kernels, and checks the result.

use crate::ptxas::{self, Usage};
use crate::sass::{self, Instructions};
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use towers_tensor_cuda::compile::{Compiled, Job, Nvrtc, Target};
use towers_tensor_cuda::kernels::{FORMATS, SOURCES, Source};

/// The machine code of the two most important architectures, and the code that drivers translate for any
/// other, of the oldest one that the kernels are written for.
const TARGETS: [Target; 3] = [Target::Cubin(80), Target::Cubin(90), Target::Ptx(75)];

/// Kernels that may spill registers, with the format and the reason.
const ACCEPTED: &[(&str, &str, &str)] = &[];

/// An instruction that kernels must have.
struct Wanted {
    what: &'static str,
    count: fn(&Instructions) -> u32,
    /// Whether in the formats of 16 bits alone.
    halves_only: bool,
    kernels: &'static [&'static str],
}

/// Kernels that load and store vectors of 16 bytes.
const BOTH: &[&str] = &[
    "act_bwd",
    "avgpool_bwd",
    "avgpool_fwd",
    "copy_act",
    "copy_f32",
    "dropout",
    "maxpool_bwd",
    "maxpool_bwd_apart",
    "maxpool_fwd",
    "move_rows",
    "step_*",
    "sum_parts_f32",
];

/// Where vectors of 16 bytes and tensor cores are meant.
const WANTED: &[Wanted] = &[
    Wanted { what: "load of 16 bytes", count: |has| has.wide_loads, halves_only: false, kernels: BOTH },
    Wanted { what: "store of 16 bytes", count: |has| has.wide_stores, halves_only: false, kernels: BOTH },
    Wanted {
        what: "load of 16 bytes",
        count: |has| has.wide_loads,
        halves_only: false,
        kernels: &[
            "bn_gradient_sums",
            "bn_statistics",
            "column_sums",
            "find_overflow",
            "maxpool_winners",
            "sum_parts",
        ],
    },
    Wanted {
        what: "store of 16 bytes",
        count: |has| has.wide_stores,
        halves_only: false,
        kernels: &["fill_act", "fill_f32"],
    },
    Wanted {
        what: "copy of 16 bytes",
        count: |has| has.copies,
        halves_only: true,
        kernels: &["conv_bwd_data", "conv_bwd_filter", "conv_fwd", "slide_*", "small_window_filter"],
    },
    Wanted {
        what: "product on tensor cores",
        count: |has| has.products,
        halves_only: true,
        kernels: &["conv_*", "slide_*", "small_window_*"],
    },
];

/// Whether a name is the pattern, or begins like one that ends with `*`.
fn is_meant(pattern: &str, kernel: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == kernel, |start| kernel.starts_with(start))
}

/// What the command line asks for.
struct Options {
    /// Only the sums, and the errors.
    summary: bool,
    /// The files to compile, or all.
    files: Vec<&'static Source>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { summary: false, files: Vec::new() };
    for argument in arguments {
        if argument == "--summary" {
            options.summary = true;
        } else if let Some(file) = SOURCES.iter().find(|file| stem(file) == argument.trim_end_matches(".cu"))
        {
            options.files.push(file);
        } else {
            let names: Vec<&str> = SOURCES.iter().map(stem).collect();
            bail!("there is no kernel file `{argument}`; there are {}", names.join(", "));
        }
    }
    if options.files.is_empty() {
        options.files = SOURCES.iter().collect();
    }
    Ok(options)
}

fn stem(source: &Source) -> &'static str {
    source.name.trim_end_matches(".cu")
}

/// Compiles with the NVRTC of a folder, prints, and says whether all is well.
pub fn run(folder: &Path, nvdisasm: &Path, arguments: &[String]) -> Result<ExitCode> {
    let options = parse(arguments)?;
    let start = Instant::now();
    let nvrtc = Nvrtc::find()?;
    let path = towers_tensor_cuda::libraries().into_iter().find(|library| library.name == "NVRTC");
    let path = path.and_then(|library| library.state.ok()?.path).unwrap_or_default();
    ensure!(path.starts_with(folder), "NVRTC is {}, and not in {}", path.display(), folder.display());
    let jobs: Vec<Job> = options
        .files
        .iter()
        .flat_map(|&source| FORMATS.map(|format| TARGETS.map(|target| Job { source, format, target })))
        .flatten()
        .collect();
    let results = nvrtc.compile_all(&jobs, &[ptxas::VERBOSE]);
    let pairs = jobs.iter().zip(&results);
    let images: Vec<&[u8]> = pairs
        .map(|(job, result)| match (job.target, result) {
            (Target::Cubin(_), Ok(compiled)) => &compiled.image[..],
            _ => &[],
        })
        .collect();
    let instructions = sass::read_all(nvdisasm, &images)?;
    let all = jobs.iter().zip(results).zip(instructions);
    let outcomes: Vec<Outcome> =
        all.map(|((job, result), instructions)| Outcome::new(*job, result, instructions)).collect();

    if !options.summary {
        print!("{}\n{}\n", usages(&outcomes), sizes(&outcomes));
    }
    let troubles = troubles(&outcomes);
    troubles.iter().for_each(|trouble| println!("{trouble}\n"));
    println!("{}", summary(&outcomes, nvrtc.version().to_string(), start.elapsed().as_secs_f64()));
    if troubles.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {} kernel files are not well; see above", troubles.len());
    Ok(ExitCode::FAILURE)
}

/// What became of a job.
struct Outcome {
    job: Job,
    /// Bytes of the result.
    size: usize,
    /// What its kernels take; for PTX only their names.
    kernels: Vec<Usage>,
    /// What they are made of; nothing for PTX.
    instructions: Vec<Instructions>,
    /// What is wrong, if anything.
    trouble: Option<String>,
}

impl Outcome {
    fn new(
        job: Job,
        result: Result<Compiled, towers_tensor_cuda::Error>,
        instructions: Vec<Instructions>,
    ) -> Outcome {
        let compiled = match result {
            Ok(compiled) => compiled,
            Err(error) => {
                let trouble = Some(error.to_string());
                return Outcome { job, size: 0, kernels: vec![], instructions, trouble };
            }
        };
        let (mut kernels, warnings) = ptxas::read(&compiled.log);
        if let Target::Ptx(_) = job.target {
            let names = ptxas::entries(&String::from_utf8_lossy(&compiled.image));
            kernels = names.into_iter().map(|kernel| Usage { kernel, ..Usage::default() }).collect();
        }
        let mut wrong: Vec<String> = vec![];
        wrong.extend(Some(warnings.trim_end().to_owned()).filter(|warnings| !warnings.is_empty()));
        wrong.extend(names(job.source.kernels, &kernels));
        wrong.extend(kernels.iter().filter_map(|usage| spill(usage, job.format.0)));
        wrong.extend(instructions.iter().flat_map(|has| lacks(has, job.format.1 != 0)));
        let head = || format!("{} for {} with {} activations:\n", job.source.name, job.target, job.format.0);
        let trouble = (!wrong.is_empty()).then(|| head() + &wrong.join("\n"));
        Outcome { job, size: compiled.image.len(), kernels, instructions, trouble }
    }
}

/// The host finds kernels by their names, so both lists must be the same.
fn names(listed: &[&str], defined: &[Usage]) -> Vec<String> {
    let is_defined = |name: &str| defined.iter().any(|usage| usage.kernel == name);
    let missing = listed.iter().filter(|name| !is_defined(name));
    let unknown = defined.iter().filter(|usage| !listed.contains(&usage.kernel.as_str()));
    missing
        .map(|name| format!("kernel `{name}` is in the host's list and not in the file"))
        .chain(unknown.map(|usage| format!("kernel `{}` is not in the host's list", usage.kernel)))
        .collect()
}

fn spill(usage: &Usage, format: &str) -> Option<String> {
    let accepted = ACCEPTED.iter().any(|(kernel, of, _)| *kernel == usage.kernel && *of == format);
    (usage.spilled > 0 && !accepted)
        .then(|| format!("kernel `{}` spills {} bytes of registers", usage.kernel, usage.spilled))
}

/// What a kernel's instructions are not as they are meant.
fn lacks(has: &Instructions, in_halves: bool) -> Vec<String> {
    let is_wanted = |wanted: &&Wanted| {
        let meant = wanted.kernels.iter().any(|pattern| is_meant(pattern, &has.kernel));
        meant && (in_halves || !wanted.halves_only) && (wanted.count)(has) == 0
    };
    let missing = WANTED.iter().filter(is_wanted);
    let mut all: Vec<String> =
        missing.map(|wanted| format!("kernel `{}` has no {}", has.kernel, wanted.what)).collect();
    if has.local > 0 {
        all.push(format!("kernel `{}` has {} instructions with local memory", has.kernel, has.local));
    }
    all
}

fn troubles(outcomes: &[Outcome]) -> Vec<&str> {
    let mut all: Vec<&str> = outcomes.iter().filter_map(|outcome| outcome.trouble.as_deref()).collect();
    all.sort_unstable();
    all
}

/// A row for each kernel, format and architecture. Loads, stores and copies are those of 16 bytes.
fn usages(outcomes: &[Outcome]) -> String {
    let row = |words: [&str; 4], numbers: [String; 8]| {
        let [file, kernel, format, target] = words;
        let numbers: String = numbers.iter().map(|number| format!(" {number:>9}")).collect();
        format!("{file:20} {kernel:44} {format:6} {target:10}{numbers}\n")
    };
    let numbers = ["registers", "shared", "stack", "spilled", "loads", "stores", "copies", "products"];
    let mut table = row(["file", "kernel", "format", "for"], numbers.map(str::to_owned));
    for outcome in outcomes.iter().filter(|outcome| matches!(outcome.job.target, Target::Cubin(_))) {
        let job = &outcome.job;
        for usage in &outcome.kernels {
            let words = [stem(job.source), &usage.kernel, job.format.0, &job.target.to_string()];
            let has = outcome.instructions.iter().find(|has| has.kernel == usage.kernel);
            let Instructions { wide_loads, wide_stores, copies, products, .. } =
                has.cloned().unwrap_or_default();
            let Usage { registers, shared, stack, spilled, .. } = *usage;
            let numbers = [registers, shared, stack, spilled, wide_loads, wide_stores, copies, products];
            table += &row(words, numbers.map(|number| number.to_string()));
        }
    }
    table
}

/// The bytes to which each file is compiled, by format and target.
fn sizes(outcomes: &[Outcome]) -> String {
    let size = |Outcome { job, size, .. }: &Outcome| {
        format!("{:20} {:6} {:10} {size:>9} bytes\n", stem(job.source), job.format.0, job.target.to_string())
    };
    outcomes.iter().map(size).collect()
}

fn summary(outcomes: &[Outcome], nvrtc: String, seconds: f64) -> String {
    let of_target = |target| outcomes.iter().filter(move |outcome| outcome.job.target == target);
    let targets = TARGETS.map(|target| {
        let bytes: usize = of_target(target).map(|outcome| outcome.size).sum();
        format!("{target} ({} KiB)", bytes.div_ceil(1024))
    });
    let kernels: usize = of_target(TARGETS[0]).map(|outcome| outcome.kernels.len()).sum();
    let most = outcomes.iter().flat_map(|o| &o.kernels).map(|usage| usage.registers).max().unwrap_or(0);
    format!(
        "{kernels} kernels in {} formats for {} by NVRTC {nvrtc} in {seconds:.1} s; at most {most} registers",
        FORMATS.len(),
        targets.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_tensor_cuda::Error;

    const SOURCE: &Source = &Source { name: "a.cu", text: "", kernels: &["one", "two"] };
    const JOB: Job = Job { source: SOURCE, format: FORMATS[1], target: Target::Cubin(80) };

    fn compiled(log: &str) -> Result<Compiled, Error> {
        Ok(Compiled { image: vec![0; 3000], log: log.into() })
    }

    fn log(kernels: &[(&str, u32)]) -> String {
        let lines = kernels.iter().map(|(kernel, spilled)| {
            format!(
                "ptxas info    : Compiling entry function '{kernel}' for 'sm_80'\n\
                 ptxas    .     0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads\n\
                 ptxas info    : Used 40 registers, used 0 barriers\n"
            )
        });
        lines.collect()
    }

    #[test]
    fn a_good_file_is_no_trouble() {
        let outcome = Outcome::new(JOB, compiled(&log(&[("two", 0), ("one", 0)])), vec![]);
        assert_eq!(outcome.trouble, None);
        assert_eq!(usages(std::slice::from_ref(&outcome)).lines().count(), 3);
        assert!(sizes(std::slice::from_ref(&outcome)).contains("3000"));
        let summary = summary(&[outcome], "13.0".into(), 1.25);
        assert!(summary.starts_with("2 kernels in 3 formats for sm_80 (3 KiB), "), "{summary}");
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        let trouble = |result| Outcome::new(JOB, result, vec![]).trouble.unwrap_or_default();
        let spills = trouble(compiled(&log(&[("one", 8), ("two", 0)])));
        assert_eq!(spills, "a.cu for sm_80 with bf16 activations:\nkernel `one` spills 8 bytes of registers");
        let missing = trouble(compiled(&log(&[("one", 0)])));
        assert!(missing.contains("`two` is in the host's list and not in the file"), "{missing}");
        let unknown = trouble(compiled(&log(&[("one", 0), ("two", 0), ("three", 0)])));
        assert!(unknown.contains("`three` is not in the host's list"), "{unknown}");
        let warning = trouble(compiled(&format!("a.cu(1): warning\n{}", log(&[("one", 0), ("two", 0)]))));
        assert!(warning.contains("a.cu(1): warning"), "{warning}");
        let (file, target, log) = ("a.cu".into(), "sm_80".into(), "a.cu(7): error".into());
        let refused = trouble(Err(Error::Compile { file, format: "bf16", target, log }));
        assert!(refused.contains("a.cu(7): error"), "{refused}");
    }

    #[test]
    fn instructions_that_are_meant_may_not_be_missing() {
        let has = |kernel: &str| Instructions { kernel: kernel.into(), ..Instructions::default() };
        assert_eq!(lacks(&has("conv_fwd"), false), [""; 0]);
        let [copy, product] = ["no copy of 16 bytes", "no product on tensor cores"];
        assert_eq!(
            lacks(&has("conv_fwd"), true),
            [copy, product].map(|what| format!("kernel `conv_fwd` has {what}"))
        );
        assert_eq!(lacks(&Instructions { products: 16, ..has("conv_fwd_single") }, true), [""; 0]);
        assert_eq!(lacks(&has("fill_f32"), false), ["kernel `fill_f32` has no store of 16 bytes"]);
        let local = Instructions { local: 3, ..has("set_step") };
        assert_eq!(lacks(&local, false), ["kernel `set_step` has 3 instructions with local memory"]);
        for pattern in WANTED.iter().flat_map(|wanted| wanted.kernels) {
            let known =
                SOURCES.iter().flat_map(|source| source.kernels).any(|kernel| is_meant(pattern, kernel));
            assert!(known, "{pattern} is no kernel");
        }
    }

    #[test]
    fn the_names_of_ptx_are_compared_too() {
        let job = Job { target: Target::Ptx(75), ..JOB };
        let image = b".visible .entry one()\n{}\n\0".to_vec();
        let trouble = Outcome::new(job, Ok(Compiled { image, log: String::new() }), vec![]).trouble;
        assert!(trouble.is_some_and(|trouble| trouble.contains("`two`") && !trouble.contains("`one`")));
    }

    #[test]
    fn files_are_selected_by_name() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        assert_eq!(parse(&[]).unwrap().files.len(), SOURCES.len());
        let options = parse(&words(&["--summary", "step_state", "softmax.cu"])).unwrap();
        assert!(options.summary);
        assert_eq!(
            options.files.iter().map(|file| file.name).collect::<Vec<_>>(),
            ["step_state.cu", "softmax.cu"]
        );
        assert!(parse(&words(&["nonsense"])).err().unwrap().to_string().contains("step_state"));
    }
}
