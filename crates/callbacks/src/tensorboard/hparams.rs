//! The hyperparameters of a run for TensorBoard's tab HParams: the messages of its `plugin_data.proto`, with
//! the fields that a run without trials needs.
//!
//! There is no list of the hyperparameters of all runs: without one, TensorBoard makes it from all runs that it
//! shows.

use super::event::{Event, now};
use prost::{Message, Oneof};
use std::collections::BTreeMap;

/// The name of the plugin.
const PLUGIN: &str = "hparams";

#[derive(Clone, PartialEq, Message)]
struct PluginData {
    #[prost(oneof = "About", tags = "3, 4")]
    about: Option<About>,
}

#[derive(Clone, PartialEq, Oneof)]
enum About {
    #[prost(message, tag = "3")]
    Start(SessionStart),
    #[prost(message, tag = "4")]
    End(SessionEnd),
}

#[derive(Clone, PartialEq, Message)]
struct SessionStart {
    #[prost(btree_map = "string, message", tag = "1")]
    hparams: BTreeMap<String, Value>,
    /// Seconds since 1970.
    #[prost(double, tag = "5")]
    start_time: f64,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
}

#[derive(Clone, PartialEq, Message)]
struct SessionEnd {
    /// 1 is success.
    #[prost(int32, tag = "1")]
    status: i32,
    /// Seconds since 1970.
    #[prost(double, tag = "2")]
    end_time: f64,
}

/// A run with these hyperparameters begins.
pub(super) fn start(options: &[(String, serde_json::Value)]) -> Event {
    start_at(options, now())
}

fn start_at(options: &[(String, serde_json::Value)], start_time: f64) -> Event {
    let hparams = options.iter().map(|(key, value)| (key.clone(), Value { kind: Some(kind(value)) }));
    event("start", About::Start(SessionStart { hparams: hparams.collect(), start_time }))
}

/// The run is done.
pub(super) fn end() -> Event {
    event("end", About::End(SessionEnd { status: 1, end_time: now() }))
}

fn kind(value: &serde_json::Value) -> Kind {
    match value {
        serde_json::Value::Bool(value) => Kind::Bool(*value),
        serde_json::Value::String(text) => Kind::Text(text.clone()),
        value => value.as_f64().map_or_else(|| Kind::Text(value.to_string()), Kind::Number),
    }
}

fn event(what: &str, about: About) -> Event {
    let data = PluginData { about: Some(about) };
    Event::plugin(&format!("_hparams_/session_{what}_info"), PLUGIN, data.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::event::What;
    use super::*;
    use serde_json::json;

    /// The bytes are those of TensorBoard's `hparams_pb`, without its name of a trial.
    #[test]
    fn hyperparameters_are_written_as_tensorboard_writes_them() {
        let options = [("lr", json!(0.5)), ("model", json!("m")), ("drop_last", json!(true))];
        let event = start_at(&options.map(|(key, value)| (key.to_owned(), value)), 1.5);
        let Some(What::Summary(summary)) = event.what else { panic!("no summary") };
        let hex: String = summary.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "0a700a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f42060801120212004a480a460a076870\
                        6172616d73123b1a390a0f0a0964726f705f6c617374120220010a0f0a026c72120911000000000000e03f0a0c0a056d\
                        6f64656c12031a016d29000000000000f83f";
        assert_eq!(hex, expected);
    }
}
