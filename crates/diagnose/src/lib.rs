#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod device_check;
mod error;
#[cfg_attr(not(feature = "cuda"), path = "no_gpus.rs")]
mod gpus;
mod report;
mod sample_step;
mod selftest;

pub use device_check::{check_devices, check_new_devices};
pub use error::{Error, Result};
pub use report::{SelfTestReport, TestRow};
pub use sample_step::{REPLAY, SampleStep, comparison_device};
pub use selftest::SelfTest;
