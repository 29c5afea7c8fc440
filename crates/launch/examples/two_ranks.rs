//! Starts itself twice: `cargo run -p towers-launch --example two_ranks`

use launch::Launch;
use launch::rendezvous::{discover, variable};
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    launch::follow_launcher();
    let Some(place) = discover(variable)? else {
        let end = Launch::new(2).restarts(1).verbose(true).run()?;
        return Ok(end.status().into());
    };
    // The first start fails.
    if place.restart == 0 && place.rank == 1 {
        return Err("this is an accident".into());
    }
    println!("rank {} of {}, restart {}", place.rank, place.world, place.restart);
    Ok(ExitCode::SUCCESS)
}
