use super::*;

/// A panel with a curve of training and one of validation.
fn panel(scale: Scale, [training, validation]: [Vec<f64>; 2]) -> Panel {
    let curves = vec![
        Curve::new("training", training),
        Curve { colour: 1, dashed: true, ..Curve::new("validation", validation) },
    ];
    Panel::new("Loss", scale, curves)
}

fn falling(epochs: u32) -> [Vec<f64>; 2] {
    let at = |epoch: u32| {
        let t = f64::from(epoch);
        let wave = (2.4 * t).sin() + (0.7 * t).cos();
        (0.25 + 1.9 * (-t / 14.0).exp(), 0.42 + 1.7 * (-t / 9.0).exp() + 0.06 * wave * (-t / 40.0).exp())
    };
    let (training, validation) = (1..=epochs).map(at).unzip();
    [training, validation]
}

/// All kinds of losses, by name.
fn cases() -> Vec<(&'static str, [Vec<f64>; 2])> {
    let mut holes = falling(20);
    (holes[1][4], holes[0][9], holes[1][10], holes[1][12]) = (f64::NAN, f64::INFINITY, f64::NAN, f64::NAN);
    let mut explosion = falling(20);
    (explosion[1][0], explosion[0][3]) = (1e6, 480.0);
    let mut noisy = falling(150);
    noisy[1].iter_mut().zip(0..).for_each(|(value, k)| *value += 0.3 * f64::from(37 * k).sin().powi(8));
    vec![
        ("none", [vec![], vec![]]),
        ("steep", [vec![1.05, 0.13, 0.08, 0.06], vec![0.14, 0.07, 0.05, 0.04]]),
        ("one", falling(1)),
        ("two", falling(2)),
        ("twenty", falling(20)),
        ("seventy", falling(70)),
        ("noisy", noisy),
        ("many", falling(1000)),
        ("holes", holes),
        ("explosion", explosion),
        ("lost", [vec![f64::NAN; 3], vec![f64::NAN; 3]]),
        ("huge", [vec![14.0], vec![1e300]]),
    ]
}

fn chart(losses: [Vec<f64>; 2]) -> Chart {
    let accuracies = losses.clone().map(|values| values.iter().map(|loss| 0.95 - 0.3 * loss).collect());
    let mut accuracy = panel(Scale::Unit, accuracies);
    accuracy.title = "Accuracy".into();
    let best = accuracy.curves[1]
        .points
        .iter()
        .copied()
        .filter(|at| at.1.is_finite())
        .reduce(|best, at| if at.1 > best.1 { at } else { best });
    accuracy.highlight = best.map(|at| Highlight { name: format!("best {:.4}", at.1), at });
    let title = "minigooglenet on CIFAR-10".to_owned();
    let subtitle = "best validation accuracy 0.8499 in epoch 20".to_owned();
    Chart { title, subtitle, panels: vec![panel(Scale::Loss, losses), accuracy] }
}

#[test]
fn every_history_can_be_drawn() {
    for (name, losses) in cases() {
        let chart = chart(losses);
        let svg = chart.svg();
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        // `CURVES=DIR` keeps the pictures.
        let folder = std::env::var_os("CURVES");
        let keep = |ending: &str, content: &[u8]| {
            folder.iter().for_each(|folder| {
                std::fs::write(Path::new(folder).join(format!("{name}.{ending}")), content).unwrap();
            });
        };
        keep("svg", svg.as_bytes());
        #[cfg(feature = "png")]
        {
            let png = chart.png().unwrap();
            let reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
            assert_eq!((reader.info().width, reader.info().height), (1600, 700), "{name}");
            keep("png", &png);
        }
    }
}

#[test]
fn gaps_break_a_line() {
    let svg = panel(Scale::Loss, [vec![2.0, 1.0, f64::NAN, 0.5], vec![2.0, 1.0, f64::NAN, 0.5]]).svg();
    let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<path class=\"line c")).collect();
    assert_eq!(lines.len(), 2, "a single point has no line: {svg}");
    assert!(lines[1].contains("c1") && lines[1].contains("stroke-dasharray"), "{lines:?}");
    assert_eq!((svg.matches("<circle").count(), svg.matches(">epoch</text>").count()), (6, 1));
    assert!(svg.contains("<title>epoch 4, validation: 0.500</title>"), "{svg}");
}

#[test]
fn cut_off_values_have_arrowheads() {
    let (_, losses) = cases().into_iter().find(|case| case.0 == "explosion").unwrap();
    let svg = panel(Scale::Loss, losses).svg();
    assert!(svg.contains("Z\"><title>epoch 1, validation: 1.00e6</title></path>"), "{svg}");
    assert!(svg.contains("Z\"><title>epoch 4, training: 480</title></path>"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 38);
}

/// A dashed line to a far point would have dashes without end.
#[test]
fn far_and_infinite_epochs_are_drawn_in_the_plot() {
    let points = vec![(1.0, 0.5), (2.0, 0.6), (1e300, 0.7), (f64::INFINITY, 0.8), (f64::NAN, 0.9)];
    let curve = Curve { points, dashed: true, ..Curve::new("validation", []) };
    let mut panel = Panel::new("Accuracy", Scale::Unit, vec![curve]);
    panel.x = Axis::epochs(1..=2);
    let svg = panel.svg();
    assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    assert!(svg.contains("cx=\"512.0\"") && !svg.contains("inf") && !svg.contains("NaN"), "{svg}");
    #[cfg(feature = "png")]
    Chart { panels: vec![panel], ..Chart::default() }.png().unwrap();
}

#[test]
fn long_runs_have_no_marks() {
    let svg = panel(Scale::Loss, falling(200)).svg();
    assert_eq!((svg.matches("<circle").count(), svg.matches("</svg>").count()), (0, 1));
}

#[test]
fn an_svg_says_in_words_what_it_shows() {
    let mut chart = chart(falling(70));
    chart.title = "a <net> & \"data\"".into();
    chart.panels[0].curves[0].name = "</text><script>".into();
    let svg = chart.svg();
    for text in ["Loss", "Accuracy", "epoch", "&lt;/text&gt;&lt;script&gt;", "validation", "70", "best 0."] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("a &lt;net&gt; &amp;") && !svg.contains("<net>") && !svg.contains("<script>"));
}

/// Any number of metrics: the legend takes as many rows as it needs, and the plots stay side by side.
#[test]
fn legends_wrap() {
    let mut chart = chart(falling(3));
    // The axis of the values begins at the plot's upper end.
    let axes = |chart: &Chart| -> Vec<String> {
        let svg = chart.svg();
        let axes = svg.lines().filter(|line| line.contains("class=\"line label\"")).step_by(2);
        axes.map(|line| line.split(['M', 'L']).nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(axes(&chart), ["97.5 137.5", "897.5 137.5"]);
    chart.panels[1].curves.extend((0..6).map(|k| Curve::new(format!("another metric, number {k}"), [0.5])));
    assert_eq!(axes(&chart), ["97.5 245.5", "897.5 245.5"]);
}

#[test]
fn many_panels_have_rows_of_three() {
    let size = |panels: usize| {
        let panels = (0..panels).map(|_| panel(Scale::Unit, falling(4))).collect();
        Chart { panels, ..Chart::default() }.layout().0
    };
    assert_eq!([0, 1, 2, 3].map(size), [[800.0, 700.0], [800.0, 700.0], [1600.0, 700.0], [2400.0, 700.0]]);
    assert_eq!([4, 7].map(size), [[2400.0, 1308.0], [2400.0, 1916.0]]);
}

#[cfg(feature = "png")]
#[test]
fn text_is_drawn_into_the_png() {
    let ink = |title: &str| {
        let png = Chart { title: title.into(), ..Chart::default() }.png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        pixels.iter().filter(|value| **value < 128).count()
    };
    assert_eq!(ink(""), 0);
    assert!(ink("minigooglenet on CIFAR-10") > 1500);
}
