//! A view of your own: one line in the terminal, while another thread trains.
//! `cargo run --release -p towers-live --example status_line`

use std::{thread, time::Duration};
use towers_live::LiveStatus;
use towers_train::{Training, cifar};

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = towers_config::recipe("quick")?;
    (config.training.epochs, config.placement.devices.threads) = (2, 1);
    let status = LiveStatus::default();
    let observer = status.clone();
    let training = thread::spawn(move || {
        Training::new(&config, cifar::synthetic(1, 150, 50)).observers(&mut [Box::new(observer)]).run()
    });
    let mut shown = String::new();
    while !training.is_finished() {
        let (share, words) = status.now().progress();
        let line = format!("[{:<20}] {words}", "#".repeat((20.0 * share) as usize));
        if line != shown {
            println!("{line}");
        }
        shown = line;
        thread::sleep(Duration::from_millis(20));
    }
    training.join().expect("it does not panic")?;

    let end = status.now();
    let (epoch, accuracy) = end.best().ok_or("no epoch was validated")?;
    println!("The best epoch was {epoch}, with an accuracy of {accuracy:.3}.");
    assert_eq!((end.history.len(), end.points("val_loss").len()), (2, 2));
    assert!(!shown.is_empty() && (0.0..=1.0).contains(&accuracy));
    Ok(())
}
