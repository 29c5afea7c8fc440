//! The processes of a schedule: they meet, agree, and train a few steps.

use crate::cluster::{Place, Source};
use crate::join::{Secret, Settings, Watchdog, connect};
use crate::network::Network;
use crate::plan::{Different, Fault, Member, Plan};
use crate::system::{Instant, TcpStream, address, sleep};
use crate::world::{self, Event, World, with};
use crate::{Agreement, Error};
use core::time::Duration;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

const PORT: u16 = 29_501;
/// What rank 0 hands out.
const BLOB: &[u8] = &[42; 128];
/// Between two looks at a collective.
const PAUSE: Duration = Duration::from_millis(50);
/// By then every process must have ended.
pub(crate) const END: Duration = Duration::from_secs(600);

/// How a process ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Its place in [`Plan::members`].
    pub(crate) member: usize,
    pub(crate) result: Result<(), String>,
    pub(crate) time: Duration,
}

/// The transport of tensors, which is no part of the simulation: a collective ends when all have come to it,
/// and the network is whole.
struct Board {
    /// The number of collectives that each rank has entered, and how many have ended.
    entered: Vec<u64>,
    ended: u64,
    /// How many watch each other, and since when all do.
    watching: usize,
    all_since: Option<Duration>,
    outcomes: Vec<Outcome>,
}

/// Runs a schedule. Returns how the processes ended, and since when all watched each other.
pub(crate) fn run(plan: &Plan, traced: bool) -> Outcomes {
    let hosts: Vec<usize> =
        plan.members.iter().map(|member| member.host).chain([plan.members.len()]).collect();
    let network = Network::new(plan.delay, plan.loss, plan.cuts.clone());
    let mut world = World::new(plan.seed, network, &hosts, traced);
    world.trace(|| format!("{plan:#?}"));
    let (entered, outcomes) = (vec![0; plan.world], Vec::new());
    let board = Arc::new(Mutex::new(Board { entered, ended: 0, watching: 0, all_since: None, outcomes }));
    let plan = Arc::new(plan.clone());
    for (process, member) in plan.members.iter().enumerate() {
        let (own, board) = (Arc::clone(&plan), Arc::clone(&board));
        let main = Box::new(move || main(&own, process, &board));
        world.at(member.comes, Event::Start { process, main });
        if let Some((time, fault)) = member.fault {
            for (time, event) in events(process, member, time, fault) {
                world.at(time, event);
            }
        }
    }
    for time in &plan.strangers {
        // They share a machine, and a process that never ends.
        let process = plan.members.len();
        world.at(*time, Event::Start { process, main: Box::new(stranger) });
    }
    world::run(world, END);
    world::finish();
    let board = board.lock().unwrap();
    Outcomes { all: board.outcomes.clone(), watching_since: board.all_since }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcomes {
    pub(crate) all: Vec<Outcome>,
    pub(crate) watching_since: Option<Duration>,
}

fn events(process: usize, member: &Member, time: Duration, fault: Fault) -> Vec<(Duration, Event)> {
    match fault {
        Fault::Kill => vec![(time, Event::Kill { process })],
        Fault::PowerOff { back } => {
            let host = member.host;
            let back = back.map(|back| (back, Event::PowerOn { host }));
            [(time, Event::PowerOff { host })].into_iter().chain(back).collect()
        }
        Fault::Freeze { until } => {
            let thaw = until.map(|until| (until, Event::Freeze { process, frozen: false }));
            [(time, Event::Freeze { process, frozen: true })].into_iter().chain(thaw).collect()
        }
    }
}

/// The main thread of a process. The process ends with it.
fn main(plan: &Plan, process: usize, board: &Mutex<Board>) {
    let result = train(plan, &plan.members[process], board).map_err(|error| error.to_string());
    with(|world| {
        let name = format!("process {process} (rank {})", plan.members[process].rank);
        world.trace(|| format!("{name}: {result:?}"));
        board.lock().unwrap().outcomes.push(Outcome { member: process, result, time: world.now });
        let now = world.now;
        world.at(now, Event::Kill { process });
    });
}

fn train(plan: &Plan, member: &Member, board: &Mutex<Board>) -> Result<(), Error> {
    let Member { rank, different, .. } = *member;
    let is = |what| different == Some(what);
    let world = plan.world + usize::from(is(Different::World));
    let master = Some((address(0).to_string(), PORT - 1));
    let place = Place { master, ..Place::new(Source::Variables, rank, world) };
    let secret = if is(Different::Secret) { "the secret of another job" } else { "the secret of the job" };
    let settings =
        Settings { secret: Some(Secret::new(secret)?), port: None, start: plan.start, ..Settings::default() };
    let mut group = connect(&place, &settings)?;
    assert_eq!(group.replicas(rank + 1)?, (1..=plan.world).collect::<Vec<_>>());
    let agreement = Agreement::new().with("the seed", if is(Different::Setting) { 65 } else { 64 });
    assert_eq!(group.agree(agreement, if rank == 0 { BLOB } else { &[] })?, BLOB);
    let watch = Watchdog::start(group, plan.patience)?;
    {
        let mut board = board.lock().unwrap();
        board.watching += 1;
        if board.watching == plan.world {
            board.all_since = Some(with(|world| world.now));
        }
    }
    let trained = steps(plan, member, &watch, board);
    if let Err(reason) = &trained {
        watch.fail(reason);
    }
    watch.finish();
    trained.map_err(Error::Meeting)
}

/// Trains, and waits for all at the end.
fn steps(plan: &Plan, member: &Member, watch: &Watchdog, board: &Mutex<Board>) -> Result<(), String> {
    for step in 0..=plan.steps {
        if step < plan.steps {
            watch.step(step);
            let slow = if step == 0 { member.slow } else { Duration::ZERO };
            sleep(slow + with(|world| world.random.millis(1, 3_000)));
        }
        if member.fails == Some(step) {
            return Err(format!("rank {} failed: its disk is full", member.rank));
        }
        let stays = member.behind == Some(step);
        if !stays {
            watch.enter();
            board.lock().unwrap().entered[member.rank] = step + 1;
        }
        let complete = || {
            let mut board = board.lock().unwrap();
            let all = board.entered.iter().all(|entered| *entered > step);
            if all && with(|world| world.network.is_whole(world.now)) {
                board.ended = step + 1;
            }
            board.ended > step
        };
        while stays || !complete() {
            if let Some(reason) = watch.failed() {
                return Err(reason);
            }
            sleep(PAUSE);
        }
    }
    // Others may end first, and then are not lost.
    sleep(with(|world| world.random.millis(0, 2_500)));
    watch.failed().map_or(Ok(()), Err)
}

/// Some program that connects to rank 0: it says nothing, something else, or an earlier message again.
fn stranger() {
    let to = SocketAddr::new(address(0), PORT);
    let Ok(stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) else { return };
    let said = with(|world| {
        let records = world.network.records();
        match world.random.below(4) {
            0 => Vec::new(),
            1 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            2 => [&b"towers-3"[..], &[1; 40], &[0xff; 68]].concat(),
            _ if records.is_empty() => Vec::new(),
            _ => records[world.random.below(records.len())].clone(),
        }
    });
    // Rank 0 may close it at any time.
    let _ = (&stream).write_all(&said);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    while (&stream).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    let _ = Instant::now();
}
