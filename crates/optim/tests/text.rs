//! The compact form and JSON: written text reads back the same, and errors are named.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::collections::BTreeSet;
use towers_optim::{
    Adam, Adjust, Anneal, Clip, Curve, Ema, Lamb, Lars, Lion, Muon, Nadam, Optimizer, ParamGroup, Per,
    Progress, Rest, Rmsprop, Sam, Schedule, Sgd, UpdateRule, Velocity, Warmup, WeightDecay,
};

fn per() -> impl Strategy<Value = Per> {
    prop_oneof![Just(Per::Step), Just(Per::Epoch)]
}

fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![1e-9..1.0, 1.0..1e9, Just(0.1), Just(1.0), Just(f64::MIN_POSITIVE)]
}

fn curve() -> impl Strategy<Value = Curve> {
    let epochs = || proptest::option::of(1..u64::MAX);
    prop_oneof![
        Just(Curve::Constant),
        (positive(), 0.0..=1.0, per(), epochs()).prop_map(|(power, alpha, per, epochs)| Curve::Poly {
            power,
            alpha,
            per,
            epochs
        }),
        (0.0..=1.0, per(), epochs()).prop_map(|(alpha, per, epochs)| Curve::Cosine { alpha, per, epochs }),
        (0.0..=1.0, 0.0..=1.0, 0.0..=1.0, epochs()).prop_map(|(start, peak, end, epochs)| Curve::Triangle {
            start,
            peak,
            end,
            epochs
        }),
        ((0.0..=1.0, 1.0..1e9, positive()), prop_oneof![Just(Anneal::Cos), Just(Anneal::Linear)], epochs())
            .prop_map(|((pct_start, div_factor, final_div_factor), anneal, epochs)| {
                Curve::OneCycle { pct_start, div_factor, final_div_factor, anneal, epochs }
            }),
        (positive(), 1..u64::MAX, per(), any::<bool>()).prop_map(|(factor, every, per, staircase)| {
            Curve::Exponential { factor, every, per, staircase }
        }),
        (1..u64::MAX, prop_oneof![1.0..3.0, 1.0..1e9, Just(1.0)], 0.0..=1.0, 0.0..=1.0, per()).prop_map(
            |(first, t_mul, m_mul, alpha, per)| Curve::CosineRestarts { first, t_mul, m_mul, alpha, per }
        ),
        positive().prop_map(Curve::time),
        (1..u64::MAX, positive()).prop_map(|(every, factor)| Curve::Step { every, factor }),
        (proptest::collection::btree_set(any::<u64>(), 1..5), positive())
            .prop_map(|(at, factor)| { Curve::Milestones { at: BTreeSet::into_iter(at).collect(), factor } }),
    ]
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let warmup =
        (1..u64::MAX, per(), 0.0..=1.0).prop_map(|(length, per, start)| Warmup { length, per, start });
    (curve(), proptest::option::of(warmup)).prop_map(|(curve, warmup)| Schedule { curve, warmup })
}

fn decay() -> impl Strategy<Value = WeightDecay> {
    prop_oneof![
        Just(WeightDecay::None),
        (0.0f32..10.0).prop_map(WeightDecay::Coupled),
        (0.0f32..10.0).prop_map(WeightDecay::Decoupled)
    ]
}

fn positive_decay() -> impl Strategy<Value = WeightDecay> {
    prop_oneof![
        (1e-6f32..10.0).prop_map(WeightDecay::Coupled),
        (1e-6f32..10.0).prop_map(WeightDecay::Decoupled)
    ]
}

fn group() -> impl Strategy<Value = ParamGroup> {
    let (decay, epochs) = (proptest::option::of(decay()), proptest::option::of(any::<u64>()));
    ("[a-z0-9_/*]{1,12}", 0.0f32..100.0, decay, any::<u64>(), epochs).prop_map(
        |(pattern, lr_multiplier, weight_decay, freeze_epochs, epochs)| ParamGroup {
            pattern,
            lr_multiplier,
            // In text nothing is an L2 penalty of 0.
            weight_decay: weight_decay
                .map(|w| if w == WeightDecay::None { WeightDecay::Coupled(0.0) } else { w }),
            freeze_epochs,
            epochs,
        },
    )
}

fn muon() -> impl Strategy<Value = Muon> {
    let adjust = [Adjust::Original, Adjust::MatchRmsAdamw, Adjust::SpectralUnclamped, Adjust::None];
    let flags = (any::<bool>(), any::<bool>(), proptest::sample::select(adjust.to_vec()));
    (0.0f32..1.0, 1u32..100, 1e-12f32..1.0, decay(), flags).prop_map(
        |(momentum, steps, epsilon, weight_decay, (nesterov, normalize, adjust))| Muon {
            momentum,
            nesterov,
            steps,
            epsilon,
            adjust,
            normalize,
            weight_decay,
        },
    )
}

fn optimizer() -> impl Strategy<Value = Optimizer> {
    let clip = prop_oneof![
        Just(None),
        (1e-9f32..1e9).prop_map(|limit| Some(Clip::Norm(limit))),
        (1e-9f32..1e9).prop_map(|limit| Some(Clip::Value(limit))),
        (1e-9f32..1e9).prop_map(|limit| Some(Clip::GlobalNorm(limit))),
    ];
    let muon = prop_oneof![
        4 => Just(None),
        1 => (muon(), 0.0f32..1e7).prop_map(Some)
    ];
    (rule(), muon, clip).prop_map(|(rule, muon, clip): (UpdateRule, _, _)| match muon {
        None => Optimizer { rule, rest: None, clip },
        Some((muon, lr_multiplier)) => {
            let rest = Some(Rest { rule, lr_multiplier });
            Optimizer { rule: muon.into(), rest, clip }
        }
    })
}

fn rule() -> impl Strategy<Value = UpdateRule> {
    let velocity = prop_oneof![Just(Velocity::Keras), Just(Velocity::PyTorch)];
    let style = prop_oneof![
        Just(Rmsprop::keras2()),
        Just(Rmsprop::keras3()),
        Just(Rmsprop::pytorch()),
        (0.0f32..1.0, 1e-12f32..1.0).prop_map(|(rho, epsilon)| Rmsprop::keras3().rho(rho).epsilon(epsilon)),
    ];
    let adam = prop_oneof![
        Just(Adam::keras()),
        Just(Adam::pytorch()),
        (0.0..1.0, 0.0..1.0, 1e-12f32..1.0)
            .prop_map(|(beta1, beta2, epsilon)| { Adam::pytorch().betas(beta1, beta2).epsilon(epsilon) }),
    ];
    let nadam = prop_oneof![
        Just(Nadam::keras()),
        Just(Nadam::pytorch()),
        (0.0..1.0, 0.0..1.0, 1e-12f32..1.0, 0.0..9.0).prop_map(|(beta1, beta2, epsilon, decay)| {
            Nadam::pytorch().betas(beta1, beta2).epsilon(epsilon).momentum_decay(decay)
        }),
    ];
    prop_oneof![
        (0.0f32..1.0, any::<bool>(), velocity, decay()).prop_map(
            |(momentum, nesterov, velocity, weight_decay)| {
                Sgd { momentum, nesterov, velocity, weight_decay }.into()
            }
        ),
        (style, decay()).prop_map(|(style, decay)| style.weight_decay(decay).into()),
        (adam, decay()).prop_map(|(style, decay)| style.weight_decay(decay).into()),
        (0.0..1.0, 0.0..1.0, decay()).prop_map(|(beta1, beta2, decay)| {
            Lion::keras().betas(beta1, beta2).weight_decay(decay).into()
        }),
        (nadam, decay()).prop_map(|(style, decay)| style.weight_decay(decay).into()),
        (0.0f32..1.0, any::<bool>(), 1e-6f32..1.0, 1e-12f32..1.0, positive_decay()).prop_map(
            |(momentum, nesterov, trust, epsilon, weight_decay)| {
                Lars { momentum, nesterov, trust, epsilon, weight_decay }.into()
            }
        ),
        (0.0..1.0, 0.0..1.0, 1e-12f32..1.0, positive_decay()).prop_map(|(beta1, beta2, epsilon, decay)| {
            Lamb::new().betas(beta1, beta2).epsilon(epsilon).weight_decay(decay).into()
        }),
    ]
}

proptest! {
    #[test]
    fn schedules_read_back(schedule in schedule()) {
        prop_assert_eq!(&schedule.to_string().parse::<Schedule>().unwrap(), &schedule);
        let json = serde_json::to_string(&schedule).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Schedule>(&json).unwrap(), &schedule);
    }

    #[test]
    fn optimizers_read_back(optimizer in optimizer()) {
        prop_assert_eq!(optimizer.to_string().parse::<Optimizer>().unwrap(), optimizer);
        let json = serde_json::to_string(&optimizer).unwrap();
        prop_assert_eq!(serde_json::from_str::<Optimizer>(&json).unwrap(), optimizer);
    }

    #[test]
    fn groups_read_back(group in group()) {
        prop_assert_eq!(&group.to_string().parse::<ParamGroup>().unwrap(), &group);
        let json = serde_json::to_string(&group).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ParamGroup>(&json).unwrap(), &group);
    }

    #[test]
    fn averages_read_back(momentum in 0.0..1.0, every in 1..u64::MAX, power in 0.0..9.0, own in proptest::option::of(1..99_u64)) {
        let ema = Ema { momentum, every, power, overwrite_frequency: own };
        prop_assert_eq!(ema.to_string().parse::<Ema>().unwrap(), ema);
    }

    #[test]
    fn any_text_is_answered(text in "(poly|triangle|one-cycle|exponential|cosine-restarts|step|time|sgd|rmsprop|n?adamw?|lion|milestones)?[:a-z=,/+0-9.é-]{0,24}") {
        let _ = (text.parse::<Schedule>(), text.parse::<Optimizer>(), text.parse::<ParamGroup>(), text.parse::<Ema>(), text.parse::<Sam>());
    }

    /// No progress, however odd, makes a valid schedule panic or leave the numbers.
    #[test]
    fn factors_are_numbers(schedule in schedule(), at in any::<[u64; 4]>()) {
        let [step, epochs_done, steps_per_epoch, epochs] = at;
        let factor = schedule.factor(&Progress { step, epochs_done, steps_per_epoch, epochs });
        prop_assert!(factor >= 0.0, "{}", factor);
    }
}

#[test]
fn compact_forms() {
    for (text, schedule) in [
        ("poly:power=2", Schedule::from(Curve::poly(2.0))),
        ("time:decay=1e-6", Curve::time(1e-6).into()),
        ("step:every=30,factor=0.5", Curve::Step { every: 30, factor: 0.5 }.into()),
        ("milestones:at=30/60/80", Curve::milestones([30, 60, 80]).into()),
        (
            "triangle:start=0.2,peak=0.23,end=0.07",
            Curve::Triangle { start: 0.2, peak: 0.23, end: 0.07, epochs: None }.into(),
        ),
        ("one-cycle", Curve::one_cycle().into()),
        ("exponential:factor=0.96", Curve::exponential(0.96).into()),
        (
            "exponential:factor=0.5,steps=1000,staircase=true",
            Curve::Exponential { factor: 0.5, every: 1000, per: Per::Step, staircase: true }.into(),
        ),
        ("cosine-restarts:first=10", Curve::cosine_restarts(10).into()),
        ("cosine+warmup:steps=500", Schedule::from(Curve::cosine()).with_warmup(Warmup::steps(500))),
    ] {
        assert_eq!(text.parse::<Schedule>().unwrap(), schedule);
        assert_eq!(schedule.to_string(), text);
    }
    assert_eq!(
        " time : decay = 1e+6 , +warmup: epochs=1".parse::<Schedule>().unwrap().to_string(),
        "time:decay=1e6+warmup:epochs=1"
    );
    for text in [
        "sgd",
        "sgd:momentum=0.9,nesterov=true,velocity=pytorch,l2=5e-4",
        "rmsprop",
        "rmsprop:style=keras3",
        "adam",
        "adam:style=pytorch,beta1=0.8,beta2=0.95,l2=5e-4",
        "lion",
        "lion:beta1=0.95,beta2=0.98,weight-decay=0.1",
        "nadam",
        "nadam:style=pytorch,beta1=0.8,weight-decay=0.01",
        "nadam:momentum-decay=0.1",
        "lars:momentum=0.9,nesterov=true,trust=0.02,epsilon=0.01,l2=5e-5",
        "lamb:beta1=0.8,beta2=0.95,epsilon=1e-8,weight-decay=0.01,global-clipnorm=1",
        "muon:momentum=0.6,steps=3,adjust=none,normalize=true,clipnorm=1+sgd:momentum=0.85,lr-multiplier=0.5",
    ] {
        assert_eq!(text.parse::<Optimizer>().unwrap().to_string(), text);
    }
    for (text, meaning) in [
        ("adamw", "adam:weight-decay=0.004"),
        ("muon", "muon+adam:beta2=0.95,epsilon=1e-10,epsilon-hat=false,lr-multiplier=0.015"),
        (
            "muon:adjust=match-rms-adamw,weight-decay=0.1",
            "muon:adjust=match-rms-adamw,weight-decay=0.1+adam:beta2=0.95,epsilon=1e-10,epsilon-hat=false",
        ),
        ("muon:nesterov=false + sgd : lr-multiplier = 1e+2", "muon:nesterov=false+sgd:lr-multiplier=100"),
        ("adamw:style=pytorch", "adam:style=pytorch,weight-decay=0.01"),
        ("adamw:weight-decay=0.1", "adam:weight-decay=0.1"),
    ] {
        assert_eq!(text.parse::<Optimizer>().unwrap().to_string(), meaning);
    }
}

#[test]
fn json_forms() {
    let schedule = Schedule::from(Curve::cosine()).with_warmup(Warmup::epochs(5));
    assert_eq!(serde_json::to_string(&schedule).unwrap(), r#""cosine+warmup:epochs=5""#);
    assert_eq!(serde_json::from_str::<Schedule>(r#""poly""#).unwrap(), Curve::poly(1.0).into());
    let json = serde_json::to_string(&Optimizer::from(Rmsprop::keras3())).unwrap();
    assert_eq!(json, r#""rmsprop:style=keras3""#);
    let error = serde_json::from_str::<Optimizer>(r#""sgd:momentun=0.9""#).unwrap_err();
    assert!(error.to_string().contains("momentun"), "{error}");
}

#[test]
fn wrong_schedules_are_named() {
    for (text, message) in [
        (
            "",
            "the schedule `` is unknown; there are constant, poly, cosine, cosine-restarts, triangle, one-cycle, exponential, time, step, milestones",
        ),
        (
            "linear",
            "the schedule `linear` is unknown; there are constant, poly, cosine, cosine-restarts, triangle, one-cycle, exponential, time, step, milestones",
        ),
        ("constant:power=1", "constant: option `power` is unknown; there are none"),
        ("poly:power=two", "poly: power is two, but must be a number"),
        ("poly:power=nan", "poly: power is NaN, but must be a positive number"),
        ("poly:power=1,power=2", "poly: option `power` is given twice"),
        ("poly:alpha=2", "poly: alpha is 2, but must be a number from 0 to 1"),
        ("poly:epochs=0", "poly: epochs is 0, but must be at least 1"),
        ("cosine:per=batch", "cosine: per is batch, but must be step or epoch"),
        ("triangle:peak=2", "triangle: peak is 2, but must be a number from 0 to 1"),
        ("one-cycle:pct-start=2", "one-cycle: pct-start is 2, but must be a number from 0 to 1"),
        ("one-cycle:div-factor=0.5", "one-cycle: div-factor is 0.5, but must be a number of 1 or more"),
        ("one-cycle:final-div-factor=0", "one-cycle: final-div-factor is 0, but must be a positive number"),
        ("one-cycle:anneal=line", "one-cycle: anneal is line, but must be cos or linear"),
        (
            "exponential",
            "exponential: option `factor` is missing; give a number, as in `exponential:factor=...`",
        ),
        ("exponential:factor=0.5,every=1,steps=2", "`every` and `steps` exclude each other; give one"),
        ("exponential:factor=0.5,steps=0", "exponential: steps is 0, but must be at least 1"),
        ("cosine-restarts:first=0", "cosine-restarts: first is 0, but must be at least 1"),
        (
            "cosine-restarts:first=1,t-mul=0.5",
            "cosine-restarts: t-mul is 0.5, but must be a number of 1 or more",
        ),
        ("cosine-restarts:first=1,m-mul=2", "cosine-restarts: m-mul is 2, but must be a number from 0 to 1"),
        (
            "cosine-restarts:first=1,tmul=2",
            "cosine-restarts: option `tmul` is unknown; there are first, t-mul, m-mul, alpha, per",
        ),
        ("time", "time: option `decay` is missing; give a number, as in `time:decay=...`"),
        ("time:decay=-1", "time: decay is -1, but must be a number of 0 or more"),
        ("step:every=0", "step: every is 0, but must be at least 1"),
        ("milestones:at=60/30", "milestones: at is 60/30, but must be rising epochs such as 30/60/80"),
        (
            "milestones:at=1,2",
            "milestones: option `2` is unknown; there are at, factor, and `/` between the values of a list, as in at=30/60/80",
        ),
        ("milestones:at=1,gamma=2", "milestones: option `gamma` is unknown; there are at, factor"),
        ("poly+warmup", "warmup: give its length, as `epochs=N` or as `steps=N`"),
        ("poly+warmup:epochs=1,steps=1", "warmup: give its length, as `epochs=N` or as `steps=N`"),
        ("poly+warmup:epochs=0", "warmup: epochs is 0, but must be at least 1"),
        ("poly+warmups:epochs=1", "the addition to a schedule `warmups` is unknown; there are warmup"),
    ] {
        assert_eq!(text.parse::<Schedule>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn wrong_optimizers_are_named() {
    for (text, message) in [
        (
            "adamax",
            "the optimizer `adamax` is unknown; there are sgd, rmsprop, adam, adamw, nadam, lion, lars, lamb, muon",
        ),
        ("muon:steps=0", "muon: steps is 0, but must be a whole number from 1 to 99"),
        (
            "muon:adjust=rms",
            "muon: adjust is rms, but must be original, match-rms-adamw, spectral-unclamped or none",
        ),
        ("muon+muon", "muon: the rest's rule is muon, but must be another than muon"),
        ("muon+sgd:lr-multiplier=-1", "sgd: lr-multiplier is -1, but must be a number of 0 or more"),
        (
            "muon+lion:clipnorm=1",
            "lion: option `clipnorm` is unknown; there are beta1, beta2, weight-decay, l2, lr-multiplier",
        ),
        ("adam+sgd", "adam steps over all parameters, and leaves none to `+sgd`: only muon does"),
        (
            "lars:momentum=0.9",
            "lars: weight-decay is 0, but must be a positive number: tensors without one have no trust ratio",
        ),
        (
            "lamb:l2=0",
            "lamb: weight-decay is 0, but must be a positive number: tensors without one have no trust ratio",
        ),
        ("lars:trust=0,l2=1", "lars: trust is 0, but must be a positive number"),
        ("lion:beta2=1", "lion: beta2 is 1, but must be a number from 0 to below 1"),
        ("nadam:momentum-decay=-1", "nadam: momentum-decay is -1, but must be a number of 0 or more"),
        ("adam:beta2=1", "adam: beta2 is 1, but must be a number from 0 to below 1"),
        ("adamw:style=keras3", "adamw: style is keras3, but must be keras or pytorch"),
        ("sgd:momentum=1", "sgd: momentum is 1, but must be a number from 0 to below 1"),
        ("sgd:nesterov=yes", "sgd: nesterov is yes, but must be true or false"),
        (
            "sgd:rho=0.9",
            "sgd: option `rho` is unknown; there are momentum, nesterov, velocity, weight-decay, l2, clipnorm, clipvalue, global-clipnorm",
        ),
        (
            "sgd:l2=1,weight-decay=1",
            "`weight-decay` (decoupled) and `l2` (coupled) exclude each other; give one",
        ),
        (
            "adam:clipnorm=1,clipvalue=2",
            "`clipnorm`, `clipvalue` and `global-clipnorm` exclude each other; give one",
        ),
        ("adam:clipvalue=0", "adam: clipvalue is 0, but must be a positive number"),
        ("rmsprop:global-clipnorm=inf", "rmsprop: global-clipnorm is inf, but must be a positive number"),
        ("sgd:l2=-1", "sgd: weight-decay is -1, but must be a number of 0 or more"),
        ("rmsprop:epsilon=0", "rmsprop: epsilon is 0, but must be a positive number"),
        ("rmsprop:style=keras", "rmsprop: style is keras, but must be keras2, keras3 or pytorch"),
    ] {
        assert_eq!(text.parse::<Optimizer>().unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn patterns_take_names() {
    for (pattern, takes, leaves) in [
        ("dense/bias", &["dense/bias"][..], &["dense/bias2", "a/dense/bias", "dense"][..]),
        ("*", &["", "a", "a/b"], &[]),
        ("*/bias", &["/bias", "conv2d/bias", "a/b/bias"], &["bias", "conv2d/bias_1"]),
        ("norm*/*a", &["norm/a", "norm_12/beta"], &["a/norm/a", "norm/b"]),
        ("a*b*c", &["abc", "aXbYc", "abcbc"], &["acb", "ab", "c"]),
        ("a*a", &["aa", "aba"], &["a"]),
        ("a*b*b", &["abb", "aXbb", "abXb"], &["ab", "abX"]),
        ("**é**", &["é", "aéa"], &["", "a"]),
        ("é*é", &["éé", "éüé"], &["é"]),
        // With a try for every way to share the name out among the stars, this would not end.
        (&format!("{}Z", "*a".repeat(40)), &[&format!("{}Z", "a".repeat(99))], &[&"a".repeat(99)]),
    ] {
        let group = ParamGroup::new(pattern);
        takes.iter().for_each(|name| assert!(group.takes(name), "{pattern} {name}"));
        leaves.iter().for_each(|name| assert!(!group.takes(name), "{pattern} {name}"));
    }
}

#[test]
fn wrong_groups_are_named() {
    for (text, message) in [
        ("", "a parameter group: the pattern is ``, but must be a name, in which `*` stands for anything"),
        (
            "*/bias:lr=2",
            "*/bias: option `lr` is unknown; there are lr-multiplier, weight-decay, l2, freeze-epochs, epochs",
        ),
        ("*/bias:lr-multiplier=-2", "*/bias: lr-multiplier is -2, but must be a number of 0 or more"),
        ("*/bias:l2=inf", "*/bias: weight-decay is inf, but must be a number of 0 or more"),
        ("*/bias:epochs=few", "*/bias: epochs is few, but must be a whole number"),
    ] {
        assert_eq!(text.parse::<ParamGroup>().unwrap_err().to_string(), message, "{text}");
    }
    let groups = ["*/kernel", "conv*", "conv2d/kernel"].map(ParamGroup::new);
    let check = |count| ParamGroup::check_all(&groups[..count], ["conv2d/kernel", "conv2d/bias"].into_iter());
    assert!(check(2).is_ok());
    assert_eq!(
        check(3).unwrap_err().to_string(),
        "the parameter group `conv2d/kernel` takes no parameter: of conv2d/kernel, conv2d/bias none is left that matches"
    );
}

#[test]
fn averages_move_and_take_over() {
    let ema: Ema = "".parse().unwrap();
    assert_eq!((ema, ema.to_string().as_str()), (Ema::default(), "momentum=0.99"));
    let at = |step| Progress::at_step(step, 10, 3);
    assert_eq!((ema.momentum_after(&at(1)), ema.momentum_after(&at(30))), (Some(0.99), Some(0.99)));
    assert!((1..30).all(|step| !ema.overwrites_after(&at(step))) && ema.overwrites_after(&at(30)));
    let lookahead: Ema = "momentum=0.5,every=4,overwrite-frequency=8".parse().unwrap();
    let moves = (1..=30).filter(|step| lookahead.momentum_after(&at(*step)).is_some());
    assert_eq!(moves.collect::<Vec<_>>(), [4, 8, 12, 16, 20, 24, 28]);
    assert_eq!(lookahead.momentum_after(&at(4)), Some(0.0625));
    let takes_over = (1..=30).filter(|step| lookahead.overwrites_after(&at(*step)));
    assert_eq!(takes_over.collect::<Vec<_>>(), [8, 16, 24, 30]);
    for wrong in ["momentum=1", "every=0", "power=-1", "overwrite-frequency=0", "decay=0.9"] {
        assert!(wrong.parse::<Ema>().is_err(), "{wrong}");
    }
}

#[test]
fn a_distance_is_a_number_alone_or_named() {
    for (text, sam, written) in [
        ("0.05", Sam::new(0.05), "rho=0.05"),
        (" 2 , adaptive", Sam::new(2.0).adaptive(), "rho=2,adaptive=true"),
        ("adaptive=true,rho=1e-4", Sam::new(1e-4).adaptive(), "rho=1e-4,adaptive=true"),
        ("rho=0.5,adaptive=false", Sam::new(0.5), "rho=0.5"),
    ] {
        let read: Sam = text.parse().unwrap();
        assert_eq!((read, read.to_string().as_str()), (sam, written));
        assert_eq!(written.parse::<Sam>().unwrap(), sam);
    }
    for (text, says) in [
        ("0", "sam: rho is 0, but must be a positive number"),
        ("nan", "sam: rho is NaN, but must be a positive number"),
        ("1e39", "sam: rho is inf, but must be a positive number"),
        ("adaptive", "sam: option `rho` is missing; give a number, as in `sam:rho=...`"),
        ("0.1,nesterov", "sam: option `nesterov` is unknown; there are rho, adaptive"),
        ("0.1,rho=2", "sam: option `rho` is given twice"),
    ] {
        assert_eq!(text.parse::<Sam>().unwrap_err().to_string(), says);
    }
}
