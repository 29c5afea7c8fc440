//! Starts itself twice: `cargo run -p towers-launch --example two_ranks`

use std::process::ExitCode;
use towers_launch::Launch;
use towers_launch::rendezvous::{discover, variable};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    towers_launch::follow_launcher();
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
