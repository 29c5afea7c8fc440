//! What happens in a schedule, drawn from its seed.

use crate::join::longest_silence;
use crate::network::Cut;
use crate::random::Random;
use core::time::Duration;

/// What goes wrong in the schedules of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing for long: strangers come, a process is stopped or a cable pulled for a moment.
    Calm,
    /// A process is killed, or its machine loses power.
    Death,
    /// A machine is cut off for good.
    Cut,
    /// A process is stopped for good.
    Frozen,
    /// A process dies while it waits for others, and comes again.
    Replaced,
    /// Two processes come as one rank.
    Twice,
    /// A process has another setting, another number of processes, or another secret.
    Different,
    /// A process takes no further step, or misses a collective.
    Behind,
    /// A process gives up for a reason.
    Fails,
}

/// What happens to a process at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill,
    PowerOff { back: Option<Duration> },
    Freeze { until: Option<Duration> },
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) rank: usize,
    pub(crate) host: usize,
    pub(crate) comes: Duration,
    pub(crate) fault: Option<(Duration, Fault)>,
    pub(crate) different: Option<Different>,
    /// The step that it doesn't take.
    pub(crate) behind: Option<u64>,
    /// The step in which it gives up.
    pub(crate) fails: Option<u64>,
    /// How long its first step takes: others must wait, and hear of it meanwhile.
    pub(crate) slow: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Different {
    Setting,
    World,
    Secret,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) world: usize,
    /// In the order of their start; replacements come last.
    pub(crate) members: Vec<Member>,
    pub(crate) steps: u64,
    pub(crate) start: Duration,
    pub(crate) silence: Duration,
    pub(crate) patience: Duration,
    pub(crate) delay: u64,
    pub(crate) loss: usize,
    pub(crate) cuts: Vec<Cut>,
    /// When strangers come, from another machine.
    pub(crate) strangers: Vec<Duration>,
    /// The rank that may be named.
    pub(crate) guilty: Option<usize>,
    /// When it becomes guilty.
    pub(crate) since: Duration,
}

/// Later than everything.
const NEVER: Duration = Duration::from_secs(1 << 40);
/// Ranks that come on time come before this, in milliseconds.
const ON_TIME: u64 = 8_000;

impl Plan {
    pub(crate) fn draw(kind: Kind, seed: u64) -> Plan {
        let mut random = Random(seed ^ ((kind as u64) << 56));
        // A process may be replaced while others are missing.
        let least = if matches!(kind, Kind::Replaced | Kind::Twice) { 3 } else { 2 };
        let world = least + random.below(3);
        let member = |rank: usize, random: &mut Random| Member {
            rank,
            host: rank,
            comes: random.millis(0, ON_TIME),
            ..Member::default()
        };
        let members: Vec<Member> = (0..world).map(|rank| member(rank, &mut random)).collect();
        let patience = random.millis(6_000, 120_000);
        let mut plan = Plan {
            kind,
            seed,
            world,
            members,
            steps: 1 + random.below(5) as u64,
            start: Duration::from_secs(20),
            silence: longest_silence(patience),
            patience,
            delay: [1, 5, 40][random.below(3)],
            loss: [1_000_000, 50, 10][random.below(3)],
            cuts: Vec::new(),
            strangers: (0..random.below(3)).map(|_| random.millis(0, 2 * ON_TIME)).collect(),
            guilty: None,
            since: Duration::ZERO,
        };
        if random.one_in(2) {
            // Longer than the silence that is allowed, but shorter than the others' patience.
            let most = (plan.patience - Duration::from_secs(5)).as_millis() as u64;
            plan.members[random.below(world)].slow = random.millis(0, most);
        }
        plan.add_fault(&mut random);
        plan
    }

    fn add_fault(&mut self, random: &mut Random) {
        let at = random.below(self.world);
        let other = 1 + random.below(self.world - 1);
        let mut time = random.millis(0, 2 * ON_TIME);
        let step = random.below(self.steps as usize + 1) as u64;
        if matches!(self.kind, Kind::Death | Kind::Frozen) {
            time += self.members[at].comes;
        }
        self.since = time;
        match self.kind {
            Kind::Calm => {
                let moment = random.millis(10, 1_500);
                match random.below(3) {
                    0 => {
                        let until = Some(time + moment);
                        self.members[at].fault = Some((time, Fault::Freeze { until }));
                    }
                    1 => self.cuts.push(Cut { host: at, from: time, until: time + moment }),
                    _ => {}
                }
                return;
            }
            Kind::Death => {
                let back = random.one_in(2).then(|| time + random.millis(100, 30_000));
                let fault = if random.one_in(2) { Fault::Kill } else { Fault::PowerOff { back } };
                self.members[at].fault = Some((time, fault));
            }
            Kind::Cut => self.cuts.push(Cut { host: at, from: time, until: NEVER }),
            Kind::Frozen => self.members[at].fault = Some((time, Fault::Freeze { until: None })),
            Kind::Replaced | Kind::Twice => {
                // Rank 0 is there, and another rank comes last, after both.
                self.members.iter_mut().for_each(|member| member.comes = random.millis(0, 1_000));
                self.members[other].comes = random.millis(0, 4_000);
                let first = self.members[other].comes;
                // Often while its first message is on its way.
                let soon = random.one_in(2);
                self.loss = if soon { 4 } else { self.loss };
                let dies = first + random.millis(0, if soon { 500 } else { 4_000 });
                let again = random.millis(1, if soon { 100 } else { 3_000 });
                let again = again + if self.kind == Kind::Replaced { dies } else { first };
                let mut later = self.members[other].clone();
                (later.comes, later.host) = (again, self.world);
                if self.kind == Kind::Replaced {
                    let fault = if random.one_in(2) { Fault::Kill } else { Fault::PowerOff { back: None } };
                    self.members[other].fault = Some((dies, fault));
                }
                let last = if other == 1 { 2 } else { 1 };
                self.members[last].comes = again + random.millis(6_000, 8_000);
                if let (false, Some((_, Fault::Kill))) = (soon, self.members[other].fault) {
                    // Rank 0 sees that it has ended, and waits for it once more.
                    later.comes = self.members[last].comes + random.millis(0, 1_000);
                }
                self.members.push(later);
                return;
            }
            Kind::Different => {
                let all = [Different::Setting, Different::World, Different::Secret];
                self.members[other].different = Some(all[random.below(3)]);
            }
            Kind::Behind => self.members[at].behind = Some(step),
            Kind::Fails => self.members[at].fails = Some(step),
        }
        self.guilty = Some(if self.kind == Kind::Different { other } else { at });
    }
}
