use crate::{EpochRecord, Flow, Observer, Result, RunInfo, Snapshot, TrainState};
use std::time::{Duration, Instant};
use towers_options::Refused;

/// Reads a time such as `90m`, `1h30m` or `20s`, and gives its seconds.
///
/// # Errors
/// What is accepted.
pub(crate) fn seconds(text: &str) -> Result<serde_json::Value, Refused> {
    let refuse = || Refused::MustBe("a time such as 90m, 1h30m or 20s, at least 1 second".into());
    let (mut all, mut digits) = (0_u64, String::new());
    for ch in text.chars() {
        let unit = match ch {
            '0'..='9' => {
                digits.push(ch);
                continue;
            }
            'd' => 86_400,
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return Err(refuse()),
        };
        let part = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        all = part.and_then(|part| all.checked_add(part)).ok_or_else(refuse)?;
        digits.clear();
    }
    // A number alone is seconds.
    let rest = if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let all = rest.and_then(|rest: u64| all.checked_add(rest)).ok_or_else(refuse)?;
    if all == 0 { Err(refuse()) } else { Ok(all.into()) }
}

/// Stops a run after the step in which its time is over: Lightning's `max_time`. A resume has the whole time again.
///
/// ```
/// use towers_callbacks::MaxTime;
///
/// let observer = MaxTime::new(std::time::Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct MaxTime {
    time: Duration,
    began: Option<Instant>,
}

impl MaxTime {
    /// Stops a run that takes longer than `time`.
    pub fn new(time: Duration) -> Self {
        MaxTime { time, began: None }
    }
}

impl Observer for MaxTime {
    fn on_begin(&mut self, _: &RunInfo<'_>) -> Result<()> {
        // A run that continues after others were lost begins again.
        self.began.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn is_over(&mut self) -> Option<String> {
        let over = self.began.is_some_and(|began| began.elapsed() >= self.time);
        over.then(|| format!("the time of {} s is over", self.time.as_secs()))
    }

    fn on_epoch_end(&mut self, _: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        Ok(self.is_over().map_or(Flow::Continue, Flow::Stop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state};

    #[test]
    fn times_are_read_with_their_units() {
        for (text, expected) in [("20", 20), ("20s", 20), ("90m", 5400), ("1h30m", 5400), ("2d1s", 172_801)] {
            assert_eq!(seconds(text), Ok(expected.into()));
        }
        for text in ["", "0", "0h", "m", "1.5h", "-3", "99999999999999999999", "9999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_stops_when_its_time_is_over() {
        let (record, state) = (record(1, [0.0; 4]), state(vec![]));
        for (time, stops) in [(Duration::ZERO, true), (Duration::from_secs(1000), false)] {
            let mut observer = MaxTime::new(time);
            observer.on_begin(&run(9, &state)).unwrap();
            assert_eq!(observer.is_over().is_some(), stops);
            let flow = observer.on_epoch_end(&record, &state, &Fake(0.0)).unwrap();
            assert_eq!(flow != Flow::Continue, stops);
        }
    }
}
