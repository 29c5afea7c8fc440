//! What must hold in every schedule.

use crate::plan::{Different, Fault, Kind, Member, Plan};
use crate::process::{Outcome, Outcomes};
use core::time::Duration;

/// Messages on their way, lost ones among them, and pauses between two looks.
const SLACK: Duration = Duration::from_secs(10);

/// Stops the test if a process of the schedule waits for ever, comes too late, or says something wrong.
pub(crate) fn check(plan: &Plan, outcomes: &Outcomes) {
    if let Err(wrong) = wrong(plan, outcomes) {
        println!("{wrong}\n{outcomes:#?}");
        panic!("{wrong}");
    }
}

fn wrong(plan: &Plan, outcomes: &Outcomes) -> Result<(), String> {
    for (number, member) in plan.members.iter().enumerate() {
        let outcome = outcomes.all.iter().find(|outcome| outcome.member == number);
        let rank = member.rank;
        let Some(outcome) = outcome else {
            // It died or was stopped, or the others waited for it in vain.
            let gone =
                member.fault.is_some_and(|(_, fault)| !matches!(fault, Fault::Freeze { until: Some(_) }));
            if gone {
                continue;
            }
            return Err(format!("process {number} (rank {rank}) waits for ever"));
        };
        let end = latest(plan, outcomes, member);
        if outcome.time > end {
            return Err(format!(
                "process {number} (rank {rank}) ended at {:?}, not by {end:?}",
                outcome.time
            ));
        }
        match &outcome.result {
            Ok(()) => may_succeed(plan, outcomes, outcome)?,
            Err(sentence) => may_fail(plan, outcomes, outcome, sentence)?,
        }
    }
    Ok(())
}

/// When this process must have ended.
fn latest(plan: &Plan, outcomes: &Outcomes, member: &Member) -> Duration {
    // A heartbeat is due in every quarter of the time-out.
    let noticed = plan.silence.max(plan.patience) + plan.silence / 2;
    let steps = plan.steps as u32 * Duration::from_secs(3) + plan.patience;
    match outcomes.watching_since {
        Some(since) => since.max(plan.since) + steps + noticed + SLACK,
        // To meet, to exchange the numbers of replicas, to agree: each with an answer.
        None => {
            let grace = Duration::from_secs(5);
            member.comes.max(plan.since) + 5 * (plan.start + grace) + noticed + SLACK
        }
    }
}

/// Whether the process may train to its end.
fn may_succeed(plan: &Plan, outcomes: &Outcomes, outcome: &Outcome) -> Result<(), String> {
    let (own, rank) = (outcome.member, plan.members[outcome.member].rank);
    if outcomes.watching_since.is_none() {
        return Err(format!("process {own} trained without the others"));
    }
    let never = match plan.kind {
        Kind::Different | Kind::Behind | Kind::Fails => true,
        // The earlier one gave way.
        Kind::Twice => outcomes
            .all
            .iter()
            .any(|other| other.member != own && is_rank(plan, other, rank) && other.result.is_ok()),
        _ => false,
    };
    if never { Err(format!("process {own} (rank {rank}) trained to its end")) } else { Ok(()) }
}

fn is_rank(plan: &Plan, outcome: &Outcome, rank: usize) -> bool {
    plan.members[outcome.member].rank == rank
}

/// Whether the process may fail with this sentence.
fn may_fail(plan: &Plan, outcomes: &Outcomes, outcome: &Outcome, sentence: &str) -> Result<(), String> {
    let (own, member) = (outcome.member, &plan.members[outcome.member]);
    let says = |what: &str| format!("process {own} (rank {}) {what}: {sentence}", member.rank);
    let must = |holds: bool, what: &str| if holds { Ok(()) } else { Err(says(what)) };
    let named = named(sentence, member.rank);
    match plan.kind {
        Kind::Calm | Kind::Replaced => return Err(says("must not fail")),
        Kind::Twice => return must(sentence.contains("takes part in place of this one"), "must not fail"),
        Kind::Fails if outcomes.watching_since.is_some() => {
            return must(sentence.ends_with("failed: its disk is full"), "does not say why");
        }
        Kind::Different if member.rank == 0 => {
            let expected = difference(plan);
            return must(sentence.starts_with(&expected), &format!("must say {expected}"));
        }
        Kind::Different if own == plan.guilty.unwrap_or(0) && member.different == Some(Different::Secret) => {
            return must(sentence.contains("another job secret"), "does not say why");
        }
        _ => {}
    }
    // A machine that is cut off, or without answers, sees only that the others are gone.
    let is_cut = plan.cuts.iter().any(|cut| cut.host == member.host);
    if let (Some(step), true) =
        (plan.members.iter().find_map(|member| member.behind), plan.kind == Kind::Behind)
        && outcomes.watching_since.is_some()
    {
        let last = format!("(last step {})", step.min(plan.steps - 1));
        must(sentence.ends_with(&last), &format!("does not say {last}"))?;
    }
    let right = named.iter().all(|rank| Some(*rank) == plan.guilty);
    // Rank 0 tells all that have connected why it ends; that may be lost if packets are.
    let moment = Duration::from_secs(5);
    let has_met = [own, 0].iter().all(|member| plan.members[*member].comes + moment < outcome.time);
    let ended_early = sentence.contains("had come") && has_met || sentence.contains("had begun");
    let was_told = ended_early && plan.loss > 1_000;
    // A process that comes when others have given up finds no process.
    let had_ended = |rank: &usize| {
        let ended = |other: &Outcome| is_rank(plan, other, *rank) && other.time <= outcome.time;
        outcomes.all.iter().any(ended) && outcomes.watching_since.is_none() && !was_told
    };
    must(!named.is_empty(), "names nobody")?;
    must(right || is_cut || named.iter().all(had_ended), "names another rank")
}

/// What rank 0 says of the process that is different.
fn difference(plan: &Plan) -> String {
    let (rank, world) = (plan.guilty.unwrap_or_default(), plan.world);
    match plan.members[rank].different {
        Some(Different::Setting) => format!("rank {rank} has the seed 65, but rank 0 has 64"),
        Some(Different::World) => {
            let more = world + 1;
            let host = crate::system::address(rank);
            format!(
                "rank {rank} ({host}) was started as one of {more} processes, but rank 0 as one of {world}"
            )
        }
        Some(Different::Secret) | None => format!("rank {rank} of {world} did not come to rank 0"),
    }
}

/// The ranks that a sentence blames.
fn named(sentence: &str, own: usize) -> Vec<usize> {
    let after = |word: &str| sentence.split_once(word).map(|(_, rest)| rest);
    let Some(rest) = after("rank ").or_else(|| after("ranks ")) else { return Vec::new() };
    let list = rest.split([' ', ',']).filter(|word| !word.is_empty());
    let ranks: Vec<usize> = list.map_while(|word| word.parse().ok()).collect();
    if ranks == [own] && sentence.contains("did not reach rank 0") { vec![0] } else { ranks }
}
