//! The order in which the threads and blocks of a launch run.

use super::error;
use tensor_backend::Result;

/// The variable that fixes it.
const VARIABLE: &str = "TOWERS_EMULATION_ORDER";

/// A launch's order, as emulation/machine.h numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Sense {
    Forward = 0,
    Reverse = 1,
    Random = 2,
}

/// Hands each launch its order. A correct kernel gives the same bits in every one.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// None: each launch has the next of the three.
    sense: Option<Sense>,
    seed: u64,
    launches: u64,
}

impl Order {
    /// One for each launch, in turn.
    pub(super) fn alternating() -> Order {
        Order { sense: None, seed: 0, launches: 0 }
    }

    /// The same for all; `seed` counts in random order.
    #[cfg(test)]
    pub(super) fn fixed(sense: Sense, seed: u64) -> Order {
        Order { sense: Some(sense), seed, launches: 0 }
    }

    /// What `TOWERS_EMULATION_ORDER` says: `forward`, `reverse`, `random:SEED`; unset, they alternate.
    pub(super) fn from_environment() -> Result<Order> {
        std::env::var(VARIABLE).map_or_else(|_| Ok(Order::alternating()), |text| Order::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Result<Order> {
        let (sense, seed) = match text.split_once(':') {
            None if text == "forward" => (Sense::Forward, Some(0)),
            None if text == "reverse" => (Sense::Reverse, Some(0)),
            None if text == "random" => (Sense::Random, Some(0)),
            Some(("random", seed)) => (Sense::Random, seed.parse().ok()),
            _ => (Sense::Random, None),
        };
        let seed = seed.ok_or_else(|| {
            error(format!("{VARIABLE} is {text}: forward, reverse or random:SEED is known"))
        })?;
        Ok(Order { sense: Some(sense), seed, launches: 0 })
    }

    /// The next launch's, and the state that its draws begin with, which is not 0.
    pub(super) fn next(&mut self) -> (Sense, u64) {
        let launch = self.launches;
        self.launches += 1;
        let in_turn = [Sense::Forward, Sense::Reverse, Sense::Random][(launch % 3) as usize];
        // An odd factor tells the launches and seeds apart; the draws mix the rest.
        let state = (self.seed << 32 ^ (launch + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (self.sense.unwrap_or(in_turn), state)
    }
}
