//! `--log-format json`: every line of a run is an object.

use super::Place;
use serde_json::{Value, json};

const SMALL: &str =
    "train --quick --dataset synthetic --limit-train 100 --limit-test 40 --epochs 2 --log-format json";

/// The objects of a text, each with a time, a level, an event and a message.
fn objects(text: &str) -> Vec<Value> {
    let object = |line: &str| -> Value {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let keys = ["time", "level", "event", "message"];
        assert!(keys.iter().all(|key| object[key].is_string()), "{line}");
        object
    };
    text.lines().map(object).collect()
}

fn events(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["event"].as_str().unwrap()).collect()
}

#[test]
fn every_line_is_an_object() {
    let place = Place::new();
    let ran = place.run(&format!("{SMALL} --output run")).ends(0);
    let (out, err) = (objects(&ran.out()), objects(&ran.err()));
    let epochs = events(&out).into_iter().filter(|event| *event != "note").collect::<Vec<_>>();
    assert_eq!(epochs, ["start", "epoch_begin", "epoch", "epoch_begin", "epoch", "end"]);
    let last = out.iter().rfind(|object| object["event"] == "epoch").unwrap();
    let record = place.last_epoch("run");
    for figure in ["epoch", "loss", "acc", "val_loss", "val_acc", "lr", "seconds", "images_per_second"] {
        assert_eq!(last[figure], record[figure], "{figure}");
    }
    let end = out.last().unwrap();
    assert_eq!(json!([end["end"], end["run"], end["message"]]), json!(["done", "run", "done: run"]));
    assert!(!err.is_empty() && events(&err).iter().all(|event| ["note", "warning"].contains(event)));

    let stopped = place.run(&format!("{SMALL} --output short --max-steps 1")).ends(0).out();
    let end = objects(&stopped).pop().unwrap();
    assert_eq!(json!([end["event"], end["end"]]), json!(["end", "stopped"]));
    assert!(end["message"].as_str().unwrap().contains(end["reason"].as_str().unwrap()));

    let failed = place.run(&format!("{SMALL} --output run")).ends(2).err();
    let error = objects(&failed).into_iter().find(|object| object["level"] == "error").unwrap();
    assert!(error["message"].as_str().unwrap().contains("run"), "{error}");
    place.refuses(&format!("{SMALL} --tui"), "cannot be used with");
}
