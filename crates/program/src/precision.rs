use core::fmt;
use core::str::FromStr;

/// The number formats of a device's arithmetic. Parameters, gradients and optimizer state are f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 throughout.
    #[default]
    Fp32,
    /// f32 in memory; matrix products round their factors to 10 bits of mantissa.
    Tf32,
    /// Activations in bfloat16: the range of f32 with 7 bits of mantissa.
    Bf16,
    /// Activations in IEEE half precision, with the loss scaled so that small gradients survive.
    Fp16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 4] = [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16];

    /// The name that `--precision` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::Fp32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::Fp16 => "fp16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    /// # Errors
    /// A sentence that names the accepted words.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Precision::ALL.into_iter().find(|precision| precision.name() == text);
        known.ok_or_else(|| format!("is `{text}`, but must be one of fp32, tf32, bf16, fp16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert!("fp8".parse::<Precision>().unwrap_err().contains("`fp8`"));
    }
}
