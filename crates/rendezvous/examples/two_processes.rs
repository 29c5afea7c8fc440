//! Two processes meet, and one of them is lost: `cargo run -p towers-rendezvous --example two_processes`

use std::{net::TcpListener, process::Command, thread::sleep, time::Duration};
use towers_rendezvous::{Agreement, Settings, Watchdog, connect, discover, variable};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(place) = discover(variable)? else {
        // In place of a launcher: starts this program twice, with the variables of torchrun.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let all = [("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("TOWERS_RENDEZVOUS_PORT", &port)];
        let start = |rank| Command::new(std::env::current_exe()?).envs(all).env("RANK", rank).spawn();
        return Ok([start("0")?, start("1")?].iter_mut().try_for_each(|child| child.wait().map(drop))?);
    };
    let mut group = connect(&place, &Settings::discover(variable)?)?;
    let said = group.agree(Agreement::new().with("the batch size", 64), b"begin")?;
    let watch = Watchdog::start(group, Duration::from_secs(60))?;
    println!("rank {} of {} may {}", place.rank, place.world, String::from_utf8_lossy(&said));
    while place.rank == 0 && watch.failed().is_none() {
        sleep(Duration::from_millis(10));
    }
    println!("{}", watch.failed().unwrap_or("rank 1 ends without a word".into()));
    Ok(())
}
