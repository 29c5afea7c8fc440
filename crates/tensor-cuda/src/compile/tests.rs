use super::*;
use crate::format::Format;
use crate::kernels::{FORMATS, SOURCES};
use std::cell::Cell;

/// A job with a source for tests.
fn job(text: &'static str) -> Job {
    let source = Box::leak(Box::new(Source { name: "test.cu", text, kernels: &["one"] }));
    Job { source, format: FORMATS[0], target: Target::Cubin(90) }
}

#[test]
fn a_gpu_gets_its_own_code_or_that_of_the_newest_before_it() {
    let known = [75, 80, 86, 90, 100, 120];
    assert_eq!(Target::of(90, &known), Some(Target::Cubin(90)));
    assert_eq!(Target::of(87, &known), Some(Target::Ptx(86)));
    assert_eq!(Target::of(130, &known), Some(Target::Ptx(120)));
    assert_eq!(Target::of(70, &known), None);
}

/// An old NVRTC compiles for GPUs that are too old for our kernels, and PTX of a new one is not for an old driver.
#[test]
fn nvrtc_and_driver_together_decide() {
    let nvrtc =
        |minor, known: &[u32]| Nvrtc { version: Version::new(12, minor, 0), architectures: known.into() };
    let driver = |minor| Some(Version::new(12, minor, 0));
    let (old, new) = (nvrtc(4, &[50, 60, 70, 75, 80, 86, 90]), nvrtc(8, &[70, 75, 80, 86, 90, 100, 120]));
    let error = old.target_on(driver(4), "Volta", 70).unwrap_err().to_string();
    assert!(error.starts_with("Volta has compute capability 7.0, but at least 7.5 is needed"), "{error}");
    // A newer GPU than NVRTC knows, on a driver that does.
    assert_eq!(old.target_on(driver(8), "Blackwell", 120), Ok(Target::Ptx(90)));
    assert_eq!(old.target_on(driver(4), "Orin", 87), Ok(Target::Ptx(86)));
    assert_eq!(new.target_on(driver(4), "Hopper", 90), Ok(Target::Cubin(90)));
    assert_eq!(new.target_on(None, "Orin", 87), Ok(Target::Ptx(86)));
    let error = new.target_on(driver(4), "Orin", 87).unwrap_err().to_string();
    assert!(
        error.starts_with("NVRTC 12.8 has no code for Orin but PTX, which a driver of CUDA 12.4 is"),
        "{error}"
    );
}

#[test]
fn all_that_decides_about_the_result_is_in_the_key() {
    let one = job("// 1");
    let version = Version::new(13, 0, 0);
    let others = [
        (job("// 2"), version),
        (Job { format: FORMATS[1], ..one }, version),
        (Job { target: Target::Cubin(80), ..one }, version),
        (Job { target: Target::Ptx(90), ..one }, version),
        (one, Version::new(13, 1, 0)),
    ];
    assert_eq!(one.key(version), job("// 1").key(version));
    for (other, version) in others {
        assert_ne!(other.key(version), one.key(Version::new(13, 0, 0)), "{other:?}");
    }
}

#[test]
fn only_what_is_not_stored_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path());
    let keys: Vec<Key> = ["a", "b", "c"].map(|text| Key::new("label", [text.as_bytes()])).into();
    let asked = Cell::new(vec![]);
    let make = |missing: &[usize]| {
        asked.set(missing.to_vec());
        Ok(missing.iter().map(|&k| vec![k as u8]).collect())
    };
    assert_eq!(load_or_make(&cache, &keys[1..2], make).unwrap(), (vec![vec![0]], 1));
    assert_eq!(load_or_make(&cache, &keys, make).unwrap(), (vec![vec![0], vec![0], vec![2]], 2));
    assert_eq!(asked.take(), [0, 2]);
    assert_eq!(load_or_make(&cache, &keys, make).unwrap(), (vec![vec![0], vec![0], vec![2]], 0));
    assert_eq!(asked.take(), [0usize; 0]);
}

#[test]
fn what_can_not_be_made_is_an_error_and_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path());
    let keys = [Key::new("label", [])];
    let error = job("").refused("line 1: no".into());
    assert_eq!(load_or_make(&cache, &keys, |_| Err(error.clone())), Err(error));
    assert_eq!(cache.load(&keys[0]), None);
}

#[test]
fn formats_stand_in_their_order_and_kernels_have_one_name_each() {
    let order = [(Format::F32, "f32"), (Format::Bf16, "bf16"), (Format::F16, "f16")];
    for (number, (format, name)) in order.into_iter().enumerate() {
        assert_eq!(FORMATS[format as usize], (name, number as u32));
    }
    let mut names: Vec<&str> = SOURCES.iter().flat_map(|source| source.kernels).copied().collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

#[test]
fn what_nvrtc_says_becomes_part_of_the_sentence() {
    let (name, hint) = ("X".to_owned(), Some("mend it"));
    let error = Error::Call { call: "f", name: name.clone(), text: name, hint };
    assert_eq!(with_text(error.clone(), " \n"), error);
    let error = with_text(error, "can't open a.\n  Mind a.\n").to_string();
    assert_eq!(error, "f failed with X: can't open a. Mind a; mend it");
}

/// NVRTC, if it is installed. `cargo xtask kernels` runs the compiler in any case.
fn nvrtc() -> Option<Nvrtc> {
    Nvrtc::find().map_err(|error| println!("SKIPPED: compiling: {error}")).ok()
}

#[test]
fn nvrtc_compiles_and_says_where_an_error_is() {
    let Some(nvrtc) = nvrtc() else { return };
    let good = job("#include \"towers.cuh\"\nKERNEL one(float* x) { *x = 1.0f; }");
    assert!(nvrtc.compile(&good, &[]).unwrap().image.starts_with(b"\x7fELF"));
    let ptx = nvrtc.compile(&Job { target: Target::Ptx(75), ..good }, &[]).unwrap().image;
    assert!(ptx.ends_with(b"\0") && String::from_utf8_lossy(&ptx).contains(".visible .entry one"));
    let error = nvrtc.compile(&job("\nnonsense;"), &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("test.cu does not compile for sm_90 with f32 activations:\ntest.cu(2): error"),
        "{error}"
    );
    assert!(nvrtc.compile(&job("\0"), &[]).unwrap_err().to_string().contains("zero byte"));
}

#[test]
fn many_files_keep_their_order() {
    let Some(nvrtc) = nvrtc() else { return };
    let jobs: Vec<Job> = ["KERNEL a() {}", "KERNEL b() {}", "nonsense", "KERNEL c() {}"]
        .map(|text| job(String::leak(format!("#include \"towers.cuh\"\n{text}"))))
        .map(|job| Job { target: Target::Ptx(80), ..job })
        .into();
    let all = nvrtc.compile_all(&jobs, &[]);
    for (k, name) in [(0, "entry a("), (1, "entry b("), (3, "entry c(")] {
        assert!(String::from_utf8_lossy(&all[k].as_ref().unwrap().image).contains(name));
    }
    assert!(all[2].is_err());
    assert!(nvrtc.compile_all(&[], &[]).is_empty());
}

#[test]
fn the_second_start_compiles_nothing() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::in_folder(folder.path());
    let jobs = [Job { source: &SOURCES[0], format: FORMATS[0], target: Target::Cubin(90) }];
    let (first, compiled) = nvrtc.images(&cache, &jobs).unwrap();
    assert_eq!(compiled, 1);
    assert_eq!(nvrtc.images(&cache, &jobs).unwrap(), (first, 0));
}
