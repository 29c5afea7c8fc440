//! The released program on stand-ins for CUDA: from the command line to calls into the driver,
//! cuDNN, cuBLASLt and NCCL. (The program under test could emulate GPUs too, and does not here.)

use crate::Place;
use crate::ranks::{end, ranks, signal, spawn, wait_for_epochs};
use crate::stand_ins::StandIns;
use std::fs;
use std::process::{Command, Stdio};

const TRAIN: &str = "train --recipe quick --dataset synthetic --limit-train 20 --limit-test 8 --global-batch-size 8 --epochs 2 \
                     --virtual-replicas 2 --no-progress --check-device never --device cuda";

/// A folder with the stand-ins; `None` without a compiler.
fn with_cuda() -> Option<(Place, &'static StandIns)> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tensor-cuda/emulation");
    Some((Place::new(), StandIns::find(sources, "the program on stand-ins for CUDA")?))
}

/// A command that finds two GPUs.
fn command((place, stand_ins): &(Place, &StandIns), args: &str) -> Command {
    let mut command = place.command(args);
    stand_ins.prepare(&mut command, true, place.path());
    command.env("FAKE_GPUS", "2").env("FAKE_MEMORY", "536870912");
    command
}

/// Runs it, which must succeed, and returns its output.
fn run(cuda: &(Place, &StandIns), args: &str) -> [String; 2] {
    run_with(cuda, args, &[])
}

/// The same with more variables for the stand-ins.
fn run_with(cuda: &(Place, &StandIns), args: &str, told: &[(&str, &str)]) -> [String; 2] {
    let output = command(cuda, args).envs(told.iter().copied()).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && !err.contains("FAKE:"), "{args}: {}\n{out}{err}", output.status);
    [out, err]
}

#[test]
fn any_number_of_gpus_trains_the_same_network() {
    let Some(cuda) = with_cuda() else { return };
    let [devices, _] = run(&cuda, "devices");
    for said in
        ["cuda:1: Fake, compute capability 9.0", "cuda:0 computes with cuDNN 9.19.0", "  NCCL 2.28.9 in "]
    {
        assert!(devices.contains(said), "{devices}");
    }
    run(&cuda, &format!("{TRAIN} --gpus 1 --output one"));
    for (name, how) in [
        ("two", format!("{TRAIN} --gpus 2")),
        ("towers", format!("{TRAIN} --gpus 0,0")),
        ("processes", format!("launch -- {TRAIN}")),
    ] {
        run(&cuda, &format!("{how} --output {name}"));
        assert!(cuda.0.model(name) == cuda.0.model("one"), "{name}: another network");
    }
}

/// cuDNN computes a wrong gradient. The first run on this GPU finds it, and our own kernels are a way around.
/// Algorithms that fail, and libraries that are missing, are no wrong results.
#[test]
fn a_wrong_result_ends_the_first_run_and_what_passed_is_remembered() {
    let Some(cuda) = with_cuda() else { return };
    let train = "train --recipe quick --dataset synthetic --limit-train 4 --limit-test 2 --batch-size 4 --epochs 1 \
                 --no-progress --device cuda";
    let (wrong, fails) = (("FAKE_CUDNN_WRONG", "filter"), ("FAKE_CUBLASLT_FAILS", "0:recorded:14"));
    let run = |args: &str, output: &str, (variable, value): (&str, &str)| {
        let mut command = command(&cuda, &format!("{train} {args} --output {output}"));
        let output = command.env(variable, value).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let passed = cuda.0.path().join("checked-devices.txt");
    let (code, said) = run("--precision tf32", "first", wrong);
    for part in [
        "error: the first step on Fake (cuda:0) is not that of the CPU (",
        "conv2d_weight_gradient of conv2d",
        "relative to the largest, results differ by ",
        "; try --kernels own, or --kernels library; `towers selftest` writes a report for an issue",
        "--check-device never trains without this check",
    ] {
        assert!(code == Some(1) && said.contains(part), "{part}: {code:?} {said}");
    }
    assert!(
        fs::read_to_string(&passed).is_ok_and(|lines| lines.is_empty())
            && !cuda.0.path().join("first/model.safetensors").exists()
    );
    assert_eq!(run("--kernels own --precision fp16", "own", wrong).0, Some(0));
    let (code, said) = run("--precision tf32", "second", fails);
    assert_eq!(
        (code, said.matches("warning: another algorithm takes the place of one that failed: ").count()),
        (Some(0), 1),
        "{said}"
    );
    let lines = cuda.0.read("checked-devices.txt");
    let [own, auto] = [0, 1].map(|k| lines.lines().nth(k).unwrap_or_default());
    assert!(own.starts_with("Fake, the NVIDIA driver 13.") && own.ends_with("fp16, kernels own"), "{lines}");
    assert!(auto.contains("cuDNN 9.19.0") && auto.ends_with("tf32, kernels auto"), "{lines}");
    assert_eq!(run("--precision tf32", "third", wrong).0, Some(0), "it has passed");
    assert_eq!(run("--precision tf32 --check-device always", "fourth", wrong).0, Some(1));
    assert_eq!(cuda.0.read("checked-devices.txt"), lines);
    let without = |args: &str, output: &str| {
        let mut command = command(&cuda, &format!("{train} --check-device never {args} --output {output}"));
        cuda.1.prepare(&mut command, false, cuda.0.path());
        String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned()
    };
    let said = without("--precision fp16", "without");
    assert!(said.contains("warning: our own kernels take the place of a library: cuDNN "), "{said}");
    assert!(cuda.0.model("without") == cuda.0.model("own"), "the check changes the bits of a run");
    let said = without("--kernels library", "library");
    assert!(said.contains("error: ") && said.contains("cuBLASLt "), "{said}");
}

/// The table and the report name the wrong result, and no file of this machine.
#[test]
fn a_self_test_finds_a_wrong_result() {
    let Some(cuda) = with_cuda() else { return };
    let mut selftest = command(&cuda, "selftest --device cuda --precision tf32 --only convolution");
    let output = selftest.env("FAKE_CUDNN_WRONG", "forward").output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(
        err.contains("error: 1 of 1 tests failed on Fake; please attach towers-selftest.md to an issue"),
        "{err}"
    );
    let row = |name: &str, word: &str| {
        assert!(out.lines().any(|line| line.contains(name) && line.ends_with(word)), "{name}: {out}");
    };
    row("tf32  convolution ", "  FAILED");
    assert!(
        out.contains("\nconvolution in tf32: layers_of_real_networks: y of Convolution { conv: Conv2d { "),
        "{out}"
    );
    assert!(out.contains("; try --kernels own, or --kernels library\n"), "{out}");
    let report = cuda.0.read("towers-selftest.md");
    assert!(
        report.contains("\n- tf32: cuDNN 9.19.0\n") && report.contains("| tf32 | convolution | "),
        "{report}"
    );
    let private = cuda.0.path().to_str().unwrap();
    assert!(!report.contains(private) && !report.contains("/tmp") && !report.contains("libcu"), "{report}");
}

/// GPUs of one process, with NCCL in captured steps and batches of two sizes. Allocations in this driver wait
/// for all GPUs; there is no deadlock.
#[test]
fn gpus_of_one_process_do_not_wait_for_each_other_without_end() {
    let Some(cuda) = with_cuda() else { return };
    let train = "train --recipe quick --dataset synthetic --limit-train 10 --limit-test 4 --global-batch-size 4 --epochs 2 \
                 --no-progress";
    let losses = ["cuda --gpus", "cpu --replicas"].map(|device| {
        let told = [("FAKE_WAITS", "1"), ("FAKE_PACE", "eager")];
        let output = device.replace(" --", "-");
        run_with(&cuda, &format!("{train} --device {device} 2 --output {output}"), &told);
        let history = cuda.0.read(&format!("{output}/history.csv"));
        let loss = |row: &str| row.split(',').nth(1)?.parse().ok();
        history.lines().skip(1).map(|row| loss(row).unwrap()).collect::<Vec<f64>>()
    });
    let [gpus, cpus] = &losses;
    assert_eq!((gpus.len(), cpus.len()), (2, 2));
    assert!(gpus.iter().zip(cpus).all(|(gpu, cpu)| (gpu - cpu).abs() < 1e-3 * cpu), "{losses:?}");
}

/// The driver is too old. By itself the program continues without the GPU, and says why. With `--device cuda` the
/// same sentence is the error.
#[test]
fn a_gpu_with_an_old_driver_is_not_ignored_in_silence() {
    let Some(cuda) = with_cuda() else { return };
    let auto = TRAIN.replace("--device cuda", "--epochs 1").replacen("--epochs 2 ", "", 1);
    let said = |args: &str, succeeds: bool| {
        let output = command(&cuda, args).env("FAKE_VERSION", "12020").output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), succeeds, "{args}: {err}");
        err
    };
    let why = "Fake is there, but can't be used: the NVIDIA driver 12.2 in /";
    let mends = "is too old, for at least 12.4 is needed; install NVIDIA driver 550 or newer";
    let on_cpu = said(&format!("{auto} --output auto"), true);
    let warning = on_cpu.lines().find(|line| line.contains(&format!("warning: {why}")));
    assert!(
        warning.is_some_and(|line| line.contains(mends) && line.ends_with("; the CPU computes instead")),
        "{on_cpu}"
    );
    for other in ["evaluate auto --limit-test 8", "bench --recipe quick --batch 2 --seconds 0 --repeats 1"] {
        let on_cpu = said(other, true);
        assert!(on_cpu.contains(&format!("warning: {why}")), "{other}: {on_cpu}");
    }
    let on_gpu = said(&format!("{auto} --device cuda --output cuda"), false);
    assert!(on_gpu.contains(&format!("error: {why}")) && on_gpu.contains(mends), "{on_gpu}");
    let in_fp16 = said(&format!("{auto} --precision fp16 --output half"), false);
    assert!(in_fp16.contains(why) && in_fp16.contains(mends) && !in_fp16.contains("AMX"), "{in_fp16}");
    assert!(!said(&format!("{auto} --device cpu --output cpu"), true).contains("Fake"));
}

/// A folder of an older CUDA comes first, whose libraries have names without a version.
#[test]
fn libraries_are_found_by_the_names_of_wheels() {
    let Some(cuda) = with_cuda() else { return };
    let mut devices = command(&cuda, "devices");
    let folder = cuda.0.path().join("older");
    fs::create_dir_all(&folder).unwrap();
    cuda.1.prepare_as_wheels(&mut devices, &folder);
    let output = devices.output().unwrap();
    let devices = String::from_utf8_lossy(&output.stdout);
    for said in ["cuda:0 computes with cuDNN 9.19.0", "  NCCL 2.28.9 in "] {
        assert!(devices.contains(said), "{devices}");
    }
}

/// NCCL in captured steps, in half precision. Then a rank is killed, and all ranks restart from a checkpoint.
#[test]
fn a_killed_process_is_named_and_the_job_goes_on() {
    let Some(cuda) = with_cuda() else { return };
    let train =
        TRAIN.replace("--no-progress", "--precision bf16 --no-progress").replace("--epochs 2", "--epochs 6");
    run(&cuda, &format!("launch -- {train} --output straight"));
    let restarts = "launch --max-restarts 1 --grace 5 --verbose --";
    let launcher = spawn(command(&cuda, &format!("{restarts} {train} --collective-timeout 60 --output run")));
    let ranks = ranks(&launcher, 2);
    wait_for_epochs(&cuda.0, "run", 2);
    signal("-KILL", &ranks[&1]);
    let ran = end(launcher).ends(0).complains("resuming from run/checkpoints");
    let ran = ran.complains("error: stopped because rank 1 (127.0.0.1) has ended unexpectedly");
    assert!(!ran.err().contains("FAKE:"), "{}", ran.err());
    assert!(cuda.0.model("run") == cuda.0.model("straight"), "the restarted run is another run");
}

/// A library's algorithm that can't be captured is replaced by its next one, and the step is captured.
#[test]
fn a_step_is_recorded_without_what_can_not_be() {
    let Some(cuda) = with_cuda() else { return };
    let bench = "bench --recipe quick --batch 2 --seconds 0 --repeats 1 --device cuda --json";
    let mut command = command(&cuda, bench);
    let output = command.env("FAKE_CUBLASLT_FAILS", "0:recorded:14").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    // The stand-ins print other lines.
    let object = out.lines().find(|line| line.starts_with('{')).unwrap();
    let measured: serde_json::Value = serde_json::from_str(object).unwrap();
    assert!(measured["not_recorded"].is_null(), "{measured}");
}

/// Options that decide bits stay without being repeated, such as half precision.
#[test]
fn a_resumed_run_stays_what_it_was() {
    let Some(cuda) = with_cuda() else { return };
    let train = TRAIN.replace("--virtual-replicas 2", "--precision bf16 --schedule constant");
    run(&cuda, &format!("{train} --output straight"));
    run(&cuda, &format!("{} --output parts", train.replace("--epochs 2", "--epochs 1")));
    run(&cuda, "train --resume parts --epochs 2 --no-progress");
    assert!(cuda.0.model("parts") == cuda.0.model("straight"), "another run");
    let settings: String = cuda.0.read("parts/config.json").split_whitespace().collect();
    assert!(settings.contains(r#""precision":"bf16""#), "{settings}");
}
