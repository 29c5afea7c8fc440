use super::environment::{MOST_PROCESSES, host_name};
use super::{Environment, Place, Source};
use crate::error::quoted;
use crate::{Error, Result};
use serde_json::Value;

const NAME: &str = "TF_CONFIG";

/// `TF_CONFIG`, which describes the workers of TensorFlow's `MultiWorkerMirroredStrategy`. The chief is rank
/// 0, or else the first worker. An empty text or an object without a cluster describes a single process.
pub(super) fn read(env: &Environment<'_>) -> Result<Option<Place>> {
    let Some(text) = env.text(NAME).filter(|text| !text.trim().is_empty()) else { return Ok(None) };
    let bad = |accepted: &str| Error::variable(NAME, &text, accepted);
    let config: Value =
        serde_json::from_str(&text).map_err(|error| bad(&format!("JSON, as TensorFlow has it ({error})")))?;
    let config = config.as_object().ok_or_else(|| bad("a JSON object"))?;
    if config.contains_key("sparseCluster") {
        let accepted = "one with a `cluster` of all workers, which a `sparseCluster` does not name: leave \
                        `enableDynamicWorker` of the TFJob out";
        return Err(bad(accepted));
    }
    let Some(cluster) = config.get("cluster") else { return Ok(None) };
    let cluster = cluster.as_object().ok_or_else(|| bad("an object whose `cluster` is an object"))?;
    if cluster.contains_key("ps") {
        return Err(bad("a cluster of workers and a chief alone: there are no parameter servers here"));
    }
    let list = |role: &str| {
        cluster.get(role).map_or(Some(Vec::new()), addresses).ok_or_else(|| {
            bad(&format!("an object whose `cluster` has the addresses host:port of each {role} in a list"))
        })
    };
    let (chiefs, workers) = (list("chief")?, list("worker")?);
    if chiefs.len() > 1 {
        return Err(bad("a cluster with one chief at most"));
    }
    let task = config.get("task").ok_or_else(|| bad("an object with a `task` beside the `cluster`"))?;
    let (first, count) = match task.get("type").and_then(Value::as_str) {
        Some("chief") => (0, chiefs.len()),
        Some("worker") => (chiefs.len(), workers.len()),
        other => {
            let role = quoted(other.unwrap_or("nothing"));
            return Err(bad(&format!("for a `task` whose `type` is `worker` or `chief`, not {role}")));
        }
    };
    // TensorFlow takes a number in quotes too.
    let number = |index: &Value| index.as_u64().or_else(|| index.as_str().and_then(|text| text.parse().ok()));
    let index = task.get("index").and_then(number).filter(|index| *index < count as u64);
    let index = index.ok_or_else(|| bad("a `task` whose `index` is the place of an address in its list"))?;
    let all: Vec<(String, u16)> = chiefs.into_iter().chain(workers).collect();
    Ok(Some(place(&all, first + index as usize, env)?))
}

fn place(all: &[(String, u16)], rank: usize, env: &Environment<'_>) -> Result<Place> {
    let here = |(host, _): &&(String, u16)| *host == all[rank].0;
    let local_world = all.iter().filter(here).count();
    let local_rank = all[..rank].iter().filter(here).count();
    let (one_device, master) = (local_world > 1, env.master(all.first().cloned())?);
    let place = Place::new(Source::TfConfig, rank, all.len());
    Ok(Place { local_rank, local_world, one_device, master, ..place })
}

/// The addresses of a list. `None` if one of them is malformed.
fn addresses(list: &Value) -> Option<Vec<(String, u16)>> {
    let list = list.as_array().filter(|list| list.len() as u64 <= MOST_PROCESSES)?;
    let address = |entry: &Value| {
        let (host, port) = entry.as_str()?.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some((host_name(host)?.to_owned(), port))
    };
    list.iter().map(address).collect()
}
