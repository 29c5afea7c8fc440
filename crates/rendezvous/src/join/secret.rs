use crate::cluster::{Environment, Place};
use crate::{Error, Result};
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;

const VARIABLE: &str = "TOWERS_JOB_SECRET";
const FILE: &str = "TOWERS_JOB_SECRET_FILE";
/// Shorter secrets can be guessed from the messages.
const SHORTEST: usize = 16;
const LONGEST: u64 = 4096;

/// The secret that the processes of a job share. It is never shown, and only its digest is kept.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret of a job.
    ///
    /// # Errors
    /// If it has fewer than 16 bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret> {
        Secret::checked(bytes.into(), VARIABLE)
    }

    /// A new secret of 32 random bytes, in hexadecimal digits.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn draw() -> Result<String> {
        Ok(random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The secret in `TOWERS_JOB_SECRET`, or in the file that `TOWERS_JOB_SECRET_FILE` names, without
    /// trailing white space.
    pub(super) fn discover(env: &Environment<'_>) -> Result<Option<Secret>> {
        match (env.text(VARIABLE), env.text(FILE)) {
            (None, None) => Ok(None),
            (Some(text), None) => Secret::new(text).map(Some),
            (None, Some(path)) => Secret::checked(read(&path)?, FILE).map(Some),
            (Some(_), Some(path)) => {
                Err(Error::variable(FILE, &path, format!("left out where {VARIABLE} is set")))
            }
        }
    }

    /// Stands for the secret of processes that connect on one machine without one.
    pub(super) fn none() -> Secret {
        Secret(Sha256::digest(b"").into())
    }

    /// The secret of one start of a job. Processes of an earlier start, or of another job, do not know it.
    /// Starts by torchrun have no number that all ranks know.
    pub(super) fn of_start(&self, place: &Place) -> Secret {
        let job = place.job.as_deref().unwrap_or_default().as_bytes();
        Secret(self.authenticate(&[b"job ", job, b" start ", &place.start().to_le_bytes()]))
    }

    fn checked(mut bytes: Vec<u8>, variable: &'static str) -> Result<Secret> {
        bytes.truncate(bytes.trim_ascii_end().len());
        if bytes.len() < SHORTEST {
            let (value, accepted) =
                (format!("a secret of {} bytes", bytes.len()), format!("one of at least {SHORTEST}"));
            return Err(Error::Variable { variable, value, accepted });
        }
        Ok(Secret(Sha256::digest(&bytes).into()))
    }

    /// The HMAC of some parts, one after another.
    pub(super) fn authenticate(&self, parts: &[&[u8]]) -> [u8; 32] {
        mac(&self.0, parts).finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| Error::variable(FILE, path, format!("a file that can be read ({error})")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::variable(FILE, path, format!("a file of at most {LONGEST} bytes")));
    }
    Ok(bytes)
}

/// An HMAC-SHA256 over some parts.
pub(super) fn mac(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC fills short keys up with zeros.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Meeting(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes)
}
