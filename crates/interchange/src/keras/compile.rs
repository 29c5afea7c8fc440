//! The optimizer that a model was compiled with, from `compile_config` (`.keras`) or `training_config` (`.h5`).

use super::shortened;
use crate::Compiled;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use towers_optim::Optimizer;

/// Options of all optimizers that change the steps, and have no counterpart here. `null` and `false` turn them off.
const NOT_THERE: [&str; 4] = ["use_ema", "gradient_accumulation_steps", "loss_scale_factor", "amsgrad"];

/// The optimizer and its rate. `None` for a model that was not compiled; an error says why they can't be taken.
pub(super) fn read(compile: &Value) -> Option<Result<Compiled, String>> {
    let optimizer = [&compile["optimizer"], &compile["optimizer_config"]];
    let optimizer = optimizer.into_iter().find(|optimizer| !optimizer.is_null())?;
    let none = Map::new();
    let (class, config) = match optimizer {
        Value::String(name) => (name.as_str(), &none),
        other => {
            (other["class_name"].as_str().unwrap_or_default(), other["config"].as_object().unwrap_or(&none))
        }
    };
    let class = class.rsplit('>').next().unwrap_or(class);
    // A policy of float16 puts one around the optimizer.
    if class == "LossScaleOptimizer" {
        let inner = config.get("inner_optimizer").or(config.get("optimizer"))?;
        let of_inner = read(&json!({"optimizer": inner}))?;
        let scaled = |mut compiled: Compiled| {
            compiled.left_out.push("the scale of its loss, which training in fp16 has by itself".to_owned());
            compiled
        };
        return Some(of_inner.map(scaled));
    }
    Some(of(class, config))
}

fn of(class: &str, config: &Map<String, Value>) -> Result<Compiled, String> {
    let get = |key: &str| config.get(key).filter(|value| !value.is_null());
    let name = class.to_ascii_lowercase();
    let options = Optimizer::options(&name).map_err(|error| match error {
        towers_optim::Error::UnknownName { accepted, .. } => {
            format!("its optimizer is {}, but there are {accepted}", shortened(class))
        }
        other => other.to_string(),
    })?;
    // Since 2.11 Keras adds the epsilon inside of the root, and every optimizer has a weight decay, if only `null`.
    let is_new = config.contains_key("weight_decay");
    let mut text = if name == "rmsprop" && is_new { "rmsprop:style=keras3".to_owned() } else { name.clone() };
    let mut left_out = Vec::new();
    if name == "muon" {
        text = muon(config, &mut left_out)?;
    }
    for ours in options.into_iter().filter(|_| name != "muon") {
        // Standalone Keras 2 clipped the norm of all gradients by `clipnorm`, tf.keras that of each; their files look alike.
        if ours == "clipnorm" && !is_new {
            continue;
        }
        let theirs = match ours {
            "beta1" => "beta_1".to_owned(),
            "beta2" => "beta_2".to_owned(),
            // Keras 2 alone has one; Keras 3's is 1, as ours.
            "momentum-decay" => "schedule_decay".to_owned(),
            same => same.replace('-', "_"),
        };
        let value = match get(&theirs) {
            None | Some(Value::Bool(false)) => continue,
            Some(Value::Bool(true)) => "true".to_owned(),
            Some(value) => plain(value).ok_or_else(|| format!("its optimizer's {theirs} is no number"))?,
        };
        let joint = if text.contains(':') { ',' } else { ':' };
        // Writing to a string cannot fail.
        let _ = write!(text, "{joint}{ours}={value}");
    }
    let others = NOT_THERE.iter().filter(|key| get(key).is_some_and(|value| *value != false));
    left_out.extend(others.map(|key| (*key).to_owned()));
    if !is_new && get("clipnorm").is_some() {
        left_out.push("its clipnorm, which Keras 2 and tf.keras understand differently".to_owned());
    }
    if name == "nadam" && !is_new && get("schedule_decay").is_none() && get("decay").is_some() {
        return Err(
            "its optimizer is Nadam of tf.keras before 2.11, whose `decay` is none of the rate".to_owned()
        );
    }
    let turned_on = |key: &str| get(key).is_some_and(|value| *value != false && *value != 0.0);
    if name == "rmsprop" {
        left_out.extend(["momentum", "centered"].into_iter().filter(|key| turned_on(key)).map(str::to_owned));
    }
    let default_rate = Value::from(if name == "sgd" { 0.01 } else { 0.001 });
    let rate = get("learning_rate").or(get("lr")).unwrap_or(&default_rate);
    let base = if rate.is_object() { &rate["config"]["initial_learning_rate"] } else { rate };
    let lr = plain(base).and_then(|lr| lr.parse().ok()).ok_or("its learning rate is no number")?;
    let schedule = match (rate.is_object(), get("decay").filter(|_| turned_on("decay")).and_then(plain)) {
        (true, _) => {
            left_out
                .push(format!("its schedule {}", shortened(rate["class_name"].as_str().unwrap_or_default())));
            None
        }
        (false, Some(decay)) => Some(format!("time:decay={decay}")),
        (false, None) => Some("constant".to_owned()),
    };
    Ok(Compiled { optimizer: text, lr, schedule, left_out })
}

/// Keras' Muon. Its AdamW has separate options. Velocities that are sums give the same steps as averages.
fn muon(config: &Map<String, Value>, left_out: &mut Vec<String>) -> Result<String, String> {
    let read = |(ours, theirs): (&str, &str)| match config.get(theirs).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(format!("{ours}={value}"))),
        Some(value) => {
            let value = plain(value).ok_or_else(|| format!("its optimizer's {theirs} is no number"))?;
            Ok(Some(format!("{ours}={value}")))
        }
    };
    let all = |pairs: &[(&str, &str)]| -> Result<Vec<String>, String> {
        pairs.iter().map(|pair| read(*pair)).filter_map(Result::transpose).collect()
    };
    let is = |key: &str, value: f64| {
        config.get(key).and_then(Value::as_f64).is_none_or(|given| (given - value).abs() < 1e-6)
    };
    if !is("muon_a", 3.4445) || !is("muon_b", -4.775) || !is("muon_c", 2.0315) {
        return Err("its optimizer is Muon with a polynomial of its own".to_owned());
    }
    let adjust = match config.get("rms_rate") {
        Some(Value::Null) => "none",
        _ if is("rms_rate", 0.2) => "match-rms-adamw",
        _ => return Err("its optimizer is Muon with a rms_rate other than 0.2".to_owned()),
    };
    let own = [
        ("momentum", "momentum"),
        ("nesterov", "nesterov"),
        ("steps", "ns_steps"),
        ("weight-decay", "weight_decay"),
        ("clipnorm", "clipnorm"),
        ("clipvalue", "clipvalue"),
        ("global-clipnorm", "global_clipnorm"),
    ];
    let rest = [
        ("beta1", "adam_beta_1"),
        ("beta2", "adam_beta_2"),
        ("epsilon", "epsilon"),
        ("weight-decay", "adam_weight_decay"),
        ("lr-multiplier", "adam_lr_ratio"),
    ];
    left_out.push(
        "its choice of matrices: here Muon takes kernels of convolutions too, but not the last layer"
            .to_owned(),
    );
    let text = [vec![format!("muon:adjust={adjust}")], all(&own)?].concat().join(",");
    let rest = all(&rest)?.join(",");
    Ok(if rest.is_empty() { format!("{text}+adam") } else { format!("{text}+adam:{rest}") })
}

/// A number as it was given to Keras, which keeps it in f32: 0.02, not 0.019999999552965164.
fn plain(value: &Value) -> Option<String> {
    let value = value.as_f64()?;
    let short = (value as f32).to_string();
    let same = short.parse::<f64>().is_ok_and(|short| short as f32 == value as f32);
    Some(if same { short } else { value.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(compile: &Value) -> String {
        match read(compile) {
            None => "none".to_owned(),
            Some(Err(why)) => why,
            Some(Ok(Compiled { optimizer, lr, schedule, left_out })) => {
                format!("{optimizer} {lr} {} [{}]", schedule.unwrap_or_default(), left_out.join(", "))
            }
        }
    }

    /// Configurations as Keras 3.15, `tf.keras` 2.15 and Keras 2.3 write them, shortened.
    #[test]
    fn optimizers_are_those_of_the_file() {
        let of =
            |class: &str, config: Value| told(&json!({"optimizer": {"class_name": class, "config": config}}));
        let sgd = json!({"learning_rate": 0.019999999552965164, "weight_decay": null, "momentum": 0.8, "nesterov": true,
                         "clipnorm": null, "use_ema": false});
        assert_eq!(of("SGD", sgd.clone()), "sgd:momentum=0.8,nesterov=true 0.02 constant []");
        assert_eq!(told(&json!({"optimizer_config": {"class_name": "SGD", "config": sgd}})), of("SGD", sgd));
        let adam = json!({"learning_rate": 0.0010000000474974513, "weight_decay": null, "beta_1": 0.9, "beta_2": 0.999,
                          "epsilon": 1e-7, "amsgrad": false});
        let usual = "adam:beta1=0.9,beta2=0.999,epsilon=0.0000001 0.001 constant []";
        assert_eq!([of("Adam", adam.clone()), of("Custom>Adam", adam)], [usual, usual]);
        let old = json!({"lr": 0.01, "momentum": 0.9, "decay": 1e-4, "nesterov": false});
        assert_eq!(of("SGD", old), "sgd:momentum=0.9 0.01 time:decay=0.0001 []");
        let rates = json!({"class_name": "CosineDecay", "config": {"initial_learning_rate": 0.003, "decay_steps": 100}});
        let adamw = json!({"learning_rate": rates, "weight_decay": 0.004, "clipnorm": 1.0, "amsgrad": true});
        let says = "adamw:weight-decay=0.004,clipnorm=1 0.003  [amsgrad, its schedule CosineDecay]";
        assert_eq!(of("AdamW", adamw), says);
        let nadam = json!({"learning_rate": 2e-3, "weight_decay": null, "beta_1": 0.8, "beta_2": 0.999, "epsilon": 1e-7});
        let says = "nadam:beta1=0.8,beta2=0.999,epsilon=0.0000001 0.002 constant []";
        assert_eq!(of("Nadam", nadam), says);
        let old =
            json!({"lr": 2e-3, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, "schedule_decay": 0.004});
        let says = "nadam:beta1=0.9,beta2=0.999,epsilon=0.0000001,momentum-decay=0.004 0.002 constant []";
        assert_eq!(of("Nadam", old), says);
        assert!(of("Nadam", json!({"lr": 2e-3, "decay": 0.004})).contains("before 2.11"));
        let lion = json!({"learning_rate": 1e-4, "weight_decay": 0.1, "beta_1": 0.9, "beta_2": 0.99});
        assert_eq!(of("Lion", lion), "lion:beta1=0.9,beta2=0.99,weight-decay=0.1 0.0001 constant []");
        let clipped =
            json!({"learning_rate": 0.5, "weight_decay": null, "global_clipnorm": 2.5, "clipnorm": null});
        assert_eq!(of("SGD", clipped), "sgd:global-clipnorm=2.5 0.5 constant []");
        let old = json!({"lr": 0.5, "clipnorm": 1.0, "clipvalue": 0.5});
        let says = "[its clipnorm, which Keras 2 and tf.keras understand differently]";
        assert_eq!(of("SGD", old), format!("sgd:clipvalue=0.5 0.5 constant {says}"));
        let rmsprop = json!({"learning_rate": 2e-4, "weight_decay": null, "rho": 0.9, "momentum": 0.5, "centered": false});
        assert_eq!(of("RMSprop", rmsprop), "rmsprop:style=keras3,rho=0.9 0.0002 constant [momentum]");
        assert_eq!(
            of("RMSprop", json!({"lr": 1e-3, "rho": 0.9, "decay": 0.0})),
            "rmsprop:rho=0.9 0.001 constant []"
        );
        let muon = json!({"learning_rate": 0.002, "weight_decay": 0.004, "momentum": 0.95, "nesterov": true, "ns_steps": 5,
                          "rms_rate": 0.2, "muon_a": 3.4445, "muon_b": -4.775, "muon_c": 2.0315, "clipnorm": 1.0,
                          "adam_beta_1": 0.9, "adam_beta_2": 0.999, "epsilon": 1e-7, "adam_weight_decay": null,
                          "adam_lr_ratio": 0.5, "exclude_layers": [], "exclude_embeddings": true, "use_ema": false});
        let says = "muon:adjust=match-rms-adamw,momentum=0.95,nesterov=true,steps=5,weight-decay=0.004,clipnorm=1\
                    +adam:beta1=0.9,beta2=0.999,epsilon=0.0000001,lr-multiplier=0.5 0.002 constant \
                    [its choice of matrices: here Muon takes kernels of convolutions too, but not the last layer]";
        assert_eq!(of("Muon", muon), says);
        let plain = "muon:adjust=none,steps=3+adam 0.001 constant";
        assert!(of("Muon", json!({"rms_rate": null, "ns_steps": 3})).starts_with(plain));
        assert!(of("Muon", json!({"rms_rate": 0.3})).ends_with("rms_rate other than 0.2"));
        assert!(of("Muon", json!({"muon_a": 3})).ends_with("a polynomial of its own"));
        assert_eq!(told(&json!({"optimizer": "sgd"})), "sgd 0.01 constant []");
        let inner = json!({"class_name": "SGD", "config": {"learning_rate": 0.5}});
        let scaled = of("LossScaleOptimizer", json!({"inner_optimizer": inner}));
        assert_eq!(scaled, "sgd 0.5 constant [the scale of its loss, which training in fp16 has by itself]");
    }

    #[test]
    fn what_cannot_be_taken_is_told() {
        assert_eq!([told(&Value::Null), told(&json!({"loss": "mse"}))], ["none", "none"]);
        for (optimizer, says) in [
            (json!("adamax"), "its optimizer is adamax, but there are sgd, "),
            (json!({"class_name": "Ftrl", "config": {}}), "its optimizer is Ftrl, but there are sgd, "),
            (
                json!({"class_name": "SGD", "config": {"momentum": "x"}}),
                "its optimizer's momentum is no number",
            ),
            (
                json!({"class_name": "SGD", "config": {"learning_rate": [1]}}),
                "its learning rate is no number",
            ),
            (json!(3), "its optimizer is , but there are"),
        ] {
            let told = told(&json!({"optimizer": optimizer}));
            assert!(told.starts_with(says), "{told}");
        }
    }
}
