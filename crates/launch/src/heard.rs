//! The signals that a launcher has heard.

use crate::Result;
use crate::signals::{ONE_REQUEST, Signal, on_signals};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// The signals of a whole launch, so that one between two starts is not lost.
pub struct Heard {
    signals: Receiver<Signal>,
    /// When the first signal came that ends the launch.
    stopped: Option<Instant>,
    /// Whether a signal was passed on that may end a run.
    of_user: bool,
}

/// The answer to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Pass the signal on to the processes.
    PassOn(Signal),
    /// End the processes at once.
    Kill,
}

impl Heard {
    /// Listens from now on.
    pub fn listen() -> Result<Heard> {
        let (sender, signals) = channel();
        on_signals(move |signal| _ = sender.send(signal))?;
        Ok(Heard { signals, stopped: None, of_user: false })
    }

    /// The next order, if a signal has come.
    pub fn next(&mut self) -> Option<Order> {
        while let Ok(signal) = self.signals.try_recv() {
            let order = self.order(signal);
            if order.is_some() {
                return order;
            }
        }
        None
    }

    fn order(&mut self, signal: Signal) -> Option<Order> {
        if signal.is_of_user() {
            self.of_user = true;
            return Some(Order::PassOn(signal));
        }
        let again = self.stopped.replace(self.stopped.unwrap_or_else(Instant::now));
        match again {
            None => Some(Order::PassOn(signal)),
            Some(first) if signal == Signal::Interrupt && first.elapsed() >= ONE_REQUEST => Some(Order::Kill),
            Some(_) => None,
        }
    }

    /// Whether the launch was asked to stop.
    pub fn stops(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether a process may be interrupted because of a signal.
    pub fn may_interrupt(&self) -> bool {
        self.stops() || self.of_user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_ctrl_c_ends_all_at_once() {
        let mut heard = Heard { signals: channel().1, stopped: None, of_user: false };
        for (signal, order) in [
            (Signal::User1, Some(Order::PassOn(Signal::User1))),
            (Signal::Terminate, Some(Order::PassOn(Signal::Terminate))),
            (Signal::Interrupt, None),
            (Signal::HangUp, None),
            (Signal::User2, Some(Order::PassOn(Signal::User2))),
        ] {
            assert_eq!(heard.order(signal), order, "{signal:?}");
        }
        heard.stopped = Instant::now().checked_sub(ONE_REQUEST);
        assert_eq!(heard.order(Signal::Terminate), None);
        assert_eq!(heard.order(Signal::Interrupt), Some(Order::Kill));
    }
}
