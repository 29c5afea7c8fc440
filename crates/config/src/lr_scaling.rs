//! `--lr-scaling`: learning rates for batches that grow with the number of replicas.

use crate::config::refuse;
use crate::{Config, Error, Result};
use towers_optim::{LinearScaling, Progress, UpdateRule};
use towers_options::message;

/// The option of the warm-up.
const WARMUP: &str = "lr_scaling.warmup_epochs";

/// The default warm-up in epochs: that of Goyal et al.
const WARMUP_EPOCHS: u64 = 5;

impl Config {
    /// Sets `--lr-scaling`: `none`, `linear` if the learning rate is for the batch of one replica, or
    /// `linear:base=N` if it is for batches of N. A schedule with its own warm-up gets no second one.
    ///
    /// ```
    /// let mut config = towers_config::recipe("minigooglenet")?;
    /// config.set_lr_scaling("linear")?;
    /// assert_eq!(config.training.lr_scaling.map(|scaling| (scaling.base_batch, scaling.warmup_epochs)), Some((64, 5)));
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for anything else.
    pub fn set_lr_scaling(&mut self, text: &str) -> Result<()> {
        let base = match text {
            "none" => None,
            "linear" => Some(self.training.batch_size),
            _ => {
                let base = text.strip_prefix("linear:base=").and_then(|base| base.parse().ok());
                let refused = || {
                    let hint = towers_options::hint(text, ["none", "linear", "linear:base=N"]);
                    let accepted = format!(
                        "none, linear, or linear:base=N with the batch that the rate is for, at least 1{hint}"
                    );
                    Error::option("lr_scaling", format!("`{text}`"), accepted)
                };
                Some(base.filter(|base| *base > 0).ok_or_else(refused)?)
            }
        };
        let warmup_epochs = if self.training.schedule.warmup.is_some() { 0 } else { WARMUP_EPOCHS };
        self.training.lr_scaling = base.map(|base_batch| LinearScaling { base_batch, warmup_epochs });
        Ok(())
    }

    /// Sets the momentum of SGD.
    ///
    /// # Errors
    /// [`Error::Option`] for another optimizer, or a value outside of [0, 1).
    pub fn set_momentum(&mut self, momentum: f32) -> Result<()> {
        let refuse = |accepted: String| Err(Error::option("momentum", momentum, accepted));
        match &mut self.training.optimizer.rule {
            UpdateRule::Sgd(_) if !(0.0..1.0).contains(&momentum) => refuse("at least 0 and below 1".into()),
            UpdateRule::Sgd(sgd) => {
                sgd.momentum = momentum;
                Ok(())
            }
            other => refuse(format!("left out with {}, which has none", other.name())),
        }
    }

    /// Sets `--warmup-epochs`: the length of the warm-up of a scaled rate; 0 for none.
    ///
    /// # Errors
    /// [`Error::Option`] where the rate is not scaled.
    pub fn set_warmup_epochs(&mut self, epochs: u64) -> Result<()> {
        match &mut self.training.lr_scaling {
            Some(scaling) => {
                scaling.warmup_epochs = epochs;
                Ok(())
            }
            None => refuse(
                WARMUP,
                epochs,
                message!(
                    "left out without ",
                    ["lr_scaling"],
                    "; a ",
                    ["schedule"],
                    " such as poly+warmup:epochs=5 warms up from 0"
                ),
            ),
        }
    }

    pub(crate) fn check_lr_scaling(&self) -> Result<()> {
        let Some(scaling) = &self.training.lr_scaling else { return Ok(()) };
        scaling.validate()?;
        match self.training.schedule.warmup {
            Some(_) if scaling.warmup_epochs > 0 => {
                refuse(WARMUP, scaling.warmup_epochs, "0 with a schedule that has its own warm-up")
            }
            _ => Ok(()),
        }
    }

    /// The learning rate of a step on batches of `batch` samples over all replicas.
    pub fn lr_at(&self, batch: usize, progress: &Progress) -> f64 {
        let scale = self.training.lr_scaling.map_or(1.0, |scaling| scaling.factor(batch, progress));
        self.training.schedule.lr(self.training.lr, progress) * scale
    }

    /// A description of the scaled base rate.
    pub fn describe_lr_scaling(&self, batch: usize) -> Option<String> {
        let LinearScaling { base_batch, warmup_epochs } = self.training.lr_scaling?;
        // Rounded to a few digits.
        let full = self.training.lr * batch as f64 / base_batch as f64;
        let full = few_digits((full * 1e6).round() / 1e6);
        let warmup = match warmup_epochs {
            0 => String::new(),
            1 => ", reached within an epoch".to_owned(),
            epochs => format!(", reached within {epochs} epochs"),
        };
        let lr = few_digits(self.training.lr);
        Some(format!("Learning rate {lr} for batches of {base_batch}: {full} for batches of {batch}{warmup}"))
    }
}

/// A number with few digits, however large it is.
fn few_digits(number: f64) -> String {
    if number.is_finite() && number.abs() >= 1e16 { format!("{number:e}") } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use crate::recipe;
    use towers_optim::Progress;
    use towers_options::Message;

    #[test]
    fn rates_grow_with_the_batch_and_over_the_warm_up() {
        let mut config = recipe("minigooglenet").unwrap();
        let at = |step| Progress::at_step(step, 10, 70);
        let plain = config.lr_at(256, &at(0));
        assert_eq!((plain, config.describe_lr_scaling(256)), (0.005, None));
        config.set_lr_scaling("linear").unwrap();
        assert_eq!(
            (config.lr_at(64, &at(33)), config.lr_at(256, &at(0))),
            (recipe("minigooglenet").unwrap().lr_at(9, &at(33)), 0.005)
        );
        assert_eq!(config.lr_at(256, &at(350)), 0.01);
        let said = config.describe_lr_scaling(256).unwrap();
        assert_eq!(
            said,
            "Learning rate 0.005 for batches of 64: 0.02 for batches of 256, reached within 5 epochs"
        );
        config.set_warmup_epochs(0).unwrap();
        assert_eq!(config.lr_at(256, &at(0)), 0.02);
        config.set_lr_scaling("linear:base=512").unwrap();
        assert_eq!(config.lr_at(256, &at(350)), 0.00125);
        config.set_lr_scaling("none").unwrap();
        assert_eq!(config.training.lr_scaling, None);
    }

    #[test]
    fn there_is_one_warm_up() {
        let mut config = recipe("quick").unwrap();
        assert!(
            config.set_warmup_epochs(5).unwrap_err().to_string().contains("left out without `lr_scaling`")
        );
        config.training.schedule = "cosine+warmup:epochs=2".parse().unwrap();
        config.set_lr_scaling("linear").unwrap();
        assert_eq!(config.training.lr_scaling.unwrap().warmup_epochs, 0);
        assert!(config.check().is_ok());
        config.set_warmup_epochs(3).unwrap();
        let error = config.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "`lr_scaling.warmup_epochs` is 3, but must be 0 with a schedule that has its own warm-up"
        );
    }

    #[test]
    fn a_warm_up_longer_than_the_run_is_odd() {
        let mut config = recipe("quick").unwrap();
        config.training.epochs = 5;
        config.set_lr_scaling("linear").unwrap();
        assert!(config.warnings().is_empty());
        config.set_warmup_epochs(6).unwrap();
        let says = "the warm-up takes 6 epochs of 5: the learning rate never reaches its full value";
        assert_eq!(config.warnings(), [Message::from(says)]);
        config.training.schedule = "cosine+warmup:epochs=9".parse().unwrap();
        assert!(config.warnings()[0].to_string().contains("takes 9 epochs of 5"));
    }

    #[test]
    fn mistakes_are_told() {
        let mut config = recipe("quick").unwrap();
        for text in ["sqrt", "linear:base=0", "linear:base=", "linear:64", "linear:base=-1", ""] {
            let error = config.set_lr_scaling(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`lr_scaling` is `{text}`, but must be none, linear")),
                "{error}"
            );
        }
    }
}
